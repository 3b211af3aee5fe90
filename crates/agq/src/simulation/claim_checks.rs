//! Invariants of claims, against the model: no worker has more than it offers, no limit is
//! exceeded, claims are divided between shares, and no claim is empty while there is a job for it.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{documents::CPUS, ids::JobId};
use agenix_rules::job::Job;

use crate::{
    simulation::{
        budgets,
        claim_model::{ClaimConditions, fits},
        job_terms::{JobTerms, OFFERED},
        jobs_view::{JobsView, SentClaim, ViewedClaim},
        ledger::{CheckResult, ObservedJob},
        process::now,
        share_terms,
        world::{InFlightRequest, PendingRequest, World},
    },
    store::{JobStore, WorkerStore},
};

impl PendingRequest {
    /// Returns the actor whose worker the request may change.
    fn changed_worker(&self) -> Option<usize> {
        match self {
            Self::Registered(actor) | Self::Left(actor) | Self::Beat(actor) | Self::Told(actor) => {
                Some(*actor)
            }
            _ => None,
        }
    }
}

impl World {
    /// Records a request that was sent.
    pub(super) fn sent(&mut self, number: u64, request: InFlightRequest) {
        let changed = request.asked.changed_worker();
        self.model.changes_of_workers.extend(changed.map(|actor| (actor, number)));
        self.ops.insert(number, request);
    }

    pub(super) fn sent_claim(&self, actor: usize, words: &[&str]) -> Result<SentClaim, String> {
        let of_queue = |word: &&str| word.strip_prefix("queue:").unwrap_or(word).to_owned();
        let is_queue = |word: &&&str| word.ends_with("ready") || word.ends_with("other");
        let count = if words[0] == "JOB.CLAIM" { words[3].parse().unwrap_or(1) } else { 1 };
        let is_changing = self.ops.values().any(|op| op.asked.changed_worker() == Some(actor));
        Ok(SentClaim {
            actor,
            queues: words.iter().filter(is_queue).map(of_queue).collect(),
            count,
            waits: words[0] != "RPOP",
            at_ms: self.time.wall().0,
            takes_jobs: self.takes_jobs(actor)? && !is_changing,
        })
    }

    /// Returns true if the worker of an actor takes jobs, or if the actor has no worker.
    fn takes_jobs(&self, actor: usize) -> Result<bool, String> {
        let Some(worker_id) = &self.actors[actor].worker_id else { return Ok(true) };
        let process = self.process.as_ref().ok_or("agq is dead")?;
        Ok(now(process.store.worker(worker_id))?.is_some_and(|worker| worker.takes_jobs()))
    }

    fn worker_of(&self, holder: &str) -> Option<usize> {
        self.actors.iter().position(|actor| actor.worker_id.is_some() && actor.holder() == holder)
    }

    fn conditions(&self) -> ClaimConditions<'_> {
        ClaimConditions {
            has_sandboxes: self.ledger.has_sandboxes,
            unwanted_plans: &self.ledger.unwanted_plans,
            budget: self.budgets.get(budgets::NAME).copied().flatten(),
            timeout_ms: self.settings.job_timeout_ms,
        }
    }

    /// Records an event of a job, and checks it against all earlier ones.
    pub(super) fn observe(&mut self, seen: &ObservedJob) -> CheckResult {
        let before = self.ledger.jobs.get(&seen.job_id).map(|before| before.state.clone());
        let process = self.process.as_ref().ok_or("agq is dead")?;
        let job_id = JobId::new(seen.job_id.as_str()).map_err(|error| error.to_string())?;
        let record = now(process.store.job_record(&job_id))?;
        if let Some(job) = &record {
            self.learn_terms(job);
        }
        let is_claim = before.as_deref() == Some("available") && seen.state == "active";
        // The record may be of a later claim in the same batch.
        let started_at = record.filter(|job| job.attempt == seen.attempt).and_then(|job| job.started_at);
        let started_at = started_at.map(|at| at.0);
        if is_claim {
            self.check_shares_of(seen, started_at)?;
        }
        if before.as_deref() == Some("active") && seen.state != "active" {
            self.record_end(seen);
        }
        self.ledger.record_event(seen.clone())?;
        if let Some(batch) = &mut self.model.batch {
            batch.change(seen);
        }
        if is_claim { self.check_start(seen, started_at) } else { Ok(()) }
    }

    fn learn_terms(&mut self, job: &Job) {
        if self.model.terms.contains_key(job.job_id.as_str()) {
            return;
        }
        let Some(action) = self.ledger.actions.get(job.action_id.as_str()) else { return };
        let Some(plan) = self.ledger.plan_documents.get(&action.plan_id) else { return };
        let input = usize::try_from(job.index).ok().and_then(|at| action.inputs.get(at));
        let terms = input.and_then(|input| JobTerms::of(&action.json, plan, input));
        self.model.terms.extend(terms.map(|terms| (job.job_id.to_string(), terms)));
    }

    fn record_end(&mut self, job: &ObservedJob) {
        let Some(terms) = self.model.terms.get(&job.job_id) else { return };
        let whole = self.conditions().whole_charge(terms);
        self.model.charges.ended(&job.job_id, &job.state, whole);
    }

    /// Checks that the quantities and the limit of a job, and the budget, permit its claim.
    fn check_start(&mut self, job: &ObservedJob, started_at: Option<u64>) -> CheckResult {
        let view = JobsView::of(&self.ledger.jobs);
        let model = &mut self.model;
        let (Some(terms), Some(holder)) = (model.terms.get(&job.job_id), &job.holder) else { return Ok(()) };
        let at = self.actors.iter().position(|actor| actor.worker_id.is_some() && actor.holder() == *holder);
        let (used, offered) = (model.used_by(&view, holder), at.map_or([0, 0], |at| OFFERED[at]));
        if !fits(offered, used, terms.wanted) {
            return Err(format!("the jobs of {holder} use {used:?} with {job:?}, and it offers {offered:?}"));
        }
        let Some(limit) = terms.limit.clone() else { return self.check_running_of_budget(&view) };
        let running = model.running(&view, &limit);
        if limit.max_running.is_some_and(|most| running > most) {
            return Err(format!("{running} jobs of {limit:?} run with {job:?}"));
        }
        model.starts.record(&limit, (&job.job_id, job.attempt), started_at)?;
        self.check_running_of_budget(&view)
    }

    fn check_running_of_budget(&self, view: &JobsView) -> CheckResult {
        let most = self.conditions().budget.and_then(|budget| budget.running);
        let running = self.model.running_of_all(view);
        if most.is_some_and(|most| running > most) {
            return Err(format!("{running} jobs of a budget run, which permits {most:?}"));
        }
        Ok(())
    }

    /// Checks that a claim takes a job of the share whose turn it is. The event of the claim is not
    /// recorded yet.
    fn check_shares_of(&mut self, job: &ObservedJob, started_at: Option<u64>) -> CheckResult {
        let (Some(terms), Some(holder)) = (self.model.terms.get(&job.job_id), &job.holder) else {
            return Ok(());
        };
        let (worker, queues) = (self.worker_of(holder), vec![terms.queue.clone()]);
        let class = worker.map_or_else(|| "connection".to_owned(), |_| holder.clone());
        let claim = ViewedClaim { worker, holder: holder.clone(), queues, at_ms: started_at };
        let (view, conditions) = (JobsView::of(&self.ledger.jobs), self.conditions());
        let claimable = self.model.claimable((&view, &conditions), &claim);
        let weight = |terms: &JobTerms| (terms.share.clone(), share_terms::weight_of(terms.share.as_deref()));
        let weights: BTreeMap<_, _> =
            claimable.map(|(_, terms)| weight(terms)).chain([weight(terms)]).collect();
        let (served, queue) = (terms.share.clone(), terms.queue.clone());
        self.model.shares.record(&(class, queue), &served, &weights)
    }

    /// Begins the batch that agq is about to write.
    pub(super) fn open_batch(&mut self) {
        self.model.batch = Some(JobsView::of(&self.ledger.jobs));
        self.model.paused.clone_from(&self.ledger.paused);
    }

    /// Checks that the claim `number`, which got `got` jobs, could get no further job at any time
    /// of its batch.
    pub(super) fn check_work_is_conserved(&self, number: u64, sent: &SentClaim, got: usize) -> CheckResult {
        // A claim that waited gets one job.
        let is_complete = if sent.waits { got < 2 || got == sent.count } else { got == sent.count };
        let Some(batch) = self.model.batch.as_ref().filter(|_| !is_complete) else { return Ok(()) };
        let was_changed = self.model.changes_of_workers.get(&sent.actor).is_some_and(|last| *last > number);
        if was_changed || !sent.takes_jobs || !self.takes_jobs(sent.actor)? {
            return Ok(());
        }
        let Some(job) = self.claimable_by(batch, sent, Some(sent.at_ms)) else { return Ok(()) };
        Err(format!("actor {} got {got} jobs of {} while {job}", sent.actor, sent.count))
    }

    /// Checks that no claim waits while there is a job for it. Nothing may be in progress.
    pub(super) fn check_waiting_claims(&self) -> CheckResult {
        let view = JobsView::of(&self.ledger.jobs);
        for (number, op) in &self.ops {
            let PendingRequest::Claimed(sent) = &op.asked else { continue };
            if !self.takes_jobs(sent.actor)? {
                continue;
            }
            // The reaper wakes the claims that wait for a rate.
            if let Some(job) = self.claimable_by(&view, sent, None) {
                return Err(format!("actor {} sleeps (command {number}) while {job}", sent.actor));
            }
        }
        Ok(())
    }

    /// Returns a text about a job of an unpaused queue that a claim could certainly take.
    fn claimable_by(&self, view: &JobsView, sent: &SentClaim, at_ms: Option<u64>) -> Option<String> {
        let actor = &self.actors[sent.actor];
        // A reply of the same batch may have changed the state of a queue.
        let states = [&self.ledger.paused, &self.model.paused];
        let is_open = |queue: &&String| {
            states.iter().all(|paused| !matches!(paused.get(*queue), Some(None | Some(true))))
        };
        let claim = ViewedClaim {
            worker: actor.worker_id.is_some().then_some(sent.actor),
            holder: actor.holder(),
            queues: sent.queues.iter().filter(is_open).cloned().collect(),
            at_ms,
        };
        let conditions = self.conditions();
        let (job_id, terms) = self.model.claimable((view, &conditions), &claim).next()?;
        Some(format!("queue {} has a job for it: {job_id} {terms:?}", terms.queue))
    }

    /// Checks that agq shows the quantities that the jobs of each holder use.
    pub(super) fn check_used_quantities(&self) -> CheckResult {
        let Some(process) = &self.process else { return Ok(()) };
        let (view, shown) = (JobsView::of(&self.ledger.jobs), now(process.store.used_resources(None))?);
        let holders = view.held.iter().map(|(_, holder)| holder);
        for holder in shown.keys().chain(holders).collect::<BTreeSet<_>>() {
            let used = self.model.used_by(&view, holder);
            let of_agq = shown.get(holder).map_or([0, 0], |of| [of.get(CPUS), of.get("gpus")]);
            if used != of_agq {
                return Err(format!("the jobs of {holder} use {used:?}, and agq shows {of_agq:?}"));
            }
        }
        Ok(())
    }

    /// Compares the model with the jobs that agq has after a start. A claim that was not written
    /// has not happened, and a claim that no event has shown may have been written.
    pub(super) fn restart_model(&mut self, jobs: &[Job]) {
        jobs.iter().for_each(|job| self.learn_terms(job));
        self.model.batch = None;
        self.model.shares.restart();
        self.model.starts.restart(jobs);
        for job in jobs {
            let Some(terms) = self.model.terms.get(job.job_id.as_str()) else { continue };
            let known = self.ledger.jobs.get(job.job_id.as_str());
            let unseen = job.attempt.saturating_sub(known.map_or(0, |known| known.attempt));
            let was_active = known.is_some_and(|known| known.state == "active");
            let whole = self.conditions().whole_charge(terms);
            for _run in 0..unseen + u32::from(was_active) {
                self.model.charges.add(whole);
            }
        }
    }
}
