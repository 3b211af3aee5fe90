//! Documents in a write transaction, with those that the store itself uses: limits, and the first
//! jobs of kinds.

use std::collections::{BTreeSet, HashMap};

use agenix_protocol::ids::JobId;
use agenix_rules::{
    job::{Job, JobState, NewJob},
    limit::{Limit, LimitTerms},
};
use sqlx::{Error, Result, Row, postgres::PgRow, query};

use crate::store::{
    DocumentChange, DocumentKind, DocumentRule, RuleResult,
    claim_index::Constraint,
    decisions::accepted,
    postgres::{
        connection::{DatabaseSession, Param, Statement},
        txn::{
            PgTxn,
            held_rows::{DocumentWrites, HeldRows, OnLocked, put},
        },
    },
};

/// Returns the name by which a transaction locks a document.
pub(crate) fn document_name(kind: DocumentKind, id: &str) -> String {
    format!("note {} {id}", kind.as_str())
}

/// Limits that this transaction has locked, and jobs under them that no longer run.
pub(crate) struct HeldLimits {
    rows: HeldRows<Limit>,
    /// Keys of limits whose jobs no longer run.
    left: Vec<String>,
}

impl Default for HeldLimits {
    fn default() -> Self {
        Self { rows: HeldRows::new(DocumentKind::Limit), left: Vec::new() }
    }
}

impl HeldLimits {
    pub(crate) fn has_passed_over(&self) -> bool {
        self.rows.has_passed_over
    }

    /// Records the limit of a job that no longer runs.
    pub(crate) fn note(&mut self, before: Option<&Job>, job: &Job) {
        let was_active = before.is_some_and(|before| before.state == JobState::Active);
        let key = job.ojs.as_ref().and_then(|ojs| ojs.limit.as_ref());
        self.left.extend(key.filter(|_| was_active && job.state != JobState::Active).cloned());
    }

    /// Returns true if a job under a limit has stopped running since the latest write.
    pub(crate) fn has_room(&self) -> bool {
        !self.left.is_empty()
    }

    /// Locks `keys`, and the limits under which jobs no longer run.
    pub(crate) fn hold_with_left(
        &mut self,
        session: &DatabaseSession,
        keys: Vec<String>,
        on_locked: OnLocked,
    ) -> Result<()> {
        let left = self.left.clone();
        self.rows.hold(session, keys.into_iter().chain(left), on_locked)
    }

    /// Returns a limit that this transaction has locked.
    pub(crate) fn get(&self, key: &str) -> Option<&Limit> {
        self.rows.get(key)
    }

    pub(crate) fn change(&mut self, key: &str, change: impl FnOnce(Limit) -> Limit) {
        self.rows.change(key, |limit| change(*limit));
    }

    /// Replaces a locked limit if `json` is its new document.
    fn replace(&mut self, kind: DocumentKind, key: &str, json: &str) {
        self.rows.replace(kind, key, json);
    }

    /// Gives back the capacity of jobs that no longer run, and locks those of `free` that no other
    /// transaction holds at this moment.
    pub(crate) fn settle_and_hold_free(
        &mut self,
        session: &DatabaseSession,
        on_locked: OnLocked,
        free: BTreeSet<String>,
    ) -> Result<()> {
        let left = std::mem::take(&mut self.left);
        self.rows.hold_with_free(session, left.iter().cloned(), on_locked, free)?;
        left.iter().for_each(|key| self.change(key, Limit::ended));
        Ok(())
    }

    /// Gives back the capacity of jobs that no longer run.
    pub(crate) fn settle(&mut self, session: &DatabaseSession, on_locked: OnLocked) -> Result<()> {
        self.settle_and_hold_free(session, on_locked, BTreeSet::new())
    }

    /// Moves the changed limits to `writes`.
    pub(crate) fn write(
        &mut self,
        session: &DatabaseSession,
        on_locked: OnLocked,
        writes: &mut DocumentWrites,
    ) -> Result<()> {
        self.settle(session, on_locked)?;
        self.rows.take_changed(writes);
        Ok(())
    }
}

/// Query for the first jobs of kinds.
pub(crate) const FIRSTS: Statement = Statement {
    name: "agq_firsts",
    sql: "SELECT id, json FROM agq.notes WHERE kind = 'unique' AND id = ANY ($1::text[])",
};

pub(crate) fn of_kinds(keys: &BTreeSet<&str>) -> Vec<Param> {
    vec![Param::texts(keys.iter().copied())]
}

/// Reads the first jobs of kinds.
pub(crate) fn firsts_in(rows: &[PgRow]) -> Result<HashMap<String, JobId>> {
    let first = |row: &PgRow| {
        let job_id = JobId::new(row.try_get::<String, _>(1)?);
        Ok((row.try_get(0)?, job_id.map_err(|error| Error::Decode(Box::new(error)))?))
    };
    rows.iter().map(first).collect()
}

pub(crate) fn limits_of(jobs: &[NewJob]) -> impl Iterator<Item = (String, LimitTerms)> {
    jobs.iter().filter_map(|job| {
        let own = job.own.as_ref()?;
        Some((own.terms.ojs.as_ref()?.limit.clone()?, own.limit?))
    })
}

impl PgTxn<'_> {
    pub(crate) fn decide_document(
        &mut self,
        kind: DocumentKind,
        id: &str,
        rule: &DocumentRule,
    ) -> Result<RuleResult<()>> {
        let sql = "SELECT json FROM agq.notes WHERE kind = $1 AND id = $2 FOR UPDATE";
        let known = self.session.row(query(sql).bind(kind.as_str()).bind(id))?;
        let known = known.map(|row| row.try_get::<String, _>(0)).transpose()?;
        let change = accepted!(rule(known.as_deref()));
        self.change_document(kind, id, &change).map(Ok)
    }

    pub(crate) fn change_document(
        &mut self,
        kind: DocumentKind,
        id: &str,
        change: &DocumentChange,
    ) -> Result<()> {
        self.unblock_all_of(kind, id);
        match change {
            DocumentChange::Keep => Ok(()),
            DocumentChange::Put(json) => {
                self.limits.replace(kind, id, json);
                self.budgets.replace(kind, id, json);
                put(self.session, kind, (vec![id.to_owned()], vec![json.clone()]))
            }
            DocumentChange::Remove => {
                let sql = "DELETE FROM agq.notes WHERE kind = $1 AND id = $2";
                self.session.run(query(sql).bind(kind.as_str()).bind(id)).map(drop)
            }
        }
    }

    /// Lets claims look again at the lanes that a document blocks, if it is that of a limit or a
    /// budget.
    fn unblock_all_of(&mut self, kind: DocumentKind, id: &str) {
        match kind {
            DocumentKind::Limit => self.lanes.unblock_all_of(Constraint::Limit, id),
            DocumentKind::Budget => self.lanes.unblock_all_of(Constraint::Budget, id),
            _ => {}
        }
    }

    /// Returns whether the transaction may wait for limits: not if it holds budgets, which are
    /// locked after limits.
    pub(crate) fn on_locked_limits(&self) -> OnLocked {
        if self.budgets.is_empty() { OnLocked::Wait } else { OnLocked::Fail }
    }

    /// Returns the first jobs of the kinds `keys`, as far as there are any.
    pub(crate) fn firsts(&self, keys: &BTreeSet<&str>) -> Result<HashMap<String, JobId>> {
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        firsts_in(&self.session.rows(FIRSTS.query(of_kinds(keys)))?)
    }

    /// Locks a kind, and returns its first job. No other job becomes the first until this
    /// transaction ends. The transaction may have to be retried, because this lock comes after the
    /// locks of jobs.
    pub(crate) fn first_of(&self, key: &str) -> Result<Option<JobId>> {
        self.lock_names(vec![document_name(DocumentKind::Unique, key)])?;
        Ok(self.firsts(&BTreeSet::from([key]))?.remove(key))
    }

    /// Makes `jobs` the first of their kinds, and sets the terms of their limits.
    pub(crate) fn put_own_documents(&mut self, jobs: &[NewJob]) -> Result<()> {
        let own = || jobs.iter().filter_map(|job| Some((job, job.own.as_ref()?)));
        for (job, own) in own() {
            if let Some(unique) = &own.unique {
                self.documents.put(DocumentKind::Unique, unique.key.clone(), job.job_id.to_string());
            }
        }
        let limits: Vec<(String, LimitTerms)> = limits_of(jobs).collect();
        let keys = limits.iter().map(|(key, _)| key.clone()).collect();
        let on_locked = self.on_locked_limits();
        self.limits.hold_with_left(self.session, keys, on_locked)?;
        for (key, terms) in limits {
            self.unblock_all_of(DocumentKind::Limit, &key);
            self.limits.change(&key, |limit| Limit { terms, ..limit });
        }
        Ok(())
    }

    /// Removes the marks of removed jobs as the first of their kinds.
    pub(crate) fn forget_firsts(&self, gone: &[Job]) -> Result<()> {
        let firsts =
            gone.iter().filter_map(|job| Some((job.ojs.as_ref()?.unique.clone()?, job.job_id.to_string())));
        let (keys, ids): (Vec<String>, Vec<String>) = firsts.unzip();
        if keys.is_empty() {
            return Ok(());
        }
        // A document that another transaction has locked is about to name another job.
        let sql = "DELETE FROM agq.notes WHERE kind = $1 AND id IN (SELECT n.id FROM agq.notes AS n \
             JOIN unnest($2::text[], $3::text[]) AS g (key, job_id) ON n.id = g.key AND n.json = g.job_id \
             WHERE n.kind = $1 FOR UPDATE OF n SKIP LOCKED)";
        self.session.run(query(sql).bind(DocumentKind::Unique.as_str()).bind(keys).bind(ids)).map(drop)
    }
}
