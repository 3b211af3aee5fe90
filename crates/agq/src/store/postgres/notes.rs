//! Notes in a transaction, and what is kept in them: limits, and the first jobs of their kinds.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{documents::to_json, ids::JobId, time::Timestamp};
use agenix_rules::{
    job::{Job, NewJob, State},
    limit::Limit,
};
use sqlx::{Error, Row, query};

use super::{batch::Batch, session::Session};
use crate::store::{NoteChange, NoteKind, NoteRule, Ruled};

const PUT: &str = "INSERT INTO agq.notes (kind, id, json) SELECT $1, * FROM unnest($2::text[], $3::text[]) \
     ON CONFLICT (kind, id) DO UPDATE SET json = EXCLUDED.json";

/// Writes notes of a kind: ids and texts.
pub(super) fn put(session: &Session, kind: NoteKind, notes: (Vec<String>, Vec<String>)) -> Result<(), Error> {
    if notes.0.is_empty() {
        return Ok(());
    }
    session.run(query(PUT).bind(kind.as_str()).bind(notes.0).bind(notes.1)).map(drop)
}

/// Limits that this transaction has to do with: nobody else changes one until it is committed.
#[derive(Default)]
pub(super) struct Limits {
    held: BTreeMap<String, Limit>,
    changed: BTreeSet<String>,
    /// Jobs under these run no more.
    left: Vec<String>,
}

impl Limits {
    /// Notes where a job under a limit runs no more.
    pub(super) fn note(&mut self, before: Option<&Job>, job: &Job) {
        let was_active = before.is_some_and(|before| before.state == State::Active);
        let key = job.ojs.as_ref().and_then(|ojs| ojs.limit.as_ref());
        self.left.extend(key.filter(|_| was_active && job.state != State::Active).cloned());
    }

    /// Whether there is room under a limit since its last writing.
    pub(super) fn has_room(&self) -> bool {
        !self.left.is_empty()
    }

    /// Takes limits for this transaction.
    pub(super) fn hold(
        &mut self,
        session: &Session,
        keys: impl Iterator<Item = String>,
    ) -> Result<(), Error> {
        let missing: BTreeSet<String> = keys.filter(|key| !self.held.contains_key(key)).collect();
        let missing: Vec<String> = missing.into_iter().collect();
        if missing.is_empty() {
            return Ok(());
        }
        // A row that is not there cannot be locked.
        let make = "INSERT INTO agq.notes (kind, id, json) SELECT $1, id, $3 FROM unnest($2::text[]) AS n (id) ORDER BY id \
             ON CONFLICT DO NOTHING";
        session.run(
            query(make).bind(NoteKind::Limit.as_str()).bind(&missing).bind(to_json(&Limit::default())),
        )?;
        let sql = "SELECT id, json FROM agq.notes WHERE kind = $1 AND id = ANY ($2) ORDER BY id FOR UPDATE";
        for row in session.rows(query(sql).bind(NoteKind::Limit.as_str()).bind(&missing))? {
            let limit =
                serde_json::from_str(row.try_get("json")?).map_err(|error| Error::Decode(Box::new(error)))?;
            self.held.insert(row.try_get("id")?, limit);
        }
        for key in missing {
            self.held.entry(key).or_default();
        }
        Ok(())
    }

    /// Whether a limit, which is held, lets another job begin.
    pub(super) fn admits(&self, key: &str, now: Timestamp) -> bool {
        self.held.get(key).is_none_or(|limit| limit.admits(now))
    }

    /// Changes a limit, which is held.
    pub(super) fn change(&mut self, key: &str, change: impl FnOnce(Limit) -> Limit) {
        if let Some(limit) = self.held.get_mut(key) {
            *limit = change(*limit);
            self.changed.insert(key.to_owned());
        }
    }

    /// A limit that is held may be another one now.
    fn learn(&mut self, kind: NoteKind, key: &str, json: &str) {
        if kind == NoteKind::Limit
            && let Some(limit) = self.held.get_mut(key)
            && let Ok(told) = serde_json::from_str(json)
        {
            *limit = told;
        }
    }

    /// What was left is room again.
    pub(super) fn settle(&mut self, session: &Session) -> Result<(), Error> {
        let left = std::mem::take(&mut self.left);
        self.hold(session, left.iter().cloned())?;
        left.iter().for_each(|key| self.change(key, Limit::ended));
        Ok(())
    }

    /// Writes those that changed.
    pub(super) fn write(&mut self, session: &Session) -> Result<(), Error> {
        self.settle(session)?;
        let changed = std::mem::take(&mut self.changed);
        let text = |key: &String| self.held.get(key).map(to_json).unwrap_or_default();
        put(session, NoteKind::Limit, changed.iter().map(|key| (key.clone(), text(key))).unzip())
    }
}

impl Batch<'_> {
    pub(super) fn decide_note(
        &mut self,
        kind: NoteKind,
        id: &str,
        rule: &NoteRule,
    ) -> Result<Ruled<()>, Error> {
        // Of two nodes that look for a note that is not there, one comes after the other.
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
        self.session.row(query(lock).bind(format!("note {} {id}", kind.as_str())))?;
        let sql = "SELECT json FROM agq.notes WHERE kind = $1 AND id = $2 FOR UPDATE";
        let known = self.session.row(query(sql).bind(kind.as_str()).bind(id))?;
        let known = known.map(|row| row.try_get::<String, _>(0)).transpose()?;
        match rule(known.as_deref()) {
            Err(rejection) => return Ok(Err(rejection)),
            Ok(NoteChange::Keep) => {}
            Ok(NoteChange::Put(json)) => {
                self.limits.learn(kind, id, &json);
                put(self.session, kind, (vec![id.to_owned()], vec![json]))?;
            }
            Ok(NoteChange::Remove) => {
                let sql = "DELETE FROM agq.notes WHERE kind = $1 AND id = $2";
                self.session.run(query(sql).bind(kind.as_str()).bind(id))?;
            }
        }
        Ok(Ok(()))
    }

    /// The first job of a kind. Until this is committed nobody else becomes that.
    pub(super) fn first_of(&self, key: &str) -> Result<Option<JobId>, Error> {
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
        self.session.row(query(lock).bind(format!("unique {key}")))?;
        let sql = "SELECT json FROM agq.notes WHERE kind = $1 AND id = $2";
        let row = self.session.row(query(sql).bind(NoteKind::Unique.as_str()).bind(key))?;
        let id = row.map(|row| row.try_get::<String, _>(0)).transpose()?;
        id.map(|id| JobId::new(id).map_err(|error| Error::Decode(Box::new(error)))).transpose()
    }

    /// Jobs are the first of their kinds from now on, and their limits are as they say.
    pub(super) fn note_own(&mut self, jobs: &[NewJob]) -> Result<(), Error> {
        let own = || jobs.iter().filter_map(|job| Some((job, job.own.as_ref()?)));
        let firsts: BTreeMap<&str, &JobId> =
            own().filter_map(|(job, own)| Some((own.unique.as_ref()?.key.as_str(), &job.job_id))).collect();
        put(
            self.session,
            NoteKind::Unique,
            firsts.into_iter().map(|(key, job_id)| (key.to_owned(), job_id.to_string())).unzip(),
        )?;
        for (_, own) in own() {
            let key = own.terms.ojs.as_ref().and_then(|ojs| ojs.limit.as_ref());
            if let Some((key, terms)) = key.zip(own.limit) {
                self.limits.hold(self.session, std::iter::once(key.clone()))?;
                self.limits.change(key, |limit| Limit { terms, ..limit });
            }
        }
        Ok(())
    }

    /// Jobs are forgotten: they are the first of their kinds no more.
    pub(super) fn forget_firsts(&self, gone: &[Job]) -> Result<(), Error> {
        let firsts =
            gone.iter().filter_map(|job| Some((job.ojs.as_ref()?.unique.clone()?, job.job_id.to_string())));
        let (keys, ids): (Vec<String>, Vec<String>) = firsts.unzip();
        if keys.is_empty() {
            return Ok(());
        }
        let sql = "DELETE FROM agq.notes USING unnest($2::text[], $3::text[]) AS g (key, job_id) \
             WHERE kind = $1 AND id = g.key AND json = g.job_id";
        self.session.run(query(sql).bind(NoteKind::Unique.as_str()).bind(keys).bind(ids)).map(drop)
    }
}
