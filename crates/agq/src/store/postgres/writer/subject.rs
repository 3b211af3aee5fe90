//! Subjects of writes. A write never overtakes an earlier one on the same subject.

use std::collections::HashSet;

use agenix_protocol::ids::{ActionId, JobId, PlanId, WorkerId};

use crate::store::{
    DocumentKind, NewAction,
    postgres::txn::{documents::limits_of, jobs::JobDecision},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum WriteSubject {
    Action(ActionId),
    Job(JobId),
    Note(DocumentKind, String),
    Plan(PlanId),
    Queue(String),
    Worker(WorkerId),
}

/// Subjects that a write changes, and subjects on which the write only relies. Two writes that rely
/// on the same subject may be done in any order.
#[derive(Debug, Default, Clone)]
pub(crate) struct Subjects {
    changed: HashSet<WriteSubject>,
    relied_on: HashSet<WriteSubject>,
    /// True if the write comes after every earlier one.
    is_barrier: bool,
}

impl From<WriteSubject> for Subjects {
    fn from(changed: WriteSubject) -> Self {
        Self { changed: HashSet::from([changed]), ..Self::default() }
    }
}

impl Subjects {
    pub(crate) fn all() -> Self {
        Self { is_barrier: true, ..Self::default() }
    }

    pub(crate) fn of_decision(decision: &JobDecision) -> Self {
        WriteSubject::Job(decision.job_id.clone()).into()
    }

    pub(crate) fn of_addition(new: &NewAction) -> Self {
        let unique = new.jobs.iter().filter_map(|job| job.own.as_ref()?.unique.as_ref());
        let unique = unique.map(|unique| WriteSubject::Note(DocumentKind::Unique, unique.key.clone()));
        let limits = limits_of(&new.jobs).map(|(key, _)| WriteSubject::Note(DocumentKind::Limit, key));
        let jobs = new.jobs.iter().map(|job| WriteSubject::Job(job.job_id.clone()));
        let action = WriteSubject::Action(new.action.action_id.clone());
        Self {
            changed: unique.chain(limits).chain(jobs).chain([action]).collect(),
            relied_on: new.plans().into_iter().map(|plan_id| WriteSubject::Plan(plan_id.clone())).collect(),
            is_barrier: false,
        }
    }

    /// Returns true if a write on these subjects has to wait for an earlier one on `earlier`.
    pub(crate) fn depend_on(&self, earlier: &Self) -> bool {
        self.is_barrier
            || !self.changed.is_disjoint(&earlier.changed)
            || !self.changed.is_disjoint(&earlier.relied_on)
            || !self.relied_on.is_disjoint(&earlier.changed)
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::ids::{JobId, PlanId};

    use super::{Subjects, WriteSubject};

    #[test]
    fn writes_depend_only_on_earlier_changes_of_a_common_subject() {
        let plan = || WriteSubject::Plan(PlanId::new("p").unwrap());
        let job = |id: &str| WriteSubject::Job(JobId::new(id).unwrap());
        let relying =
            |id: &str| Subjects { changed: [job(id)].into(), relied_on: [plan()].into(), is_barrier: false };
        let (a, b, changing) = (relying("a"), relying("b"), Subjects::from(plan()));
        assert!(!a.depend_on(&b) && a.depend_on(&relying("a")));
        assert!(a.depend_on(&changing) && changing.depend_on(&a) && changing.depend_on(&changing));
        assert!(!changing.depend_on(&Subjects::from(WriteSubject::Queue("p".into()))));
        // A barrier waits for earlier writes, and no write waits for a barrier.
        assert!(Subjects::all().depend_on(&Subjects::default()) && !a.depend_on(&Subjects::all()));
    }
}
