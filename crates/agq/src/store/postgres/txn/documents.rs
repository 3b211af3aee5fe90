//! Documents in a write transaction, with those that the store itself uses: limits, and the jobs of
//! kinds that new jobs are compared with.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use agenix_protocol::{ids::JobId, time::Timestamp};
use agenix_rules::{
    job::{Job, JobOverrides, JobState, NewJob},
    limit::{Limit, LimitTerms},
};
use sqlx::{Error, Result, Row, postgres::PgRow, query};

use crate::store::{
    DocumentChange, DocumentKind, DocumentRule, LaneKey, RuleResult,
    claim_index::Constraint,
    decisions::accepted,
    dedup::ids_in,
    postgres::{
        connection::{DatabaseSession, Param, PreparedStatement},
        txn::{
            PgTxn,
            locked_rows::{DocumentWrites, LockedRows, OnLocked, put},
        },
    },
};

/// Returns the name by which a transaction locks a document.
pub(crate) fn document_name(kind: DocumentKind, id: &str) -> String {
    format!("note {} {id}", kind.as_str())
}

/// Limits that this transaction has locked, and ends of jobs under limits.
///
/// The document of a limit counts starts, and `agq.limit_ends` counts ends. So the end of a job
/// locks no limit.
pub(crate) struct LockedLimits {
    rows: LockedRows<Limit>,
    /// Numbers of ended jobs that are not written yet, by the keys of their limits.
    ends: BTreeMap<String, u64>,
}

impl Default for LockedLimits {
    fn default() -> Self {
        Self { rows: LockedRows::new(DocumentKind::Limit), ends: BTreeMap::new() }
    }
}

impl LockedLimits {
    pub(crate) fn has_passed_over(&self) -> bool {
        self.rows.has_passed_over
    }

    /// Counts a job with a limit that no longer runs.
    pub(crate) fn note(&mut self, before: Option<&Job>, job: &Job) {
        let was_active = before.is_some_and(|before| before.state == JobState::Active);
        if let Some(key) = job.ojs.as_ref().and_then(|ojs| ojs.limit.as_ref())
            && was_active
            && job.state != JobState::Active
        {
            *self.ends.entry(key.clone()).or_default() += 1;
        }
    }

    /// Returns true if a job under a limit has stopped running since the latest write.
    pub(crate) fn has_room(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Locks the limits `keys`.
    pub(crate) fn lock(
        &mut self,
        session: &DatabaseSession,
        keys: impl Iterator<Item = String>,
        on_locked: OnLocked,
    ) -> Result<()> {
        self.rows.lock(session, keys, on_locked)
    }

    /// Locks those of the limits `keys` that no other transaction holds at this moment.
    pub(crate) fn lock_free(&mut self, session: &DatabaseSession, keys: BTreeSet<String>) -> Result<()> {
        self.rows.lock_free(session, keys)
    }

    /// Returns the number of ended jobs that the document of a locked limit counts as running.
    fn ended(&self, key: &str) -> u64 {
        self.rows.ended(key) + self.ends.get(key).copied().unwrap_or_default()
    }

    /// Returns the present state of a limit that this transaction has locked.
    pub(crate) fn get(&self, key: &str) -> Option<Limit> {
        Some(self.rows.get(key)?.less(self.ended(key)))
    }

    /// Counts the start of a job under a locked limit.
    pub(crate) fn begin(&mut self, key: &str, now: Timestamp) {
        let ended = self.ended(key);
        // The document has fewer starts than ends if a command has replaced it since.
        self.rows.change(key, |limit| Limit { active: limit.active.max(ended), ..*limit }.begun(now));
    }

    /// Sets the terms of a locked limit.
    fn set_terms(&mut self, key: &str, terms: LimitTerms, now: Timestamp) {
        self.rows.change(key, |limit| limit.with_terms(terms, now));
    }

    /// Replaces a locked limit if `json` is its new document.
    fn replace(&mut self, kind: DocumentKind, key: &str, json: &str) {
        self.rows.replace(kind, key, json);
    }

    /// Returns the ends that are to be written, and counts them as written.
    pub(crate) fn take_ends(&mut self) -> BTreeMap<String, u64> {
        let ends = std::mem::take(&mut self.ends);
        ends.iter().for_each(|(key, count)| self.rows.add_ended(key, *count));
        ends
    }

    /// Moves the changed limits to `writes`.
    pub(crate) fn take_changed(&mut self, writes: &mut DocumentWrites) {
        self.rows.take_changed(writes);
    }
}

/// Query for the jobs of kinds that new jobs are compared with.
pub(crate) const COMPARED: PreparedStatement = PreparedStatement {
    name: "agq_compared",
    sql: "SELECT id, json FROM agq.notes WHERE kind = 'unique' AND id = ANY ($1::text[])",
};

/// Statement that removes the jobs `$3` from the documents of their kinds `$2`, and documents of
/// which nothing is left. The statement waits for other transactions that have locked such a
/// document: these transactions may roll back, and nothing names the removed jobs later.
const FORGET: &str = "WITH gone AS (SELECT key, array_agg(job_id) AS ids FROM unnest($2::text[], $3::text[]) AS g (key, job_id) GROUP BY key), \
     held AS (SELECT n.id, ARRAY(SELECT u.one FROM unnest(string_to_array(n.json, ' ')) WITH ORDINALITY AS u (one, place) \
         WHERE u.one <> ALL (gone.ids) ORDER BY u.place) AS rest FROM agq.notes AS n JOIN gone ON n.id = gone.key \
         WHERE n.kind = $1 AND string_to_array(n.json, ' ') && gone.ids ORDER BY n.id FOR UPDATE OF n), \
     shortened AS (UPDATE agq.notes AS n SET json = array_to_string(held.rest, ' ') FROM held \
         WHERE n.kind = $1 AND n.id = held.id AND cardinality(held.rest) > 0) \
     DELETE FROM agq.notes AS n USING held WHERE n.kind = $1 AND n.id = held.id AND cardinality(held.rest) = 0";

pub(crate) fn of_kinds(keys: &BTreeSet<&str>) -> Vec<Param> {
    vec![Param::texts(keys.iter().copied())]
}

/// Reads the jobs of kinds that new jobs are compared with.
pub(crate) fn compared_in(rows: &[PgRow]) -> Result<HashMap<String, Vec<JobId>>> {
    let of_kind = |row: &PgRow| {
        let ids = ids_in(&row.try_get::<String, _>(1)?);
        Ok((row.try_get(0)?, ids.map_err(|error| Error::Decode(Box::new(error)))?))
    };
    rows.iter().map(of_kind).collect()
}

/// Returns the limits that new jobs set: keys and terms.
pub(crate) fn limits_of(jobs: &[NewJob]) -> impl Iterator<Item = (String, LimitTerms)> {
    jobs.iter().filter_map(|job| limit_set_by(job.own.as_ref()?))
}

fn limit_set_by(own: &JobOverrides) -> Option<(String, LimitTerms)> {
    Some((own.terms.ojs.as_ref()?.limit.clone()?, own.limit?))
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
                let sql = "WITH ends AS (DELETE FROM agq.limit_ends WHERE $1 = 'limit' AND limit_key = $2) \
                     DELETE FROM agq.notes WHERE kind = $1 AND id = $2";
                self.session.run(query(sql).bind(kind.as_str()).bind(id)).map(drop)
            }
        }
    }

    /// Makes claims check the lanes again that the document of a limit or a budget blocks.
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

    /// Returns the jobs of the kinds `keys` that new jobs are compared with.
    pub(crate) fn compared(&self, keys: &BTreeSet<&str>) -> Result<HashMap<String, Vec<JobId>>> {
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        compared_in(&self.session.rows(COMPARED.query(of_kinds(keys)))?)
    }

    /// Locks a kind, and returns its jobs that a new job is compared with. No other job is added to
    /// the kind until this transaction ends. The transaction may have to be retried, because this
    /// lock comes after the locks of jobs.
    pub(crate) fn compared_with(&self, key: &str) -> Result<Vec<JobId>> {
        self.lock_names(vec![document_name(DocumentKind::Unique, key)])?;
        Ok(self.compared(&BTreeSet::from([key]))?.remove(key).unwrap_or_default())
    }

    /// Sets the terms of those limits of new jobs that are locked, because they may differ.
    pub(crate) fn set_own_limits(&mut self, jobs: &[NewJob], now: Timestamp) {
        for (key, terms) in limits_of(jobs) {
            if self.limits.get(&key).is_some() {
                self.unblock_all_of(DocumentKind::Limit, &key);
                self.limits.set_terms(&key, terms, now);
            }
        }
    }

    /// Locks the limits that new jobs change: those whose terms differ from the ones that the first
    /// round trip has read, and those of lanes that may be new. A transaction that creates a lane
    /// also writes the limit of the lane, because limits without lanes are removed.
    pub(crate) fn lock_changed_limits<'n>(&mut self, jobs: impl Iterator<Item = &'n NewJob>) -> Result<()> {
        let mut changed = Vec::new();
        for own in jobs.filter_map(|job| job.own.as_ref()) {
            let Some((key, terms)) = limit_set_by(own) else { continue };
            let is_same = self.reads.limits.get(&key).is_some_and(|limit| limit.terms == terms);
            let lane = LaneKey { queue: own.queue.clone(), needs: own.needs.clone() };
            if !is_same || !self.lanes.has(&lane) {
                changed.push(key);
            }
        }
        self.limits.lock(self.session, changed.into_iter(), self.on_locked_limits())
    }

    /// Removes removed jobs from the documents of their kinds.
    pub(crate) fn forget_compared(&self, gone: &[Job]) -> Result<()> {
        let unique =
            gone.iter().filter_map(|job| Some((job.ojs.as_ref()?.unique.clone()?, job.job_id.to_string())));
        let (keys, ids): (Vec<String>, Vec<String>) = unique.unzip();
        if keys.is_empty() {
            return Ok(());
        }
        self.session.run(query(FORGET).bind(DocumentKind::Unique.as_str()).bind(keys).bind(ids)).map(drop)
    }
}
