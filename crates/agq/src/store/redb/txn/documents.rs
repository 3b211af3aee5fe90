//! Documents in a write transaction: limits, and the jobs of unique keys.

use agenix_protocol::{documents::to_json, ids::JobId, time::Timestamp};
use agenix_rules::{
    job::{Job, JobState, NewJob},
    limit::Limit,
};
use redb::Error;

use crate::store::{
    DocumentChange, DocumentKind, DocumentRule, UnusedRecords,
    claim_index::{Block, Constraint},
    dedup::{ids_in, without},
    redb::{schema::Result, txn::WriteTxn},
    types::Ruled,
};

impl WriteTxn<'_> {
    pub(crate) fn decide_document(
        &mut self,
        kind: DocumentKind,
        id: &str,
        rule: &DocumentRule,
    ) -> Ruled<(), Error> {
        let change =
            rule(self.tables.documents.get((kind.as_str(), id))?.as_ref().map(|document| document.value()));
        Ok(change.map(|change| self.change_document(kind, id, &change)))
    }

    pub(crate) fn change_document(&mut self, kind: DocumentKind, id: &str, change: &DocumentChange) {
        match change {
            DocumentChange::Keep => {}
            DocumentChange::Put(json) => self.put_document(kind, id, json),
            DocumentChange::Remove => self.remove_document(kind, id),
        }
    }

    pub(crate) fn put_document(&mut self, kind: DocumentKind, id: &str, json: &str) {
        self.tables.documents.insert((kind.as_str(), id), json);
        self.unblock(kind, id);
    }

    fn remove_document(&mut self, kind: DocumentKind, id: &str) {
        self.tables.documents.remove((kind.as_str(), id));
        self.unblock(kind, id);
    }

    /// Makes claims check the lanes again that a changed limit or budget blocks.
    fn unblock(&mut self, kind: DocumentKind, id: &str) {
        match kind {
            DocumentKind::Limit => self.cache.lanes.unblock_all_of(Constraint::Limit, id),
            DocumentKind::Budget => self.cache.lanes.unblock_all_of(Constraint::Budget, id),
            _ => {}
        }
    }

    fn limit(&self, key: &str) -> Result<Limit> {
        let document = self.tables.documents.get((DocumentKind::Limit.as_str(), key))?;
        document.map_or(Ok(Limit::default()), |document| {
            serde_json::from_str(document.value()).map_err(|error| Error::Corrupted(error.to_string()))
        })
    }

    fn put_limit(&mut self, key: &str, limit: &Limit) {
        self.put_document(DocumentKind::Limit, key, &to_json(limit));
    }

    /// Returns which limit or budget of a lane lets its first job not start, if there is one.
    pub(crate) fn block_of(&self, lane: u32, now: Timestamp) -> Result<Option<Block>> {
        let Some(needs) = self.cache.lanes.needs_of(lane) else { return Ok(None) };
        if let Some(key) = &needs.limit {
            let limit = self.limit(key)?;
            if !limit.admits(now) {
                let until = limit.admits_from(now);
                return Ok(Some(Block { constraint: Constraint::Limit, name: key.clone(), until }));
            }
        }
        let Some((_, first)) = self.cache.lanes.first(lane).filter(|_| needs.budget.is_some()) else {
            return Ok(None);
        };
        self.job(first)?.map_or(Ok(None), |job| self.budget_block(&job, now))
    }

    pub(crate) fn enter_limit(&mut self, job: &Job, now: Timestamp) -> Result<()> {
        let Some(key) = job.ojs.as_ref().and_then(|ojs| ojs.limit.as_deref()) else { return Ok(()) };
        let limit = self.limit(key)?.begun(now);
        self.put_limit(key, &limit);
        Ok(())
    }

    pub(crate) fn leave_limit(&mut self, before: Option<&Job>, job: &Job) -> Result<()> {
        let was_active = before.is_some_and(|before| before.state == JobState::Active);
        let key = job.ojs.as_ref().and_then(|ojs| ojs.limit.as_deref());
        let Some(key) = key.filter(|_| was_active && job.state != JobState::Active) else { return Ok(()) };
        let limit = self.limit(key)?.ended();
        self.put_limit(key, &limit);
        // Another job may start now.
        self.arrived.jobs = true;
        Ok(())
    }

    /// Removes those of the given limits that have no lane, and that have not changed since they
    /// were read.
    pub(crate) fn forget_unused(&mut self, unused: &UnusedRecords) -> Result<()> {
        let used = self.cache.lanes.limits();
        let unused = unused.limits.iter().filter(|(key, _)| !used.contains(key.as_str())).collect::<Vec<_>>();
        for (key, version) in unused {
            let place = (DocumentKind::Limit.as_str(), key.as_str());
            if self.tables.documents.get(place)?.is_some_and(|document| document.value() == version) {
                self.remove_document(DocumentKind::Limit, key);
            }
        }
        Ok(())
    }

    /// Returns the jobs with a unique key that a new job is compared with.
    pub(crate) fn compared_with(&self, key: &str) -> Result<Vec<JobId>> {
        let document = self.tables.documents.get((DocumentKind::Unique.as_str(), key))?;
        let ids = document.map(|document| ids_in(document.value())).transpose();
        Ok(ids.map_err(|error| Error::Corrupted(error.to_string()))?.unwrap_or_default())
    }

    /// Sets the terms of the limit of a new job.
    pub(crate) fn set_own_limit(&mut self, new: &NewJob, now: Timestamp) -> Result<()> {
        let Some(own) = &new.own else { return Ok(()) };
        let key = own.terms.ojs.as_ref().and_then(|ojs| ojs.limit.as_deref());
        if let Some((key, terms)) = key.zip(own.limit) {
            let limit = self.limit(key)?;
            if limit.terms != terms {
                self.put_limit(key, &limit.with_terms(terms, now));
            }
        }
        Ok(())
    }

    /// Removes a job that is removed from the document of its unique key.
    pub(crate) fn forget_compared(&mut self, job: &Job) -> Result<()> {
        let Some(key) = job.ojs.as_ref().and_then(|ojs| ojs.unique.as_deref()) else { return Ok(()) };
        let place = (DocumentKind::Unique.as_str(), key);
        let known = self.tables.documents.get(place)?.map(|document| document.value().to_owned());
        let Some(known) = known else { return Ok(()) };
        match without(&known, &job.job_id) {
            None => self.tables.documents.remove(place),
            Some(rest) if rest != known => self.tables.documents.insert(place, rest.as_str()),
            Some(_) => {}
        }
        Ok(())
    }
}
