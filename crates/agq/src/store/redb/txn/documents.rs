//! Documents in a write transaction: limits, and the first jobs of unique keys.

use agenix_protocol::{documents::to_json, ids::JobId, time::Timestamp};
use agenix_rules::{
    job::{Job, JobState, NewJob},
    limit::{Limit, LimitTerms},
};
use redb::Error;

use crate::store::{
    DocumentChange, DocumentKind, DocumentRule, RuleResult,
    redb::{queries::records::behind, txn::WriteTxn},
};

impl WriteTxn<'_> {
    pub(crate) fn decide_document(
        &mut self,
        kind: DocumentKind,
        id: &str,
        rule: &DocumentRule,
    ) -> Result<RuleResult<()>, Error> {
        let change = rule(self.tables.notes.get((kind.as_str(), id))?.as_ref().map(|note| note.value()));
        Ok(change.map(|change| match change {
            DocumentChange::Keep => {}
            DocumentChange::Put(json) => self.put_note(kind, id, &json),
            DocumentChange::Remove => self.tables.notes.remove((kind.as_str(), id)),
        }))
    }

    pub(crate) fn put_note(&mut self, kind: DocumentKind, id: &str, json: &str) {
        self.tables.notes.insert((kind.as_str(), id), json);
    }

    fn limit(&self, key: &str) -> Result<Limit, Error> {
        let note = self.tables.notes.get((DocumentKind::Limit.as_str(), key))?;
        note.map_or(Ok(Limit::default()), |note| {
            serde_json::from_str(note.value()).map_err(|error| Error::Corrupted(error.to_string()))
        })
    }

    fn put_limit(&mut self, key: &str, limit: &Limit) {
        self.put_note(DocumentKind::Limit, key, &to_json(limit));
    }

    /// Sets the terms of a limit.
    pub(crate) fn set_limit(&mut self, key: &str, terms: LimitTerms) -> Result<(), Error> {
        let limit = Limit { terms, ..self.limit(key)? };
        self.put_limit(key, &limit);
        Ok(())
    }

    /// Returns true if the limit of a lane lets another job start.
    pub(crate) fn admits(&self, lane: u32, now: Timestamp) -> Result<bool, Error> {
        match self.cache.lanes.limit_of(lane) {
            None => Ok(true),
            Some(key) => Ok(self.limit(key)?.admits(now)),
        }
    }

    /// Counts a started job under its limit.
    pub(crate) fn enter_limit(&mut self, job: &Job, now: Timestamp) -> Result<(), Error> {
        let Some(key) = job.ojs.as_ref().and_then(|ojs| ojs.limit.as_deref()) else { return Ok(()) };
        let limit = self.limit(key)?.begun(now);
        self.put_limit(key, &limit);
        Ok(())
    }

    /// Removes a job from its limit when it stops running.
    pub(crate) fn leave_limit(&mut self, before: Option<&Job>, job: &Job) -> Result<(), Error> {
        let was_active = before.is_some_and(|before| before.state == JobState::Active);
        let key = job.ojs.as_ref().and_then(|ojs| ojs.limit.as_deref());
        let Some(key) = key.filter(|_| was_active && job.state != JobState::Active) else { return Ok(()) };
        let limit = self.limit(key)?.ended();
        self.put_limit(key, &limit);
        // Another job may start now.
        self.arrived.jobs = true;
        Ok(())
    }

    /// Removes limits that apply to no job, and that hold no job back. Returns their number.
    pub(crate) fn forget_limits(&mut self, now: Timestamp) -> Result<usize, Error> {
        let kind = DocumentKind::Limit.as_str();
        let mut gone = Vec::new();
        let used = self.cache.lanes.limits();
        for entry in self.tables.notes.range((kind, "")..(behind(kind).as_str(), ""))? {
            let (place, note) = entry?;
            let (_, key) = place.value();
            let is_idle = serde_json::from_str(note.value()).is_ok_and(|limit: Limit| limit.is_idle(now));
            if is_idle && !used.contains(key) {
                gone.push(key.to_owned());
            }
        }
        for key in &gone {
            self.tables.notes.remove((kind, key.as_str()));
        }
        Ok(gone.len())
    }

    /// Returns the first job with a unique key.
    pub(crate) fn first_of(&self, key: &str) -> Result<Option<JobId>, Error> {
        let note = self.tables.notes.get((DocumentKind::Unique.as_str(), key))?;
        let id =
            note.map(|note| JobId::new(note.value()).map_err(|error| Error::Corrupted(error.to_string())));
        id.transpose()
    }

    /// Stores that a job is the first with its unique key, and sets the limit that the job
    /// specifies.
    pub(crate) fn note_own(&mut self, new: &NewJob) -> Result<(), Error> {
        let Some(own) = &new.own else { return Ok(()) };
        if let Some(unique) = &own.unique {
            self.put_note(DocumentKind::Unique, &unique.key, new.job_id.as_str());
        }
        let key = own.terms.ojs.as_ref().and_then(|ojs| ojs.limit.as_deref());
        key.zip(own.limit).map_or(Ok(()), |(key, terms)| self.set_limit(key, terms))
    }

    /// Removes the mark that a job is the first with its unique key.
    pub(crate) fn forget_first(&mut self, job: &Job) -> Result<(), Error> {
        let Some(key) = job.ojs.as_ref().and_then(|ojs| ojs.unique.as_deref()) else { return Ok(()) };
        if self.first_of(key)?.as_ref() == Some(&job.job_id) {
            self.tables.notes.remove((DocumentKind::Unique.as_str(), key));
        }
        Ok(())
    }
}
