//! Invariants: those that hold after every write, and those that hold when nothing is in progress.

use std::collections::BTreeMap;

use agenix_protocol::{ids::ActionId, request::Page, resp::Reply};
use agenix_rules::job::Job;

use crate::{
    simulation::{
        keys::{KeysVersion, read, readers},
        ledger::CheckResult,
        process::{SimulatedProcess, now},
        world::{PendingRequest, World},
    },
    store::JobStore,
};

impl World {
    /// Checks that indexes agree with records, and every job is as its last event has shown it.
    pub(super) fn check_store(&mut self) -> CheckResult {
        let Some(process) = &self.process else { return Ok(()) };
        if let Some(first) = process.store.inconsistencies().map_err(|error| error.to_string())?.first() {
            return Err(format!("the store is inconsistent: {first}"));
        }
        let jobs = process.store.jobs().map_err(|error| error.to_string())?;
        jobs.iter().try_for_each(|job| self.ledger.check_job(job))?;
        self.check_budget(&jobs)?;
        self.check_used_quantities()?;
        self.check_blobs()?;
        if !self.ledger.forgets && jobs.len() < self.ledger.jobs.len() {
            return Err(format!("there are {} jobs, and were {}", jobs.len(), self.ledger.jobs.len()));
        }
        Ok(())
    }

    pub(super) fn all_jobs(&self) -> Result<Vec<Job>, String> {
        let process = self.process.as_ref().ok_or("agq is dead")?;
        process.store.jobs().map_err(|error| error.to_string())
    }

    /// Checks that every acknowledged plan and action exists with the submitted content.
    pub(super) fn check_actions(&self) -> CheckResult {
        let Some(process) = &self.process else { return Ok(()) };
        let known = now(process.store.plans(Page { limit: usize::MAX, ..Page::default() }, None))?;
        for plan_id in &self.ledger.plans {
            let is_there = known.iter().any(|known| known.as_str() == plan_id);
            if !is_there && !self.ledger.unwanted_plans.contains(plan_id) {
                return Err(format!("plan {plan_id} was acknowledged and is gone"));
            }
        }
        if let Some(plan_id) = known.iter().find(|known| self.ledger.deleted.contains(known.as_str())) {
            return Err(format!("plan {plan_id} was deleted, and is there"));
        }
        let jobs = self.all_jobs()?;
        for (action_id, submitted) in &self.ledger.actions {
            let id = ActionId::new(action_id.as_str()).map_err(|error| error.to_string())?;
            match now(process.store.action(&id))? {
                None if submitted.is_there && !self.ledger.forgets => {
                    return Err(format!("action {action_id} was acknowledged and is gone"));
                }
                None => {}
                // A pruned action may have been submitted again.
                Some((action, _))
                    if action.is_open && self.ledger.closed.contains(action_id) && !self.ledger.forgets =>
                {
                    return Err(format!("action {action_id} was closed, and is open"));
                }
                Some((action, _counts)) => self.check_inputs(process, &jobs, &id, action.total_jobs)?,
            }
        }
        Ok(())
    }

    fn check_inputs(
        &self,
        process: &SimulatedProcess,
        jobs: &[Job],
        action_id: &ActionId,
        total: u64,
    ) -> CheckResult {
        let mut inputs = vec![None; usize::try_from(total).unwrap_or(usize::MAX)];
        for job in jobs.iter().filter(|job| job.action_id == *action_id) {
            let stored = now(process.store.job(&job.job_id))?.ok_or(format!("job {} is gone", job.job_id))?;
            let place = usize::try_from(job.index).unwrap_or(usize::MAX);
            *inputs.get_mut(place).ok_or(format!("{} has no place in its action", job.job_id))? =
                Some(stored.input);
        }
        self.ledger.check_action(action_id, &inputs, inputs.len())
    }

    pub(super) fn found_keys(&mut self) -> Result<KeysVersion, String> {
        let mut found = BTreeMap::new();
        for (key, words) in readers() {
            let reply = self.answer_now(&words)?;
            if let Reply::Error(line) = &reply {
                return Err(format!("{key} cannot be read: {line}"));
            }
            found.extend(read(key, &reply).map(|held| (key, held)));
        }
        Ok(found)
    }

    /// Executes a command that only reads, and returns its reply.
    fn answer_now(&mut self, words: &[bytes::Bytes]) -> Result<Reply, String> {
        let (number, user) = (self.number(), std::sync::Arc::clone(&self.user));
        let process = self.process.as_mut().ok_or("agq is dead")?;
        process.give(number, user, words)?;
        let reply = process.replies().into_iter().find(|(answered, _)| *answered == number);
        Ok(reply.ok_or("a read is not answered at once")?.1.reply)
    }

    /// Checks that queues are paused as acknowledged.
    pub(super) fn check_pauses(&mut self) -> CheckResult {
        let Some(process) = &self.process else { return Ok(()) };
        let paused = now(process.store.paused())?;
        for (queue, told) in &mut self.ledger.paused {
            let is_paused = paused.contains(queue);
            if told.is_some_and(|told| told != is_paused) {
                return Err(format!("queue {queue} is paused: {is_paused}; acknowledged was the opposite"));
            }
            *told = Some(is_paused);
        }
        Ok(())
    }

    /// Checks that no actor waits while there is work for it. Nothing may be in progress.
    pub(super) fn check_quiet(&mut self) -> CheckResult {
        self.write_all()?;
        self.check_waiting_claims()?;
        self.check_elements()
    }

    /// Checks that no acknowledged element is lost, and no actor waits while there are any.
    fn check_elements(&mut self) -> CheckResult {
        let words = ["LRANGE", "w", "0", "-1"].map(|word| bytes::Bytes::from_static(word.as_bytes()));
        let Reply::Array(items) = self.answer_now(&words)? else {
            return Err("the list that is waited for cannot be read".into());
        };
        let waits = self.ops.values().any(|op| matches!(op.asked, PendingRequest::Taken));
        if waits && !items.is_empty() {
            return Err(format!("a client waits while the list has {} elements", items.len()));
        }
        let elements = &mut self.elements;
        for item in &items {
            let Reply::Bulk(value) = item else { return Err(format!("{item:?} is no element")) };
            let value = String::from_utf8_lossy(value);
            if elements.taken.contains(&*value) || !elements.sent.contains(&*value) {
                return Err(format!("{value} is in the list, and was taken, or never pushed"));
            }
        }
        let there = |value: &String| {
            elements.taken.contains(value) || items.iter().any(|item| *item == Reply::bulk(value.clone()))
        };
        let lost = elements.acknowledged.iter().filter(|value| !there(value)).count();
        if lost > elements.in_doubt {
            return Err(format!(
                "{lost} elements are lost, of which {} were under way at a crash",
                elements.in_doubt
            ));
        }
        Ok(())
    }
}
