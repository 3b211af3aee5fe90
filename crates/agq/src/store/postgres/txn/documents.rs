//! Documents in a write transaction, with those that the store itself uses: limits, and the first
//! jobs of kinds.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use agenix_protocol::{documents::to_json, ids::JobId, time::Timestamp};
use agenix_rules::{
    job::{Job, JobState, NewJob},
    limit::{Limit, LimitTerms},
};
use sqlx::{Error, Result, Row, postgres::PgRow, query};

use crate::store::{
    DocumentChange, DocumentKind, DocumentRule, RuleResult,
    decisions::accepted,
    postgres::{connection::DatabaseSession, txn::PgTxn},
};

const PUT: &str = "INSERT INTO agq.notes (kind, id, json) SELECT $1, * FROM unnest($2::text[], $3::text[]) \
     ON CONFLICT (kind, id) DO UPDATE SET json = EXCLUDED.json";

/// Writes documents of a kind: ids and texts.
pub(crate) fn put(
    session: &DatabaseSession,
    kind: DocumentKind,
    notes: (Vec<String>, Vec<String>),
) -> Result<()> {
    if notes.0.is_empty() {
        return Ok(());
    }
    session.run(query(PUT).bind(kind.as_str()).bind(notes.0).bind(notes.1)).map(drop)
}

/// Returns the name by which a transaction locks a document.
pub(crate) fn document_name(kind: DocumentKind, id: &str) -> String {
    format!("note {} {id}", kind.as_str())
}

/// Limits that this transaction has locked. No other transaction changes them until it ends.
#[derive(Default)]
pub(crate) struct HeldLimits {
    held: BTreeMap<String, Limit>,
    changed: BTreeSet<String>,
    /// Keys of limits whose jobs no longer run.
    left: Vec<String>,
    /// True if other transactions held limits that this transaction could have used.
    pub(crate) has_passed_over: bool,
}

const WAIT_FOR_LIMITS: &str =
    "SELECT id, json FROM agq.notes WHERE kind = $1 AND id = ANY ($2) ORDER BY id FOR UPDATE";
const LIMITS_OR_FAIL: &str =
    "SELECT id, json FROM agq.notes WHERE kind = $1 AND id = ANY ($2) ORDER BY id FOR UPDATE NOWAIT";
const FREE_LIMITS: &str =
    "SELECT id, json FROM agq.notes WHERE kind = $1 AND id = ANY ($2) ORDER BY id FOR UPDATE SKIP LOCKED";

/// Statement that inserts those of the given limits that do not exist. It leaves existing limits
/// out first. Otherwise `ON CONFLICT` would wait for the transaction that changes such a limit, and
/// the lock of the limit would wait once more.
pub(crate) const MAKE_LIMITS: &str = "INSERT INTO agq.notes (kind, id, json) \
     SELECT $1, n.id, $3 FROM unnest($2::text[]) AS n (id) \
     WHERE (SELECT true FROM agq.notes AS o WHERE o.kind = $1 AND o.id = n.id) IS NULL ORDER BY n.id ON CONFLICT DO NOTHING";

pub(crate) fn make_limits(session: &DatabaseSession, keys: &[String]) -> Result<()> {
    let sql = query(MAKE_LIMITS).bind(DocumentKind::Limit.as_str()).bind(keys);
    session.run(sql.bind(to_json(&Limit::default()))).map(drop)
}

impl HeldLimits {
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

    /// Locks limits for this transaction. A transaction waits for limits once, in their order.
    ///
    /// A transaction that already holds limits does not wait, because the holder of the missing
    /// limits may wait for those. The transaction then fails, and the writer retries the writes in
    /// parts.
    pub(crate) fn hold(
        &mut self,
        session: &DatabaseSession,
        keys: impl Iterator<Item = String>,
    ) -> Result<()> {
        let missing: BTreeSet<String> = keys.filter(|key| !self.held.contains_key(key)).collect();
        let missing: Vec<String> = missing.into_iter().collect();
        if missing.is_empty() {
            return Ok(());
        }
        make_limits(session, &missing)?;
        let lock = if self.held.is_empty() { WAIT_FOR_LIMITS } else { LIMITS_OR_FAIL };
        self.lock(session, lock, &missing)?;
        // A limit that was removed between the two statements has no row to lock. The retry creates
        // it again.
        let is_held = |key: &String| self.held.contains_key(key);
        if missing.iter().all(is_held) { Ok(()) } else { Err(Error::RowNotFound) }
    }

    /// Locks `keys`, and the limits under which jobs no longer run.
    pub(crate) fn hold_with_left(&mut self, session: &DatabaseSession, keys: Vec<String>) -> Result<()> {
        let left = self.left.clone();
        self.hold(session, keys.into_iter().chain(left))
    }

    /// Locks those of `keys` that no other transaction holds at this moment.
    pub(crate) fn hold_free(&mut self, session: &DatabaseSession, keys: BTreeSet<String>) -> Result<()> {
        let missing: Vec<String> = keys.into_iter().filter(|key| !self.held.contains_key(key)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.lock(session, FREE_LIMITS, &missing)?;
        let others: Vec<String> = missing.into_iter().filter(|key| !self.held.contains_key(key)).collect();
        if others.is_empty() {
            return Ok(());
        }
        let sql = "SELECT id FROM agq.notes WHERE kind = $1 AND id = ANY ($2)";
        let there = session.rows(query(sql).bind(DocumentKind::Limit.as_str()).bind(&others))?;
        let there = there.iter().map(|row| row.try_get(0)).collect::<Result<BTreeSet<String>>>()?;
        self.has_passed_over |= !there.is_empty();
        let absent: Vec<String> = others.into_iter().filter(|key| !there.contains(key)).collect();
        if absent.is_empty() {
            return Ok(());
        }
        // An absent row cannot be locked.
        make_limits(session, &absent)?;
        self.lock(session, FREE_LIMITS, &absent)
    }

    fn lock(&mut self, session: &DatabaseSession, sql: &'static str, keys: &[String]) -> Result<()> {
        for row in session.rows(query(sql).bind(DocumentKind::Limit.as_str()).bind(keys))? {
            let limit =
                serde_json::from_str(row.try_get("json")?).map_err(|error| Error::Decode(Box::new(error)))?;
            self.held.insert(row.try_get("id")?, limit);
        }
        Ok(())
    }

    /// Returns true if a limit is locked and lets another job begin.
    pub(crate) fn admits(&self, key: &str, now: Timestamp) -> bool {
        self.held.get(key).is_some_and(|limit| limit.admits(now))
    }

    pub(crate) fn change(&mut self, key: &str, change: impl FnOnce(Limit) -> Limit) {
        if let Some(limit) = self.held.get_mut(key) {
            *limit = change(*limit);
            self.changed.insert(key.to_owned());
        }
    }

    /// Replaces a locked limit if `json` is its new document.
    fn replace(&mut self, kind: DocumentKind, key: &str, json: &str) {
        if kind == DocumentKind::Limit
            && let Some(limit) = self.held.get_mut(key)
            && let Ok(new) = serde_json::from_str(json)
        {
            *limit = new;
        }
    }

    /// Gives back the capacity of jobs that no longer run.
    pub(crate) fn settle(&mut self, session: &DatabaseSession) -> Result<()> {
        let left = std::mem::take(&mut self.left);
        self.hold(session, left.iter().cloned())?;
        left.iter().for_each(|key| self.change(key, Limit::ended));
        Ok(())
    }

    pub(crate) fn write(&mut self, session: &DatabaseSession) -> Result<()> {
        self.settle(session)?;
        let changed = std::mem::take(&mut self.changed);
        let text = |key: &String| self.held.get(key).map(to_json).unwrap_or_default();
        put(session, DocumentKind::Limit, changed.iter().map(|key| (key.clone(), text(key))).unzip())
    }
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
        match accepted!(rule(known.as_deref())) {
            DocumentChange::Keep => {}
            DocumentChange::Put(json) => {
                self.limits.replace(kind, id, &json);
                put(self.session, kind, (vec![id.to_owned()], vec![json]))?;
            }
            DocumentChange::Remove => {
                let sql = "DELETE FROM agq.notes WHERE kind = $1 AND id = $2";
                self.session.run(query(sql).bind(kind.as_str()).bind(id))?;
            }
        }
        Ok(Ok(()))
    }

    /// Returns the first jobs of the kinds `keys`, as far as there are any.
    pub(crate) fn firsts(&self, keys: &BTreeSet<&str>) -> Result<HashMap<String, JobId>> {
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let sql = "SELECT id, json FROM agq.notes WHERE kind = $1 AND id = ANY ($2)";
        let sql =
            query(sql).bind(DocumentKind::Unique.as_str()).bind(keys.iter().copied().collect::<Vec<_>>());
        let first = |row: &PgRow| {
            let job_id = JobId::new(row.try_get::<String, _>(1)?);
            Ok((row.try_get(0)?, job_id.map_err(|error| Error::Decode(Box::new(error)))?))
        };
        self.session.rows(sql)?.iter().map(first).collect()
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
        let firsts: BTreeMap<&str, &JobId> =
            own().filter_map(|(job, own)| Some((own.unique.as_ref()?.key.as_str(), &job.job_id))).collect();
        put(
            self.session,
            DocumentKind::Unique,
            firsts.into_iter().map(|(key, job_id)| (key.to_owned(), job_id.to_string())).unzip(),
        )?;
        let limits: Vec<(String, LimitTerms)> = limits_of(jobs).collect();
        self.limits.hold(self.session, limits.iter().map(|(key, _)| key.clone()))?;
        for (key, terms) in limits {
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
