//! Jobs in a transaction: what rules make of them, and who gets which.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agenix_protocol::{ids::JobId, time::Timestamp};
use agenix_rules::{
    job::{self, Hold, Job, Outcome},
    worker::Worker,
};
use sqlx::{Error, Row, query};

use super::{batch::Batch, codec::decode, notes::put, numbers};
use crate::store::{
    Change, Claim, Claimant, JobRule, NoteKind, Ruled,
    admission::{check_only, revived},
};

/// Someone who wants a job.
#[derive(Clone, Copy)]
pub(super) struct Wanting<'w> {
    pub(super) claimant: &'w Claimant,
    pub(super) now: Timestamp,
    pub(super) start_timeout_ms: u64,
}

/// A job to decide on.
pub(super) struct Decision {
    pub(super) job_id: JobId,
    pub(super) results: Option<String>,
    pub(super) rule: JobRule,
}

/// A ready job that nobody else can take until this is committed.
struct Candidate {
    job: Job,
    input: Option<String>,
    plan: Option<String>,
}

/// The first jobs of each lane, locked. Jobs that another node takes at this moment are passed over, and no queue that is paused
/// gives any. A lane costs a look at the index and as many rows as are asked for: what belongs to a job is looked up job by job, for
/// a plan that is made once does not know how few they are, and would join with all there is.
pub(super) const CANDIDATES: &str = "SELECT c.lane, c.record, \
         (SELECT json FROM agq.inputs WHERE job_id = c.job_id) AS input, \
         (SELECT json FROM agq.plans WHERE plan_id = c.plan_id) AS plan FROM unnest($1::integer[]) AS w (lane) \
     JOIN agq.lanes AS l ON l.lane = w.lane AND NOT EXISTS (SELECT FROM agq.paused WHERE paused.queue = l.queue) \
     CROSS JOIN LATERAL (SELECT j.lane, j.rank, j.turn, j.job_id, j.plan_id, j.record FROM agq.jobs AS j \
         WHERE j.lane = l.lane AND j.is_ready ORDER BY j.rank, j.turn LIMIT $2 FOR UPDATE SKIP LOCKED) AS c \
     ORDER BY c.lane, c.rank, c.turn";

type Lanes = BTreeMap<i32, VecDeque<Candidate>>;

impl Batch<'_> {
    /// Asks every rule, in their order, about its job as it is then.
    pub(super) fn decide(&mut self, decisions: &[&Decision]) -> Result<Vec<Ruled<Option<Change>>>, Error> {
        let ids: BTreeSet<&str> = decisions.iter().map(|decision| decision.job_id.as_str()).collect();
        let mut jobs = self.jobs(&ids.into_iter().collect::<Vec<_>>())?;
        decisions.iter().map(|decision| self.decide_one(decision, &mut jobs)).collect()
    }

    fn decide_one(
        &mut self,
        decision: &Decision,
        jobs: &mut BTreeMap<JobId, Job>,
    ) -> Result<Ruled<Option<Change>>, Error> {
        let before = jobs.get(&decision.job_id);
        let next = match (decision.rule)(before) {
            Err(rejection) => return Ok(Err(rejection)),
            Ok(Outcome::Unchanged) => return Ok(Ok(None)),
            Ok(Outcome::Changed(next)) => next,
        };
        let Some(before) = before.cloned() else { return Ok(Ok(None)) };
        if let Some(kind) = revived(&before, &next) {
            let first = match self.first_of(kind)? {
                Some(first) => self.job_now(&first, jobs)?,
                None => None,
            };
            if let Err(rejection) = check_only(&decision.job_id, first.as_ref()) {
                return Ok(Err(rejection));
            }
            let first = (vec![kind.to_owned()], vec![decision.job_id.to_string()]);
            put(self.session, NoteKind::Unique, first)?;
        }
        self.put_job(Some(&before), &next);
        if let Some(results) = &decision.results {
            self.put_results(&decision.job_id, results);
        }
        jobs.insert(decision.job_id.clone(), (*next).clone());
        Ok(Ok(Some(Change { before, after: *next })))
    }

    /// A job as it is, where `changed` has what became of some.
    fn job_now(&self, job_id: &JobId, changed: &BTreeMap<JobId, Job>) -> Result<Option<Job>, Error> {
        match changed.get(job_id).or_else(|| self.changed_job(job_id)) {
            Some(job) => Ok(Some(job.clone())),
            None => Ok(self.jobs(&[job_id.as_str()])?.remove(job_id)),
        }
    }

    /// Gives each claimant a job, if there is one for it.
    pub(super) fn claim(&mut self, all: &[Wanting<'_>]) -> Result<Vec<Option<Claim>>, Error> {
        self.known.refresh(self.session)?;
        let mut claims = self.claim_in_known_lanes(all)?;
        let without: Vec<usize> = (0..claims.len()).filter(|at| claims[*at].is_none()).collect();
        // A lane may have been made just now. And where a look takes long, another node may have locked what was there at its
        // beginning, and left what has come since.
        if !without.is_empty() && (self.known.learn(self.session)? || self.known.has_company) {
            let others: Vec<Wanting<'_>> = without.iter().map(|at| all[*at]).collect();
            let found = self.claim_in_known_lanes(&others)?;
            without.into_iter().zip(found).for_each(|(at, claim)| claims[at] = claim);
        }
        Ok(claims)
    }

    fn claim_in_known_lanes(&mut self, all: &[Wanting<'_>]) -> Result<Vec<Option<Claim>>, Error> {
        self.write_claimable()?;
        let takers = self.takers(all)?;
        let mut wanted: BTreeSet<i32> = BTreeSet::new();
        let claimants = all.iter().map(|wanting| wanting.claimant);
        for claimant in claimants.filter(|claimant| takers.contains(&*claimant.holder)) {
            for queue in &*claimant.queues {
                wanted.extend(self.known.lanes_for(queue, &claimant.abilities));
            }
        }
        self.limits.settle(self.session)?;
        let limits: Vec<String> =
            wanted.iter().filter_map(|lane| self.known.limit_of(*lane)).map(str::to_owned).collect();
        self.limits.hold(self.session, limits.into_iter())?;
        let mut lanes = self.candidates(wanted.into_iter().collect(), all.len())?;
        let mut claims = Vec::with_capacity(all.len());
        let mut again = Vec::new();
        for &Wanting { claimant, now, start_timeout_ms } in all {
            let is_taker = takers.contains(&*claimant.holder);
            let found = if is_taker { self.next_for(claimant, &mut lanes, now) } else { None };
            claims.push(found.map(|(queue, candidate)| {
                let hold = Hold { start_timeout_ms, visibility_ms: claimant.visibility_ms };
                let job = job::claimed(&candidate.job, &claimant.holder, now, hold);
                if let Some(key) = job.ojs.as_ref().and_then(|ojs| ojs.limit.as_deref()) {
                    self.limits.change(key, |limit| limit.begun(now));
                }
                if candidate.job.attempt > 0 {
                    again.push(job.job_id.to_string());
                }
                self.put_job(Some(&candidate.job), &job);
                let (input, plan) = (candidate.input.unwrap_or_default(), candidate.plan.unwrap_or_default());
                Claim { job, queue, input, plan }
            }));
        }
        if !again.is_empty() {
            // What an earlier attempt left is not the result of this one.
            self.session.run(query("DELETE FROM agq.results WHERE job_id = ANY ($1)").bind(again))?;
        }
        Ok(claims)
    }

    /// The holders that take jobs: what a claimant is was looked at when it came, and it may have waited since.
    fn takers<'w>(&self, all: &[Wanting<'w>]) -> Result<BTreeSet<&'w str>, Error> {
        let mut takers: BTreeSet<&str> = all.iter().map(|wanting| &*wanting.claimant.holder).collect();
        let sql = "SELECT worker_id, record FROM agq.workers WHERE worker_id = ANY ($1)";
        for row in self.session.rows(query(sql).bind(takers.iter().copied().collect::<Vec<_>>()))? {
            let worker: Worker = decode(row.try_get("record")?)?;
            if !worker.may_claim() {
                takers.remove(worker.worker_id.as_str());
            }
        }
        Ok(takers)
    }

    fn candidates(&self, lanes: Vec<i32>, of_each: usize) -> Result<Lanes, Error> {
        let mut found = Lanes::new();
        if lanes.is_empty() {
            return Ok(found);
        }
        for row in self.session.rows(query(CANDIDATES).bind(lanes).bind(numbers::limit(of_each)))? {
            let candidate = Candidate {
                job: decode(row.try_get("record")?)?,
                input: row.try_get("input")?,
                plan: row.try_get("plan")?,
            };
            found.entry(row.try_get("lane")?).or_default().push_back(candidate);
        }
        Ok(found)
    }

    /// The next job for a claimant: in the first of its queues that has one, the highest priority, then the oldest.
    fn next_for(
        &mut self,
        claimant: &Claimant,
        lanes: &mut Lanes,
        now: Timestamp,
    ) -> Option<(String, Candidate)> {
        for queue in &*claimant.queues {
            let own = self.known.lanes_for(queue, &claimant.abilities);
            loop {
                let turn = |lane: &i32| {
                    let first = lanes.get(lane)?.front()?;
                    Some((numbers::rank(&first.job), first.job.seq, *lane))
                };
                let may_begin =
                    |lane: &&i32| self.known.limit_of(**lane).is_none_or(|key| self.limits.admits(key, now));
                let next = own.iter().filter(may_begin).filter_map(turn).min();
                let Some((_, _, lane)) = next else { break };
                let Some(candidate) = lanes.get_mut(&lane).and_then(VecDeque::pop_front) else { break };
                if let Some(late) = job::expired(&candidate.job, now) {
                    self.put_job(Some(&candidate.job), &late);
                    continue;
                }
                if candidate.plan.is_some() {
                    return Some((queue.clone(), candidate));
                }
                // Its plan was deleted between its retry's check and this.
                self.put_job(Some(&candidate.job), &job::orphaned(&candidate.job, now));
            }
        }
        None
    }
}
