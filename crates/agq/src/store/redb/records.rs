//! Writes on the records, inside a batch.

use agenix_protocol::{
    documents::Status,
    ids::{JobId, WorkerId},
    time::Timestamp,
};
use agenix_rules::{
    action::{Action, Tally},
    job::{self, Job, NewJob, Outcome},
    worker::Worker,
};
use redb::{Error, ReadableTable};

use super::{
    batch::Batch,
    codec::{decode, encode},
    lanes::LaneKey,
};
use crate::store::{Added, Claim, Claimant, JobRule, NewAction, Ruled, StoredPlan, WorkerRule};

impl Batch<'_> {
    pub(super) fn add_plan(&mut self, plan: &StoredPlan) -> Result<bool, Error> {
        if self.plans.get(plan.plan_id.as_str())?.is_some() {
            return Ok(false);
        }
        self.plans.insert(plan.plan_id.as_str(), encode(plan)?.as_slice())?;
        Ok(true)
    }

    pub(super) fn add_action(&mut self, new: &NewAction) -> Result<Added, Error> {
        let known = self.actions.get(new.action.action_id.as_str())?.map(|record| decode(record.value()));
        if let Some(known) = known.transpose()? {
            return Ok(if self.is_same(&known, new)? { Added::Same } else { Added::Differs });
        }
        let action_id = &new.action.action_id;
        self.actions.insert(action_id.as_str(), encode(&new.action)?.as_slice())?;
        self.put_tally(action_id, Tally::of_new(new.action.total_jobs));
        let lane = self.lanes.number(LaneKey { queue: new.queue.clone(), needs: new.needs.clone() });
        for (index, NewJob { job_id, input }) in (0u64..).zip(&new.jobs) {
            let seq = self.lanes.take_seq();
            self.action_jobs.insert((action_id.as_str(), index), job_id.as_str())?;
            self.inputs.insert(job_id.as_str(), &**input)?;
            let job = Job::new(job_id.clone(), &new.action, index, lane, seq);
            self.put_job(None, &Job { max_retries: new.max_retries, timeout_ms: new.timeout_ms, ..job })?;
        }
        Ok(Added::New)
    }

    /// Whether the action that is there came from the same submission.
    fn is_same(&self, known: &Action, new: &NewAction) -> Result<bool, Error> {
        if (&known.plan_id, known.total_jobs) != (&new.action.plan_id, new.action.total_jobs) {
            return Ok(false);
        }
        for (index, job) in (0u64..).zip(&new.jobs) {
            let stored = self.action_jobs.get((known.action_id.as_str(), index))?;
            let Some(stored) = stored else { return Ok(false) };
            let input = self.inputs.get(stored.value())?;
            if input.is_none_or(|input| input.value() != &*job.input) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn decide(
        &mut self,
        job_id: &JobId,
        results: Option<&str>,
        rule: &JobRule,
    ) -> Result<Ruled<()>, Error> {
        let before = self.job(job_id)?;
        let next = match rule(before.as_ref()) {
            Err(rejection) => return Ok(Err(rejection)),
            Ok(Outcome::Unchanged) => return Ok(Ok(())),
            Ok(Outcome::Changed(next)) => next,
        };
        self.put_job(before.as_ref(), &next)?;
        if let Some(results) = results {
            self.results.insert(job_id.as_str(), results)?;
        }
        Ok(Ok(()))
    }

    pub(super) fn claim(
        &mut self,
        claimants: &[Claimant],
        now: Timestamp,
    ) -> Result<Vec<Option<Claim>>, Error> {
        claimants.iter().map(|claimant| self.claim_one(claimant, now)).collect()
    }

    fn claim_one(&mut self, claimant: &Claimant, now: Timestamp) -> Result<Option<Claim>, Error> {
        let Some(job_id) = self.oldest_for(claimant)? else { return Ok(None) };
        let before = self.job(&job_id)?.ok_or_else(|| missing("job", job_id.as_str()))?;
        let job = job::claimed(&before, &claimant.holder, now);
        if before.attempt > 0 {
            // What an earlier attempt left is not the result of this one.
            self.results.remove(job_id.as_str())?;
        }
        self.put_job(Some(&before), &job)?;
        let input = self.inputs.get(job_id.as_str())?.map(|input| input.value().to_owned());
        let input = input.ok_or_else(|| missing("the input of job", job_id.as_str()))?;
        let plan = self.plans.get(job.plan_id.as_str())?.map(|plan| decode::<StoredPlan>(plan.value()));
        let plan = plan.ok_or_else(|| missing("plan", job.plan_id.as_str()))??.json;
        Ok(Some(Claim { job, input, plan }))
    }

    /// The oldest ready job among the lanes that the claimant can run.
    fn oldest_for(&self, claimant: &Claimant) -> Result<Option<JobId>, Error> {
        let mut oldest: Option<(u64, JobId)> = None;
        for (lane, key) in self.lanes.with_jobs() {
            if !claimant.abilities.cover(&key.needs) {
                continue;
            }
            let Some(head) = self.ready.range((lane, 0)..=(lane, u64::MAX))?.next() else { continue };
            let (place, job_id) = head?;
            let (_, seq) = place.value();
            if oldest.as_ref().is_none_or(|(first, _)| seq < *first) {
                let job_id =
                    JobId::new(job_id.value()).map_err(|error| Error::Corrupted(error.to_string()))?;
                oldest = Some((seq, job_id));
            }
        }
        Ok(oldest.map(|(_, job_id)| job_id))
    }

    pub(super) fn decide_worker(
        &mut self,
        worker_id: &WorkerId,
        rule: &WorkerRule,
    ) -> Result<Ruled<()>, Error> {
        let before = self
            .workers
            .get(worker_id.as_str())?
            .map(|record| decode::<Worker>(record.value()))
            .transpose()?;
        match rule(before.as_ref()) {
            Err(rejection) => return Ok(Err(rejection)),
            Ok(None) => {}
            Ok(Some(worker)) => {
                self.workers.insert(worker_id.as_str(), encode(&worker)?.as_slice())?;
            }
        }
        Ok(Ok(()))
    }

    pub(super) fn remove_worker(&mut self, worker_id: &WorkerId) -> Result<bool, Error> {
        Ok(self.workers.remove(worker_id.as_str())?.is_some())
    }
}

fn missing(what: &str, id: &str) -> Error {
    Error::Corrupted(format!("{what} {id} is in an index but not in its table"))
}

/// Whether a job is to be listed.
pub(super) fn is_wanted(job: &Job, status: Option<Status>) -> bool {
    status.is_none_or(|status| job.status() == status)
}
