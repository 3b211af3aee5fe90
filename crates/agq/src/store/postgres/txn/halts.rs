//! Halt policies in a write transaction: an action halts with the job whose end meets its policy.

use std::collections::{BTreeMap, HashMap};

use agenix_protocol::{documents::Status, ids::ActionId, time::Timestamp};
use agenix_rules::action::{
    Action, JobCounts,
    halt::{self, RemainingWork},
};
use sqlx::{Result, Row, query};

use crate::store::{
    DocumentKind,
    postgres::{
        queries::action_of,
        sql_types,
        txn::{PgTxn, locked_rows::put},
    },
};

const DISARM: &str = "DELETE FROM agq.notes WHERE kind = $1 AND id = ANY ($2)";

impl PgTxn<'_> {
    /// Marks the new actions that have halt policies.
    pub(crate) fn arm<'a>(&mut self, new: impl Iterator<Item = &'a Action>) {
        for action in new.filter(|action| action.halt.is_some()) {
            self.documents.put(DocumentKind::Halt, action.action_id.to_string(), "{}".to_owned());
        }
    }

    /// Halts those actions whose policies the ends of their jobs meet now. `ended` has the actions
    /// with policies of which jobs have ended, and the times of these ends.
    pub(crate) fn halt_met(&mut self, ended: &BTreeMap<ActionId, Timestamp>) -> Result<()> {
        if ended.is_empty() {
            return Ok(());
        }
        let actions = self.actions(&ended.keys().map(ActionId::as_str).collect())?;
        // The job counts are read under the locks of the actions. Otherwise, nodes that end jobs at
        // the same time would not see each other's changes.
        let mut job_counts = self.job_counts_of(ended)?;
        let mut halted = Vec::new();
        for action in actions {
            let mut counts = job_counts.remove(action.action_id.as_str()).unwrap_or_default();
            let unwritten = self.deltas.counts(&action.action_id).jobs;
            for (count, by) in counts.jobs.iter_mut().zip(unwritten) {
                *count = count.saturating_add_signed(by);
            }
            let now = ended.get(&action.action_id).copied().unwrap_or_default();
            if let Some(action) = halt::halted(&action, &counts, now) {
                self.put_action(&action)?;
                halted.push(action.action_id.to_string());
            }
        }
        if halted.is_empty() {
            return Ok(());
        }
        self.arrived.halts = true;
        self.session.run(query(DISARM).bind(DocumentKind::Halt.as_str()).bind(&halted))?;
        let texts = vec!["{}".to_owned(); halted.len()];
        put(self.session, DocumentKind::Halted, (halted, texts))
    }

    fn job_counts_of(&self, ended: &BTreeMap<ActionId, Timestamp>) -> Result<HashMap<String, JobCounts>> {
        let sql = "SELECT action_id, sum(completed)::bigint, sum(failed)::bigint, sum(dead)::bigint \
             FROM agq.tallies WHERE action_id = ANY ($1) GROUP BY action_id";
        let ids: Vec<&str> = ended.keys().map(ActionId::as_str).collect();
        let mut job_counts = HashMap::new();
        for row in self.session.rows(query(sql).bind(ids))? {
            let mut counts = JobCounts::default();
            for (at, status) in [Status::Completed, Status::Failed, Status::Dead].into_iter().enumerate() {
                counts.jobs[status as usize] = sql_types::count(row.try_get(1 + at)?);
            }
            job_counts.insert(row.try_get(0)?, counts);
        }
        Ok(job_counts)
    }

    pub(crate) fn complete_halt(&mut self, action_id: &ActionId, now: Timestamp) -> Result<()> {
        let row =
            self.session.row(query(crate::store::postgres::queries::ACTION).bind(action_id.as_str()))?;
        let found = row.as_ref().map(action_of).transpose()?;
        if found.is_none_or(|(action, counts)| {
            halt::remaining_work(&action, &counts, now) == RemainingWork::Nothing
        }) {
            let ids = vec![action_id.as_str()];
            self.session.run(query(DISARM).bind(DocumentKind::Halted.as_str()).bind(ids))?;
            // Claims have passed over the jobs of the action.
            self.any_ready();
        }
        Ok(())
    }
}
