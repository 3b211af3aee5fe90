//! Fair shares on both stores: claims of jobs of several owners.

use std::sync::Arc;

use agenix_protocol::{
    documents::{Plan, WorkerRegistration, parse},
    ids::PlanId,
    time::Timestamp,
};
use agenix_rules::{
    action::Action,
    action_bounds,
    capability::ClaimantCapabilities,
    fair_share::{KeyShares, ShareTerms},
    job::{JobParams, NewJob},
    owner::Owner,
};

use super::{Contract, Opener, postgres, redb};
use crate::store::{AddOutcome, Claimant, NewAction, Store, StoredPlan};

const PLAN: &str = r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#;
/// Number of waiting claimants in each claim.
const AT_ONCE: usize = 10;

macro_rules! on_both_stores {
    ($($name:ident)*) => {
        mod on_redb {
            $(#[test]
            fn $name() {
                super::run(super::redb, super::$name);
            })*
        }

        mod on_postgres {
            $(#[test]
            fn $name() {
                super::run(super::postgres, super::$name);
            })*
        }
    };
}

on_both_stores! {
    claims_are_divided_by_weights
    few_jobs_of_an_owner_do_not_wait_for_the_many_of_another
    no_claim_is_empty_while_a_share_has_jobs
    each_kind_of_workers_is_divided
    priorities_decide_within_a_share
    priorities_decide_first_in_queues_of_the_admin
}

fn run(open: Opener, check: fn(&mut Jobs)) {
    let mut contract = Contract::new(open);
    let store = contract.store.take().unwrap();
    let mut sorter = WorkerRegistration::of("w".parse().unwrap());
    sorter.capabilities.tools = vec!["sort".to_owned()];
    let kinds = [ClaimantCapabilities::Anything, ClaimantCapabilities::of(&sorter)].map(Arc::new);
    let (environment, share_terms) = (&contract.environment, Arc::default());
    let mut jobs = Jobs { store, runtime: &environment.runtime, kinds, share_terms, actions: 0 };
    jobs.add_plan();
    check(&mut jobs);
}

/// Jobs of a store, which owners submit and workers claim.
struct Jobs<'r> {
    store: Arc<dyn Store>,
    runtime: &'r tokio::runtime::Runtime,
    kinds: [Arc<ClaimantCapabilities>; 2],
    share_terms: Arc<ShareTerms>,
    actions: usize,
}

impl Jobs<'_> {
    fn add_plan(&self) {
        let plan = StoredPlan::unsigned("p".parse().unwrap(), PLAN.into(), Timestamp(1));
        self.runtime.block_on(self.store.add_plan(plan.into())).unwrap().unwrap();
    }

    fn submit(&mut self, owner: &str, count: usize, priority: i32) {
        self.actions += 1;
        let plan: Plan = parse(PLAN.as_bytes()).unwrap();
        let plan_id: PlanId = "p".parse().unwrap();
        let id = format!("{owner}-{}", self.actions).parse().unwrap();
        let owner = Some(Owner::new("client", owner));
        let action = Action { owner, priority, ..Action::new(id, plan_id, Timestamp(1)) };
        let job = |number| NewJob {
            job_id: format!("{}-{number}", action.action_id).parse().unwrap(),
            input: "{}".into(),
            own: None,
        };
        let (needs, jobs) = (action_bounds::needs(&action, &plan), (0..count).map(job).collect());
        let terms = JobParams { priority, ..JobParams::default() };
        let new = NewAction { needs, terms, ..NewAction::new(action, jobs) };
        let added = self.runtime.block_on(self.store.add_action(new)).unwrap().unwrap();
        assert_eq!(added, AddOutcome::New);
    }

    /// Claims `count` jobs by workers of a kind. Returns the owner of each, or stops if there is no
    /// job for all claimants.
    fn claim(&self, kind: usize, count: usize) -> Vec<String> {
        let claimant = Claimant {
            holder: format!("w{kind}").as_str().into(),
            capabilities: Arc::clone(&self.kinds[kind]),
            queues: Arc::new(["ready".to_owned()]),
            share_terms: Arc::clone(&self.share_terms),
            visibility_ms: None,
        };
        let mut served = Vec::new();
        while served.len() < count {
            let wanted = AT_ONCE.min(count - served.len());
            let claims = self.store.claim(vec![claimant.clone(); wanted], Timestamp(2), 0);
            let claims = self.runtime.block_on(claims).unwrap();
            let owner = |action_id: &str| action_id.split('-').next().unwrap().to_owned();
            let before = served.len();
            served.extend(claims.iter().flatten().map(|claim| owner(claim.job.action_id.as_str())));
            if served.len() < before + wanted {
                break;
            }
        }
        served
    }
}

fn count(served: &[String], owner: &str) -> usize {
    served.iter().filter(|served| *served == owner).count()
}

fn claims_are_divided_by_weights(jobs: &mut Jobs<'_>) {
    let heavy = KeyShares { weight: Some(3), ..KeyShares::default() };
    jobs.share_terms = Arc::new(ShareTerms::default().with_keys(&[(Owner::new("client", "a"), heavy)]));
    jobs.submit("b", 2000, 0);
    jobs.submit("a", 2000, 0);
    let served = jobs.claim(0, 2000);
    let of_a = count(&served, "a");
    assert!(served.len() == 2000 && (1425..=1575).contains(&of_a), "{of_a} of {}", served.len());
}

fn few_jobs_of_an_owner_do_not_wait_for_the_many_of_another(jobs: &mut Jobs<'_>) {
    jobs.submit("a", 3000, 0);
    assert_eq!(jobs.claim(0, 500).len(), 500);
    jobs.submit("b", 100, 0);
    let served = jobs.claim(0, 300);
    let of_b: Vec<usize> = (0..served.len()).filter(|at| served[*at] == "b").collect();
    // Without the other share, the 95th job would be the 95th claim.
    assert!(of_b.len() == 100 && of_b[94] + 1 < 2 * 95, "{of_b:?}");
}

fn no_claim_is_empty_while_a_share_has_jobs(jobs: &mut Jobs<'_>) {
    for (owner, count) in [("a", 200), ("b", 7), ("c", 40)] {
        jobs.submit(owner, count, 0);
    }
    let served = jobs.claim(0, 247);
    assert_eq!(["a", "b", "c"].map(|owner| count(&served, owner)), [200, 7, 40]);
    assert_eq!(jobs.claim(0, 1).len(), 0);
}

fn each_kind_of_workers_is_divided(jobs: &mut Jobs<'_>) {
    jobs.submit("a", 2000, 0);
    // Workers of the other kind have given many jobs to the only owner.
    assert_eq!(jobs.claim(1, 1000).len(), 1000);
    jobs.submit("b", 500, 0);
    for kind in [0, 1] {
        let served = jobs.claim(kind, 200);
        assert!((99..=101).contains(&count(&served, "b")), "{kind}: {}", count(&served, "b"));
    }
}

fn priorities_decide_within_a_share(jobs: &mut Jobs<'_>) {
    for (owner, priority) in [("a", 0), ("a", 5), ("b", -5)] {
        jobs.submit(owner, 1, priority);
    }
    let first_two = jobs.claim(0, 2);
    assert_eq!((count(&first_two, "a"), count(&first_two, "b")), (1, 1));
    assert_eq!(jobs.claim(0, 1), ["a"]);
}

fn priorities_decide_first_in_queues_of_the_admin(jobs: &mut Jobs<'_>) {
    let priority_queues = ["ready".to_owned()].into();
    jobs.share_terms = Arc::new(ShareTerms { priority_queues, ..ShareTerms::default() });
    jobs.submit("b", 20, 0);
    jobs.submit("a", 20, 0);
    jobs.submit("a", 20, 5);
    assert_eq!(count(&jobs.claim(0, 20), "a"), 20);
    assert_eq!(count(&jobs.claim(0, 20), "a"), 10);
}
