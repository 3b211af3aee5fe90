//! Halts inside a batch: an action halts with the job whose end meets its policy.

use agenix_protocol::{ids::ActionId, time::Timestamp};
use agenix_rules::{
    action::{Action, halt},
    job::{self, Job, RuleOutcome},
};

use crate::store::{
    DocumentKind, MAX_WITHDRAWN,
    redb::{schema::Result, txn::WriteTxn},
};

impl WriteTxn<'_> {
    pub(crate) fn arm(&mut self, action: &Action) {
        if action.halt.is_some() {
            self.put_document(DocumentKind::Halt, action.action_id.as_str(), "{}");
            self.cache.armed.insert(action.action_id.to_string());
        }
    }

    /// Halts an action if its ended jobs meet its policy.
    pub(crate) fn halt_if_met(&mut self, action_id: &ActionId, now: Timestamp) -> Result<()> {
        let id = action_id.as_str();
        if !self.cache.armed.contains(id) {
            return Ok(());
        }
        let Some(action) = self.action(action_id)? else { return Ok(()) };
        let Some(halted) = halt::halted(&action, &self.counts(action_id)?, now) else { return Ok(()) };
        self.put_action(&halted)?;
        self.disarm(id);
        self.put_document(DocumentKind::Halted, id, "{}");
        self.cache.halted.insert(id.to_owned());
        self.arrived.halts = true;
        Ok(())
    }

    /// Ends a ready job that can no longer run: its action is halted, its plan was deleted, or it
    /// is past its expiry. Returns false if the job can run.
    pub(crate) fn withdraw(&mut self, job: &Job, has_plan: bool, now: Timestamp) -> Result<bool> {
        let ended = if self.cache.halted.contains(job.action_id.as_str()) {
            match job::cancelled_unclaimed(job, now) {
                RuleOutcome::Changed(cancelled) => Some(*cancelled),
                RuleOutcome::Unchanged => None,
            }
        } else if has_plan {
            let Some(late) = job::expired(job, now) else { return Ok(false) };
            Some(late)
        } else {
            // The plan was deleted between the check of a retry and this claim.
            Some(job::orphaned(job, now))
        };
        if let Some(ended) = ended {
            self.put_job(Some(job), &ended)?;
        }
        self.withdrawn += 1;
        Ok(true)
    }

    /// Returns true if the claims of this batch have ended [`MAX_WITHDRAWN`] jobs.
    pub(crate) fn has_withdrawn_enough(&mut self) -> bool {
        let is_enough = self.withdrawn >= MAX_WITHDRAWN;
        self.arrived.jobs |= is_enough;
        is_enough
    }

    pub(crate) fn complete_halt(&mut self, action_id: &ActionId, now: Timestamp) -> Result<()> {
        let action = self.action(action_id)?;
        let counts = self.counts(action_id)?;
        if action
            .is_none_or(|action| halt::remaining_work(&action, &counts, now) == halt::RemainingWork::Nothing)
        {
            self.forget_halt(action_id.as_str());
        }
        Ok(())
    }

    /// Removes halt policy and halted mark of an action that is removed, or whose halt is complete.
    pub(crate) fn forget_halt(&mut self, id: &str) {
        self.disarm(id);
        if self.cache.halted.remove(id) {
            self.tables.documents.remove((DocumentKind::Halted.as_str(), id));
        }
    }

    fn disarm(&mut self, id: &str) {
        if self.cache.armed.remove(id) {
            self.tables.documents.remove((DocumentKind::Halt.as_str(), id));
        }
    }
}
