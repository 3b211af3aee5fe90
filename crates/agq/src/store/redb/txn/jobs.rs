//! Changes of jobs in a write transaction: decisions of rules, and claims.

use std::collections::VecDeque;

use agenix_protocol::{ids::JobId, time::Timestamp};
use agenix_rules::{
    capability::Needs,
    job::{self, Job, LeaseOptions, RuleOutcome},
    worker::Worker,
};
use redb::Error;

use crate::store::{
    Claim, Claimant, DocumentKind, JobChange, JobRule, ReportedResults, RuleResult, StoredPlan,
    claim_index::PassedGroups,
    decisions::accepted,
    dedup::{check_only, revived},
    redb::{
        schema::{LaneKey, LaneTurn, Result, codec, ready_key},
        txn::{WriteTxn, lanes::MAX_HEADS},
    },
};

impl WriteTxn<'_> {
    pub(crate) fn decide(
        &mut self,
        job_id: &JobId,
        results: Option<&ReportedResults>,
        rule: &JobRule,
    ) -> Result<RuleResult<Option<JobChange>>> {
        let before = self.job(job_id)?;
        let outcome = accepted!(rule(before.as_ref()));
        let (RuleOutcome::Changed(mut next), Some(before)) = (outcome, before) else { return Ok(Ok(None)) };
        if let Some(kind) = revived(&before, &next) {
            let mut compared: Vec<Job> = Vec::new();
            for other in self.compared_with(kind)? {
                compared.extend(self.job(&other)?);
            }
            accepted!(check_only(job_id, &compared));
            self.put_document(DocumentKind::Unique, kind, job_id.as_str());
        }
        if let Some(results) = results {
            accepted!(self.check_blobs(&results.blobs)?);
            job::charged(&before, &mut next, &results.json);
            if let Some(needs) = results.needs_of_retry(&next) {
                next.lane = self.lane_with(before.lane, needs)?;
            }
        }
        self.put_job(Some(&before), &next)?;
        if let Some(results) = results {
            self.tables.results.insert(job_id.as_str(), results.json.as_str());
            self.set_blobs(&next, results)?;
        }
        Ok(Ok(Some(JobChange { before, after: *next })))
    }

    /// Returns the lane of the queue of `lane` whose jobs have `needs`.
    fn lane_with(&mut self, lane: u32, needs: &Needs) -> Result<u32> {
        let lanes = &mut self.cache.lanes;
        let queue = lanes.queue_of(lane).ok_or_else(|| missing("lane", &lane.to_string()))?.to_owned();
        Ok(lanes.number(LaneKey { queue, needs: needs.clone() }))
    }

    pub(crate) fn claim(
        &mut self,
        claimant: &Claimant,
        now: Timestamp,
        start_timeout_ms: u64,
    ) -> Result<Option<Claim>> {
        while !self.has_withdrawn_enough()
            && let Some((queue, job_id)) = self.next_for(claimant, now)?
        {
            // The worker was checked when the claimant arrived, and the claimant may have waited
            // since.
            let worker = self.tables.workers.record::<Worker>(&*claimant.holder)?;
            if worker.is_some_and(|worker| !worker.may_claim()) {
                return Ok(None);
            }
            let before = self.job(&job_id)?.ok_or_else(|| missing("job", job_id.as_str()))?;
            let plan = self.tables.plans.record::<StoredPlan>(before.plan_id.as_str())?;
            if self.withdraw(&before, plan.is_some(), now)? {
                continue;
            }
            let Some(plan) = plan else { continue };
            let hold = LeaseOptions { start_timeout_ms, visibility_ms: claimant.visibility_ms };
            let mut job = job::claimed(&before, &claimant.holder, now, hold);
            self.reserve(&mut job)?;
            self.enter_limit(&job, now)?;
            let (lane, rank, seq) = ready_key(&before);
            self.cache.lanes.charge(((rank, seq), lane), claimant);
            if before.attempt > 0 {
                // The results of an earlier attempt do not belong to this attempt.
                self.tables.results.remove(job_id.as_str());
                self.release_blobs(DocumentKind::JobBlobs, &job_id)?;
            }
            self.put_job(Some(&before), &job)?;
            let resources = self.cache.lanes.needs_of(job.lane).and_then(|needs| needs.resources.clone());
            let input = self.tables.inputs.get(job_id.as_str())?.map(|input| input.value().to_owned());
            let input = input.ok_or_else(|| missing("the input of job", job_id.as_str()))?;
            let queue = queue.to_owned();
            return Ok(Some(Claim { job, queue, input, plan: plan.json, order: plan.order, resources }));
        }
        Ok(None)
    }

    /// Returns the next job for a claimant, from the first queue that has a job: of the share whose
    /// turn it is, the job with the highest priority, and of these the oldest.
    fn next_for<'c>(&mut self, claimant: &'c Claimant, now: Timestamp) -> Result<Option<(&'c str, JobId)>> {
        let mut placement = None;
        for queue in &*claimant.queues {
            let mut passed = PassedGroups::default();
            while let Some((bound, lane)) = self.cache.lanes.next_for(queue, claimant, (&mut passed, now)) {
                let first = self.next_ready(lane)?;
                if first != Some(bound) {
                    self.cache.lanes.set_first_turn(lane, first);
                } else if let Some(block) = self.block_of(lane, now)? {
                    self.cache.lanes.block(lane, block);
                } else if !self.fits_now(&mut placement, claimant, lane, now)? {
                    passed.pass();
                } else {
                    let (_, job_id) = self.cache.lanes.first(lane).expect("its head was just looked for");
                    return Ok(Some((queue, job_id.clone())));
                }
            }
        }
        Ok(None)
    }

    fn next_ready(&mut self, lane: u32) -> Result<Option<LaneTurn>> {
        if self.cache.lanes.first(lane).is_none() {
            let (rank, seq) = self.cache.lanes.cursor(lane);
            let mut heads = VecDeque::new();
            for row in self.tables.ready.range((lane, rank, seq)..=(lane, u8::MAX, u64::MAX))?.take(MAX_HEADS)
            {
                let (turn, job_id) = row?;
                let (_, rank, seq) = turn.value();
                heads.push_back(((rank, seq), codec::job_id(job_id.value())?));
            }
            self.cache.lanes.set_cursor(lane, heads);
        }
        Ok(self.cache.lanes.first(lane).map(|(turn, _)| *turn))
    }

    pub(crate) fn remove_job(&mut self, job: &Job) -> Result<()> {
        let id = job.job_id.as_str();
        self.cache.lanes.adjust_total(job.lane, -1);
        self.count_in_queue(job, -1);
        self.forget_compared(job)?;
        self.tables.jobs.remove(id);
        self.tables.inputs.remove(id);
        self.tables.results.remove(id);
        self.release_blobs(DocumentKind::JobBlobs, &job.job_id)?;
        self.release_blobs(DocumentKind::JobInputs, &job.job_id)?;
        self.tables.action_jobs.remove((job.action_id.as_str(), job.index));
        self.tables.ended.remove((job.status() as u8, job.ended_at.unwrap_or_default().0, id));
        let totals = self.totals_mut();
        let now = &mut totals.now[job.status() as usize];
        *now = now.saturating_sub(1);
        Ok(())
    }
}

fn missing(record: &str, id: &str) -> Error {
    Error::Corrupted(format!("{record} {id} is in an index but not in its table"))
}

#[cfg(test)]
mod tests;
