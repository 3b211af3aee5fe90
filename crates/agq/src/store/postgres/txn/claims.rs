//! Claims in a write transaction.
//!
//! A claim asks the index of ready lanes for its lane. If the transaction has not read that lane,
//! it reads the lane together with those that the next claims probably need (see `claim_reads`).

use agenix_rules::job::{self, Job, JobState, LeaseOptions};
use sqlx::{Result, query};

use crate::store::{
    Claim, DocumentKind, MAX_WITHDRAWN,
    claim_index::PassedGroups,
    postgres::{
        ready_positions::{END, Position, position_of},
        sql_types,
        txn::{
            PgTxn,
            candidates::ClaimRequest,
            claim_batch::{ClaimBatch, ClaimReads, SeenChoice},
            ready_jobs::{LaneHead, LockedJob, ReadyJob, ReadyJobs},
        },
    },
};

/// Job that a claim has chosen.
struct Chosen {
    queue: String,
    lane: i32,
    position: Position,
    job: ReadyJob,
}

impl PgTxn<'_> {
    /// Claims a job for each claimant, if there is one.
    pub(crate) fn claim(&mut self, all: &[ClaimRequest<'_>]) -> Result<Vec<Option<Claim>>> {
        let mut batch = self.begin_claims(all)?;
        let mut claims: Vec<Option<Claim>> = all.iter().map(|_| None).collect();
        let is_barred = |at: &usize| batch.barred.contains(&*all[*at].claimant.holder);
        let mut open: Vec<usize> = (0..all.len()).filter(|at| !is_barred(at)).collect();
        let mut has_looked_again = false;
        loop {
            // Other transactions had locked the jobs that these claims have chosen.
            let beaten = self.claim_open(&mut batch, &open, &mut claims)?;
            if !beaten.is_empty() {
                open = beaten;
                continue;
            }
            open.retain(|at| claims[*at].is_none());
            if open.is_empty() || has_looked_again {
                break;
            }
            // A lane may be new, or its jobs were locked and left.
            has_looked_again = true;
            if !self.lanes.look_again(self.session, &batch.ready.taken)? {
                break;
            }
            self.add_own_ready();
            batch.ready.forget_empty();
        }
        self.forget_results(&claims)?;
        batch.closed.iter().for_each(|lane| self.lanes.unblock(*lane));
        self.note_left(&claims, &batch);
        Ok(claims)
    }

    /// Returns the state of claims before the first one. Takes over what the first round trip has
    /// read, unless the transaction has changed jobs that were ready since.
    fn begin_claims<'r>(&mut self, all: &'r [ClaimRequest<'r>]) -> Result<ClaimBatch<'r>> {
        let is_outdated = self.has_changed_ready() || self.arrived.halts;
        let reads = self.reads.claims.take();
        if is_outdated {
            self.write()?;
        } else if reads.is_none() {
            self.write_new()?;
        }
        let ClaimReads { barred, paused, mut ready } = match reads {
            Some(reads) => reads,
            None => {
                self.lanes.refresh(self.session)?;
                self.claimants(all)?
            }
        };
        if is_outdated {
            ready = ReadyJobs::default();
        }
        for job in self.new_ready_jobs() {
            let lane = sql_types::lane(job.lane);
            // The index does not have the jobs of this transaction yet. Bounds of the lane are
            // locked when the lane is read.
            let is_only = self.lanes.ready_from(lane) == END && !self.lanes.is_bounded(lane);
            if self.lanes.queue_of(lane).is_some_and(|queue| !paused.contains(queue)) {
                let own = LockedJob { job: job.clone(), has_plan: true };
                ready.add_own(lane, position_of(job), own, is_only);
            }
        }
        self.add_own_ready();
        let now = all.iter().map(|request| request.now).max().unwrap_or_default();
        Ok(ClaimBatch { all, now, barred, ready, closed: Vec::new(), reads: 0, withdrawn: 0 })
    }

    /// Claims a job for each of the claims at the places `open`, if there is one. Returns the
    /// claims that have to choose again, because other transactions had locked the chosen jobs.
    fn claim_open(
        &mut self,
        batch: &mut ClaimBatch<'_>,
        open: &[usize],
        claims: &mut [Option<Claim>],
    ) -> Result<Vec<usize>> {
        let mut seen = Vec::new();
        for (place, at) in open.iter().enumerate() {
            let Some(Chosen { queue, lane, position, job }) = self.choose(batch, *at, &open[place..])? else {
                continue;
            };
            match job {
                ReadyJob::Locked(job) => claims[*at] = Some(self.take(batch, *at, queue, &job)),
                ReadyJob::Seen => seen.push(SeenChoice { at: *at, queue, lane, position }),
            }
        }
        let mut beaten = Vec::new();
        for (SeenChoice { at, queue, .. }, job) in self.lock_seen(batch, seen)? {
            match job.filter(|job| !self.withdraw(batch, job)) {
                Some(job) => claims[at] = Some(self.take(batch, at, queue, &job)),
                None => beaten.push(at),
            }
        }
        Ok(beaten)
    }

    /// Takes the next job for a claim, from the first of its queues that has a job: of the share
    /// whose turn it is, the job with the highest priority, and of these the oldest. Ends the jobs
    /// in front of that job that can no longer run. `open` has the places of the claims without a
    /// job.
    fn choose(&mut self, batch: &mut ClaimBatch<'_>, at: usize, open: &[usize]) -> Result<Option<Chosen>> {
        let claimant = batch.all[at].claimant;
        let mut placement = None;
        for queue in &*claimant.queues {
            let mut passed = PassedGroups::default();
            while let Some((bound, lane)) = self.lanes.first(queue, claimant, &mut passed, batch.now) {
                if batch.withdrawn >= MAX_WITHDRAWN {
                    self.arrived.jobs = true;
                    return Ok(None);
                }
                let first = match batch.ready.head(lane) {
                    LaneHead::Unread(_) => {
                        self.read_lanes(batch, lane, open)?;
                        continue;
                    }
                    LaneHead::Job(first) => first,
                    LaneHead::Empty => END,
                };
                if first != bound {
                    self.lanes.set_ready_from(lane, first);
                } else if let Some(block) = self.block_of(lane, batch.ready.first_locked(lane), batch.now) {
                    self.lanes.block(lane, block);
                } else if !self.fits_now(&mut placement, claimant, lane, batch.now) {
                    passed.pass();
                } else if let Some((position, job)) = batch.ready.take(lane) {
                    self.lanes.set_ready_from(lane, rest_of(batch.ready.head(lane)));
                    if let ReadyJob::Locked(locked) = &job
                        && self.withdraw(batch, locked)
                    {
                        continue;
                    }
                    self.lanes.charge((position, lane), claimant);
                    return Ok(Some(Chosen { queue: queue.clone(), lane, position, job }));
                }
            }
        }
        Ok(None)
    }

    /// Ends a ready job that can no longer run, and returns true. Returns false if the job can run.
    fn withdraw(&mut self, batch: &mut ClaimBatch<'_>, ready: &LockedJob) -> bool {
        let ended = if ready.has_plan {
            let Some(late) = job::expired(&ready.job, batch.now) else { return false };
            late
        } else {
            // The plan was deleted between the check at the retry and this claim.
            job::orphaned(&ready.job, batch.now)
        };
        self.put_job(Some(&ready.job), &ended);
        batch.withdrawn += 1;
        true
    }

    /// Gives a ready job to the claimant of a claim.
    fn take(&mut self, batch: &ClaimBatch<'_>, at: usize, queue: String, ready: &LockedJob) -> Claim {
        let ClaimRequest { claimant, now, start_timeout_ms } = batch.all[at];
        let hold = LeaseOptions { start_timeout_ms, visibility_ms: claimant.visibility_ms };
        let mut job = job::claimed(&ready.job, &claimant.holder, now, hold);
        self.budgets.reserve(&mut job);
        if let Some(key) = job.ojs.as_ref().and_then(|ojs| ojs.limit.as_deref()) {
            self.limits.begin(key, now);
        }
        self.put_job(Some(&ready.job), &job);
        self.claimed.add(&job);
        let lane = sql_types::lane(job.lane);
        if let Some(block) = self.limit_block(lane, batch.now) {
            self.lanes.block(lane, block);
        }
        let resources = self.lanes.resources_of(lane).cloned().map(Box::new);
        Claim { job, queue, input: String::new(), plan: String::new(), order: None, resources }
    }

    /// Removes the results of earlier attempts of the claimed jobs.
    fn forget_results(&mut self, claims: &[Option<Claim>]) -> Result<()> {
        let again = claims.iter().flatten().filter(|claim| claim.job.attempt > 1);
        let again: Vec<&str> = again.map(|claim| claim.job.job_id.as_str()).collect();
        if again.is_empty() {
            return Ok(());
        }
        self.session.run(query("DELETE FROM agq.results WHERE job_id = ANY ($1)").bind(&again))?;
        self.blobs.release(self.session, &[DocumentKind::JobBlobs], &again)
    }

    /// Sets `has_left` if locked jobs are left, because other nodes pass over locked jobs and have
    /// to claim again. Leaves `has_left` unset if no job was claimed, because two nodes would
    /// otherwise notify each other for ever.
    fn note_left(&mut self, claims: &[Option<Claim>], batch: &ClaimBatch<'_>) {
        // A claim that stopped at the bound has ended jobs, and jobs that can run may be behind the
        // ended jobs.
        if claims.iter().all(Option::is_none) && batch.withdrawn < MAX_WITHDRAWN {
            return;
        }
        for (lane, position, first) in batch.ready.left() {
            if self.block_of(lane, Some(first), batch.now).is_none() {
                self.has_left = true;
                self.ready.add(lane, position);
            }
        }
    }

    /// Returns true if a buffered change is that of a job that was ready, which a claim could take.
    fn has_changed_ready(&self) -> bool {
        let was_ready = |before: &Job| before.state == JobState::Available;
        self.job_writes.values().any(|one| one.before.as_ref().is_some_and(was_ready))
    }

    /// Returns the ready jobs among the new ones that are not written yet.
    fn new_ready_jobs(&self) -> impl Iterator<Item = &Job> {
        let is_ready = |job: &&Job| job.state == JobState::Available;
        let new = self.job_writes.values().filter(|one| one.before.is_none());
        new.map(|one| &one.after).filter(is_ready)
    }
}

/// Returns the position from which on a lane may have ready jobs.
fn rest_of(head: LaneHead) -> Position {
    match head {
        LaneHead::Job(position) | LaneHead::Unread(Some(position)) => position,
        LaneHead::Empty | LaneHead::Unread(None) => END,
    }
}
