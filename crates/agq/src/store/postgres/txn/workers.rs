//! Workers and paused queues in a write transaction.

use agenix_protocol::{ids::WorkerId, time::Timestamp};
use agenix_rules::worker::{Liveness, Worker};
use sqlx::{Error, Result, Row, query};

use crate::store::{
    RuleResult, WorkerRule,
    decisions::accepted,
    postgres::{
        codec::{decode, encode},
        txn::PgTxn,
    },
};

impl PgTxn<'_> {
    /// Locks and returns a worker. No other transaction writes the worker until this transaction
    /// ends.
    fn worker(&self, worker_id: &WorkerId) -> Result<Option<Worker>> {
        let sql = "SELECT record FROM agq.workers WHERE worker_id = $1 FOR UPDATE";
        let row = self.session.row(query(sql).bind(worker_id.as_str()))?;
        row.map(|row| decode(row.try_get(0)?)).transpose()
    }

    pub(crate) fn decide_worker(
        &mut self,
        worker_id: &WorkerId,
        registration: Option<&str>,
        rule: &WorkerRule,
    ) -> Result<RuleResult<()>> {
        let known = self.worker(worker_id)?;
        let Some(worker) = accepted!(rule(known.as_ref())) else { return Ok(Ok(())) };
        let sql = if known.is_some() {
            "UPDATE agq.workers SET record = $2 WHERE worker_id = $1"
        } else {
            "INSERT INTO agq.workers (worker_id, record) VALUES ($1, $2) ON CONFLICT DO NOTHING"
        };
        if self.session.run(query(sql).bind(worker_id.as_str()).bind(encode(&worker)?))? == 0 {
            // Another node has added the worker after the query. The rule of the retry sees the
            // worker.
            return Err(Error::RowNotFound);
        }
        if let Some(registration) = registration {
            let sql = "INSERT INTO agq.registrations (worker_id, json) VALUES ($1, $2) \
                 ON CONFLICT (worker_id) DO UPDATE SET json = EXCLUDED.json";
            self.session.run(query(sql).bind(worker_id.as_str()).bind(registration))?;
        }
        Ok(Ok(()))
    }

    pub(crate) fn forget_worker(&mut self, worker_id: &WorkerId, seen_before: Timestamp) -> Result<bool> {
        let is_old = |worker: Worker| worker.liveness == Liveness::Dead && worker.last_seen_at < seen_before;
        // The worker may have registered again after the caller read its record.
        if self.worker(worker_id)?.is_some_and(is_old) { self.remove_worker(worker_id) } else { Ok(false) }
    }

    pub(crate) fn remove_worker(&mut self, worker_id: &WorkerId) -> Result<bool> {
        let id = worker_id.as_str();
        self.session.run(query("DELETE FROM agq.registrations WHERE worker_id = $1").bind(id))?;
        Ok(self.session.run(query("DELETE FROM agq.workers WHERE worker_id = $1").bind(id))? > 0)
    }

    pub(crate) fn set_paused(&mut self, queue: &str, is_paused: bool) -> Result<()> {
        let sql = if is_paused {
            "INSERT INTO agq.paused (queue) VALUES ($1) ON CONFLICT DO NOTHING"
        } else {
            self.arrived.jobs = true;
            self.any_ready();
            "DELETE FROM agq.paused WHERE queue = $1"
        };
        self.session.run(query(sql).bind(queue)).map(drop)
    }
}
