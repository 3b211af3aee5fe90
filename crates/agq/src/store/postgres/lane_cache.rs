//! Cache of the lanes. A lane never changes as long as it exists.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem::take,
    sync::Arc,
    time::{Duration, Instant},
};

use agenix_protocol::documents::Quantities;
use agenix_rules::{capability::Needs, reservation::Reservations};
use sqlx::{Error, Row, postgres::PgRow, query};

use crate::store::{
    Claimant, LaneKey,
    claim_index::ClaimIndex,
    postgres::{
        codec::{encode, or_skip},
        connection::session::DatabaseSession,
        ready_positions::{Position, ReadyNotices},
        sql_types,
    },
};

/// Maximum age of the cache. A cache beyond this age is emptied, which drops lanes that no longer
/// exist.
const MAX_AGE: Duration = Duration::from_secs(600);

const LANES: &str = "SELECT lane, queue, needs FROM agq.lanes WHERE lane = ANY ($1)";

/// Lanes by number and by key, with an index of those that may have ready jobs (see `ready_lanes`).
#[derive(Debug, Default)]
pub(super) struct LaneCache {
    lanes: HashMap<i32, LaneKey>,
    numbers: HashMap<LaneKey, i32>,
    /// Reservations of the workers that claim from this node.
    pub(super) reservations: Reservations,
    /// Lanes that may have ready jobs, by lower bounds of the positions of their first jobs.
    pub(super) index: ClaimIndex<Position>,
    /// Positions of ready jobs in lanes that are not cached yet.
    pub(super) unknown_ready: BTreeMap<i32, Position>,
    /// True if other nodes claim jobs, too.
    pub(super) has_peers: bool,
    /// Ready jobs of other nodes.
    pub(super) notices: Arc<ReadyNotices>,
    /// Time after which all lanes are scanned again although the node receives notifications.
    pub(super) poll: Duration,
    created_at: Option<Instant>,
    /// Time of the latest scan of all lanes.
    pub(super) loaded_at: Option<Instant>,
    /// Durations of the latest scans of all lanes.
    pub(super) costs: [Duration; 4],
}

impl LaneCache {
    pub(super) fn new(notices: Arc<ReadyNotices>, poll: Duration) -> Self {
        Self { notices, poll, ..Self::default() }
    }

    /// Empties the cache. Lanes are read again when they are needed. The virtual times of shares
    /// stay.
    pub(super) fn clear(&mut self) {
        for lane in take(&mut self.lanes).into_keys() {
            self.index.remove(lane.cast_unsigned());
        }
        self.numbers.clear();
        self.unknown_ready.clear();
        (self.created_at, self.loaded_at) = (None, None);
    }

    pub(super) fn clear_if_old(&mut self) {
        if self.created_at.is_some_and(|at| at.elapsed() > MAX_AGE) {
            self.clear();
        }
    }

    pub(super) fn is_known(&self, lane: i32) -> bool {
        self.lanes.contains_key(&lane)
    }

    pub(super) fn known(&self) -> impl Iterator<Item = i32> {
        self.lanes.keys().copied()
    }

    fn insert(&mut self, number: i32, key: LaneKey) {
        self.created_at.get_or_insert_with(Instant::now);
        self.index.insert(number.cast_unsigned(), &key);
        self.numbers.insert(key.clone(), number);
        self.lanes.insert(number, key);
    }

    /// Returns the number of a lane, and creates the lane if it does not exist. The cache must be
    /// emptied after a rollback, because the rollback removes a new lane.
    pub(super) fn number(&mut self, session: &DatabaseSession, key: &LaneKey) -> Result<u32, Error> {
        self.clear_if_old();
        if let Some(number) = self.numbers.get(key) {
            return Ok(number.cast_unsigned());
        }
        let number = make(session, key)?;
        self.insert(sql_types::lane(number), key.clone());
        Ok(number)
    }

    /// Returns true if the lane with this key exists and is cached.
    pub(super) fn has(&self, key: &LaneKey) -> bool {
        self.numbers.contains_key(key)
    }

    pub(super) fn queue_of(&self, lane: i32) -> Option<&str> {
        self.lanes.get(&lane).map(|key| &*key.queue)
    }

    /// Returns the number of the lane of the queue of `lane` whose jobs have `needs`.
    pub(super) fn with_needs(
        &mut self,
        session: &DatabaseSession,
        lane: u32,
        needs: &Needs,
    ) -> Result<u32, Error> {
        let lane = sql_types::lane(lane);
        self.know(session, BTreeSet::from([lane]))?;
        let queue = self.queue_of(lane).ok_or(Error::RowNotFound)?.to_owned();
        self.number(session, &LaneKey { queue, needs: needs.clone() })
    }

    /// Returns the key of the limit of a lane.
    pub(super) fn limit_of(&self, lane: i32) -> Option<&str> {
        self.lanes.get(&lane).and_then(|key| key.needs.limit.as_deref())
    }

    /// Returns the name of the budget of a lane.
    pub(super) fn budget_of(&self, lane: i32) -> Option<&str> {
        self.lanes.get(&lane).and_then(|key| key.needs.budget.as_deref())
    }

    /// Reads the keys of those of `lanes` that are not cached.
    pub(super) fn know(&mut self, session: &DatabaseSession, lanes: BTreeSet<i32>) -> Result<(), Error> {
        let unknown: Vec<i32> = lanes.into_iter().filter(|lane| !self.lanes.contains_key(lane)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        for row in session.rows(query(LANES).bind(&unknown))? {
            if let Some((number, key)) = or_skip(lane_of(&row)) {
                self.insert(number, key);
            }
        }
        Ok(())
    }

    /// Returns the quantities that a job of a lane uses.
    pub(super) fn resources_of(&self, lane: i32) -> Option<&Quantities> {
        self.lanes.get(&lane).and_then(|key| key.needs.resources.as_deref())
    }

    /// Returns true if a claimant may get the jobs of a lane: if the lane is one of its queues, and
    /// its capabilities cover the needs.
    pub(super) fn is_for(&self, lane: i32, claimant: &Claimant) -> bool {
        self.lanes.get(&lane).is_some_and(|key| {
            claimant.queues.contains(&key.queue) && claimant.capabilities.cover(&key.needs)
        })
    }

    /// Returns true if a claim locks other records before the jobs of a lane: a limit, a budget or,
    /// for quantities, the worker.
    pub(super) fn is_bounded(&self, lane: i32) -> bool {
        self.lanes.get(&lane).is_some_and(|LaneKey { needs, .. }| {
            needs.limit.is_some() || needs.budget.is_some() || needs.resources.is_some()
        })
    }
}

const LANE_OF: &str =
    "SELECT lane FROM agq.lanes WHERE queue = $1 AND sha256(needs) = sha256($2) AND needs = $2";
/// Statement that inserts a lane with the next number that no lane has. Numbers are used again once
/// the sequence has reached its end.
const INSERT_LANE: &str = "WITH RECURSIVE tried (lane) AS (SELECT nextval('agq.lanes_lane_seq')::integer \
         UNION ALL SELECT nextval('agq.lanes_lane_seq')::integer FROM tried \
         WHERE EXISTS (SELECT FROM agq.lanes AS l WHERE l.lane = tried.lane)) \
     INSERT INTO agq.lanes (lane, queue, needs) OVERRIDING SYSTEM VALUE SELECT lane, $1, $2 FROM tried \
     WHERE NOT EXISTS (SELECT FROM agq.lanes AS l WHERE l.lane = tried.lane) ON CONFLICT DO NOTHING";

/// Creates a lane if it does not exist, and returns its number.
pub(super) fn make(session: &DatabaseSession, key: &LaneKey) -> Result<u32, Error> {
    let needs = encode(&key.needs)?;
    let find = || session.row(query(LANE_OF).bind(&key.queue).bind(&needs));
    let mut found = find()?;
    // An insertion uses up a number even if the lane exists.
    if found.is_none() {
        session.run(query(INSERT_LANE).bind(&key.queue).bind(&needs))?;
        found = find()?;
    }
    found.ok_or(Error::RowNotFound)?.try_get::<i32, _>(0).map(i32::cast_unsigned)
}

/// Decodes a row of lane, queue and needs. Needs are decoded strictly, because a node must not
/// assign jobs with needs that it cannot read.
pub(super) fn lane_of(row: &PgRow) -> Result<(i32, LaneKey), Error> {
    let needs: Vec<u8> = row.try_get("needs")?;
    let needs = rmp_serde::from_slice(&needs).map_err(|error| Error::Decode(Box::new(error)))?;
    Ok((row.try_get("lane")?, LaneKey { queue: row.try_get("queue")?, needs }))
}
