//! First round trip of a transaction: begins it, and reads and locks what its writes need, as far
//! as that is known before any rule decides.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use agenix_protocol::ids::JobId;
use agenix_rules::limit::Limit;
use sqlx::{Error, Result};

use crate::store::{
    DocumentKind, LaneKey, NewAction,
    postgres::{
        connection::{Answers, DatabaseSession, Param, PreparedStatement, RoundTrip, RoundTripFailure},
        lane_cache::LaneCache,
        sql_types,
        txn::{
            candidates::{self, ClaimRequest, PAUSED, TAKERS},
            checked_actions::CheckReads,
            checks::Checks,
            claim_batch::ClaimReads,
            documents::{COMPARED, compared_in, of_kinds},
            job_reads::{BY_ID, BY_ID_OR_KIND, JobReads},
            lane_reads::{LANES_AHEAD, LaneAnswers, LaneReads},
            locked_lanes::{LOCK_LANES, check_locked},
            locked_names::LOCK_NAMES,
            locked_rows::{EXISTING, documents_in, naming},
            made_actions::{MADE, MadeActions, made_by, making},
            ready_jobs::ReadyJobs,
        },
    },
};

/// Results of the first round trip. Each result is used once, by the first statement that would
/// read it.
#[derive(Default)]
pub(crate) struct OpeningReads {
    pub(crate) jobs: Option<JobReads>,
    /// Jobs that new jobs are compared with, by their kinds.
    pub(crate) compared: Option<HashMap<String, Vec<JobId>>>,
    pub(crate) made: Option<MadeActions>,
    pub(crate) checks: Option<CheckReads>,
    /// Limits of new jobs, not locked.
    pub(crate) limits: BTreeMap<String, Limit>,
    /// Lanes that nobody removes until the transaction ends.
    pub(crate) locked_lanes: BTreeSet<i32>,
    pub(crate) claims: Option<ClaimReads>,
}

/// Statements of the first round trip, and the places of their answers.
#[derive(Default)]
pub(crate) struct Opening {
    round_trip: RoundTrip,
    jobs: Vec<usize>,
    compared: Option<usize>,
    lanes: Option<(usize, BTreeSet<i32>)>,
    made: Option<usize>,
    checks: Option<usize>,
    limits: Option<usize>,
    claims: Option<ClaimPlaces>,
}

struct ClaimPlaces {
    takers: usize,
    paused: usize,
    lanes: LaneAnswers,
}

impl Opening {
    /// Begins the transaction, in the first statement of `begin`.
    pub(crate) fn begin(begin: &[&'static str]) -> Self {
        let mut opening = Self::default();
        begin.iter().for_each(|sql| opening.round_trip.plain(sql));
        opening
    }

    pub(crate) fn call(&mut self, statement: &'static PreparedStatement, params: Vec<Param>) {
        self.round_trip.call(statement, params);
    }

    pub(crate) fn lock_names(&mut self, names: Vec<String>) {
        if !names.is_empty() {
            self.round_trip.call(&LOCK_NAMES, vec![Param::Texts(names)]);
        }
    }

    /// Locks the jobs `ids` that have not ended, and, if new jobs are checked, all jobs that decide
    /// about the new jobs.
    pub(crate) fn lock_jobs(&mut self, ids: BTreeSet<&str>, checks: &Checks<'_>) {
        if checks.is_empty() {
            if !ids.is_empty() {
                self.jobs.push(self.round_trip.call(&BY_ID.0, vec![Param::texts(ids)]));
            }
            return;
        }
        self.compared = Some(self.round_trip.call(&COMPARED, of_kinds(&checks.kinds)));
        let params =
            vec![Param::texts(ids.union(&checks.ids).copied()), Param::texts(checks.kinds.iter().copied())];
        let (live, ended) = &BY_ID_OR_KIND;
        for statement in [live, ended] {
            self.jobs.push(self.round_trip.call(statement, params.clone()));
        }
        if !checks.ids.is_empty() {
            // A job that is in neither table may have moved from the second to the first meanwhile.
            self.jobs.push(self.round_trip.call(live, params));
        }
    }

    /// Reads the limits of new jobs.
    pub(crate) fn read_limits(&mut self, keys: BTreeSet<String>) {
        if !keys.is_empty() {
            let params = naming(DocumentKind::Limit, keys.into_iter().collect());
            self.limits = Some(self.round_trip.call(&EXISTING, params));
        }
    }

    /// Inserts actions.
    pub(crate) fn make_actions(&mut self, actions: &[&NewAction]) -> Result<()> {
        if !actions.is_empty() {
            self.made = Some(self.round_trip.call(&MADE, making(actions)?));
        }
        Ok(())
    }

    /// Reads what decides whether actions are added, besides jobs.
    pub(crate) fn check_actions(&mut self, actions: &[&NewAction]) {
        if !actions.is_empty() {
            self.checks = Some(CheckReads::call(actions, &mut self.round_trip));
        }
    }

    /// Holds the lanes of new jobs.
    pub(crate) fn lock_lanes(&mut self, lanes: BTreeSet<i32>) {
        if !lanes.is_empty() {
            let numbers = lanes.iter().copied().collect();
            self.lanes = Some((self.round_trip.call(&LOCK_LANES, vec![Param::Integers(numbers)]), lanes));
        }
    }

    /// Reads the first jobs of the lanes that the claims probably check, unless the claims lock
    /// other records before the jobs: limits, budgets and workers.
    pub(crate) fn claim(&mut self, all: &[ClaimRequest<'_>], lanes: &mut LaneCache) {
        let now = all.iter().map(|request| request.now).max().unwrap_or_default();
        let claimants = all.iter().map(|request| request.claimant);
        let mut wanted = lanes.upcoming(claimants, LANES_AHEAD, now);
        if wanted.iter().any(|lane| lanes.is_bounded(*lane)) {
            wanted.clear();
        }
        let wanted = wanted.into_iter().map(|lane| (lane, lanes.ready_from(lane))).collect();
        let takers = self.round_trip.call(&TAKERS, vec![candidates::takers(all)]);
        let paused = self.round_trip.call(&PAUSED, Vec::new());
        let lanes = LaneReads::of(lanes, wanted, all.len()).call(&mut self.round_trip);
        self.claims = Some(ClaimPlaces { takers, paused, lanes });
    }

    pub(crate) fn send(self, session: &DatabaseSession) -> Result<OpeningReads, RoundTripFailure> {
        let (mut places, mut opening) = (self, RoundTrip::default());
        std::mem::swap(&mut places.round_trip, &mut opening);
        let most = opening.len();
        let mut answers = session.send(opening)?;
        places.read(&mut answers).map_err(|error| RoundTripFailure {
            error,
            succeeded: most,
            has_sent_all: true,
        })
    }
}

impl Opening {
    fn read(self, answers: &mut Answers) -> Result<OpeningReads> {
        let mut reads = OpeningReads::default();
        let mut take = |place: usize| answers.get_mut(place).map(std::mem::take).ok_or(Error::RowNotFound);
        for place in self.jobs {
            reads.jobs.get_or_insert_default().add(&take(place)?)?;
        }
        if let Some(place) = self.compared {
            reads.compared = Some(compared_in(&take(place)?)?);
        }
        if let Some((place, lanes)) = self.lanes {
            check_locked(&take(place)?, lanes.len())?;
            reads.locked_lanes = lanes;
        }
        if let Some(place) = self.made {
            reads.made = Some(made_by(&take(place)?)?);
        }
        if let Some(place) = self.checks {
            reads.checks = Some(CheckReads::from_rows(&take(place)?)?);
        }
        if let Some(place) = self.limits {
            reads.limits = documents_in(&take(place)?)?;
        }
        if let Some(ClaimPlaces { takers, paused, lanes }) = self.claims {
            let barred = candidates::barred(&take(takers)?)?;
            let paused = candidates::paused(&take(paused)?)?;
            let mut ready = ReadyJobs::default();
            lanes.read(&mut take, &mut ready)?;
            reads.claims = Some(ClaimReads { barred, paused, ready });
        }
        Ok(reads)
    }
}

/// Returns the lanes of the jobs of new actions, and creates missing ones.
pub(crate) fn lanes_of(
    session: &DatabaseSession,
    lanes: &mut LaneCache,
    actions: &[&NewAction],
) -> Result<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    for key in actions.iter().flat_map(|new| lane_keys(new)) {
        found.insert(sql_types::lane(lanes.number(session, &key)?));
    }
    Ok(found)
}

/// Returns the keys of the lanes of the jobs of a new action.
pub(crate) fn lane_keys(new: &NewAction) -> impl Iterator<Item = LaneKey> {
    let has_common = new.jobs.iter().any(|job| job.own.is_none());
    let common = || LaneKey { queue: new.action.queue.clone(), needs: new.needs.clone() };
    let own = new.jobs.iter().filter_map(|job| job.own.as_ref());
    let own = own.map(|own| LaneKey { queue: own.queue.clone(), needs: own.needs.clone() });
    has_common.then(common).into_iter().chain(own)
}
