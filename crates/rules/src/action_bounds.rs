//! Bounds that an action or its plan gives to each job: the bound on the running jobs and the rate
//! of their starts, which are a [limit](crate::limit) whose key names the action or the plan; the
//! [concurrency key](crate::concurrency_key), which is another limit; the
//! [uniqueness](crate::unique_jobs); and the [budget](crate::budget).

use std::{collections::HashMap, sync::Arc};

use agenix_protocol::{documents::Plan, ids::PlanId};
use serde_json::value::RawValue;

use crate::{
    action::Action,
    capability::Needs,
    concurrency_key,
    fair_share::share_of,
    job::{JobOverrides, JobParams, Ojs, Unique},
    limit::LimitTerms,
    memory_retry,
    ojs::PLAN_PREFIX,
    plan,
    rejection::Rejection,
    unique_jobs,
};

/// Returns the parameters that replace `terms`, those of the action, for the job of each input. An
/// action without bounds, concurrency key, uniqueness and budget has no such parameters. Jobs with
/// equal parameters share one value.
pub fn overrides(
    action: &Action,
    plan: &Plan,
    terms: &JobParams,
    inputs: &[Box<RawValue>],
) -> Result<Vec<Option<Arc<JobOverrides>>>, Rejection> {
    let options = &action.wishes.scheduling;
    let (plan_id, owner) = (&action.plan_id, action.owner.as_ref());
    let (of_action, of_plan) = (limit(action), plan::limit(plan_id, plan));
    if of_plan.is_some() && (of_action.is_some() || options.concurrency.is_some()) {
        // `action::check` refuses both, so the plan had no bounds when the action was submitted.
        return Err(Rejection::PlanReplaced(plan_id.clone()));
    }
    let common = of_action.or(of_plan);
    let mut shared: HashMap<Option<String>, Arc<JobOverrides>> = HashMap::new();
    let mut of_input = |input: &RawValue| -> Result<Option<Arc<JobOverrides>>, String> {
        let limit = match &options.concurrency {
            Some(key) => Some((concurrency_key::limit_key(key, owner, input)?, concurrency_key::terms(key))),
            None => common.clone(),
        };
        if let Some(unique) = &options.unique {
            let unique = unique_jobs::of_input(unique, (plan_id, owner), input)?;
            return Ok(Some(Arc::new(with_limit(action, plan, terms, (limit, Some(unique))))));
        }
        if limit.is_none() && action.budget.is_none() {
            return Ok(None);
        }
        let key = limit.as_ref().map(|(key, _)| key.clone());
        let own =
            shared.entry(key).or_insert_with(|| Arc::new(with_limit(action, plan, terms, (limit, None))));
        Ok(Some(Arc::clone(own)))
    };
    let with_place = |(at, input): (usize, &RawValue)| {
        of_input(input).map_err(|fault| Rejection::InvalidAction(format!("inputs[{at}]{fault}")))
    };
    inputs.iter().map(AsRef::as_ref).enumerate().map(with_place).collect()
}

fn with_limit(
    action: &Action,
    plan: &Plan,
    terms: &JobParams,
    (limit, unique): (Option<(String, LimitTerms)>, Option<Unique>),
) -> JobOverrides {
    let (key, limit) = limit.unzip();
    let ojs = Ojs {
        queue: action.queue.clone(),
        limit: key.clone(),
        unique: unique.as_ref().map(|unique| unique.key.clone()),
        budget: action.budget.clone(),
        ..Ojs::of(format!("{PLAN_PREFIX}{}", action.plan_id))
    };
    let mut needs = needs(action, plan);
    needs.limit = key;
    needs.budget = action.budget.as_ref().map(|budget| budget.name.clone());
    JobOverrides {
        plan_id: action.plan_id.clone(),
        queue: action.queue.clone(),
        needs,
        terms: JobParams { ojs: Some(Box::new(ojs)), ..terms.clone() },
        is_named: false,
        unique,
        limit,
    }
}

/// Returns the needs of each job of an action, without its limit and its budget: those of the plan
/// with the quantities and the share of the action.
pub fn needs(action: &Action, plan: &Plan) -> Needs {
    let resources = plan.requires.resources.overridden(&action.wishes.scheduling.resources);
    let resources = (!resources.is_empty()).then(|| Box::new(resources));
    let share = share_of(action.wishes.scheduling.share.as_ref(), action.owner.as_ref());
    Needs { resources, share, ..plan::needs(plan) }
}

/// Checks that a job of `action` with the needs `stored` can run the plan that now has the id of
/// the job's plan.
pub fn check_same_needs(
    action: &Action,
    plan: &Plan,
    plan_id: &PlanId,
    stored: &Needs,
) -> Result<(), Rejection> {
    // Limit, budget and share belong to the job, and not to its plan, unless the plan has bounds.
    let of_plan = plan::limit(plan_id, plan).map(|(key, _)| key);
    let (limit, budget) = (of_plan.or_else(|| stored.limit.clone()), stored.budget.clone());
    let factor = memory_retry::factor(action, plan);
    let needs = memory_retry::with_raised_memory(factor, needs(action, plan), stored);
    let now = Needs { limit, budget, share: stored.share.clone(), ..needs };
    if now == *stored { Ok(()) } else { Err(Rejection::PlanReplaced(plan_id.clone())) }
}

/// Returns the limit of an action, and its key; `None` if the action has no bound.
fn limit(action: &Action) -> Option<(String, LimitTerms)> {
    let terms = LimitTerms::new(action.max_running, action.wishes.scheduling.rate)?;
    Some((format!("action:{}", action.action_id), terms))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agenix_protocol::{
        documents::{ConcurrencyKey, Plan, parse},
        time::Timestamp,
    };
    use serde_json::value::RawValue;

    use super::{Action, JobOverrides, JobParams, LimitTerms, Needs, Rejection, check_same_needs, needs};
    use crate::{
        action::{ActionOptions, SchedulingOptions},
        budget::JobBudget,
        owner::Owner,
    };

    type Own = Option<Arc<JobOverrides>>;

    fn of_inputs(action: &Action, plan: &Plan, inputs: &str) -> Result<Vec<Own>, Rejection> {
        super::overrides(
            action,
            plan,
            &JobParams::default(),
            &serde_json::from_str::<Vec<_>>(inputs).unwrap(),
        )
    }

    fn overrides(action: &Action, plan: &Plan, terms: &JobParams) -> Own {
        let inputs = [RawValue::from_string("{}".into()).unwrap()];
        super::overrides(action, plan, terms, &inputs).unwrap().remove(0)
    }

    #[test]
    fn jobs_with_one_concurrency_key_share_their_parameters() {
        let plan: Plan = parse(br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#).unwrap();
        let concurrency = Some(ConcurrencyKey { key: "user:{{input.user}}".into(), max_running: 2 });
        let scheduling = SchedulingOptions { concurrency, ..SchedulingOptions::default() };
        let wishes = ActionOptions { scheduling, ..ActionOptions::default() };
        let action =
            Action { wishes, ..Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1)) };
        let all = of_inputs(&action, &plan, r#"[{"user":7},{"user":8},{"user":7}]"#).unwrap();
        let all: Vec<Arc<JobOverrides>> = all.into_iter().flatten().collect();
        let keys = all.iter().map(|own| own.needs.limit.as_deref().unwrap());
        let seven = "concurrency:::user:7";
        assert_eq!(keys.collect::<Vec<_>>(), [seven, "concurrency:::user:8", seven]);
        assert!(Arc::ptr_eq(&all[0], &all[2]));
        assert_eq!(all[0].limit, Some(LimitTerms { concurrency: Some(2), rate: None, period_ms: 0 }));
        assert_eq!(all[0].terms.ojs.as_ref().unwrap().limit.as_deref(), Some(seven));
        let refused = of_inputs(&action, &plan, r#"[{"user":7},{}]"#).unwrap_err().to_string();
        assert!(refused.contains("inputs[1] has no field 'user', which concurrency.key uses"), "{refused}");
    }

    #[test]
    fn max_running_is_a_limit_of_the_action_alone() {
        let plan: Plan = parse(br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#).unwrap();
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1));
        let terms = JobParams { max_retries: 3, ..JobParams::default() };
        assert_eq!(overrides(&action, &plan, &terms), None);
        let bounded = Action { max_running: Some(2), queue: "night".into(), ..action };
        let own = overrides(&bounded, &plan, &terms).unwrap();
        assert_eq!(
            (own.needs.limit.as_deref(), own.needs.tools.clone()),
            (Some("action:a"), vec!["sort".to_owned()])
        );
        assert_eq!((own.limit.unwrap().concurrency, own.limit.unwrap().rate), (Some(2), None));
        assert_eq!((own.terms.max_retries, own.queue.as_str()), (3, "night"));
        let ojs = own.terms.ojs.as_ref().unwrap();
        assert_eq!((ojs.limit.as_deref(), ojs.is_reserved()), (Some("action:a"), false));
    }

    #[test]
    fn rate_is_a_limit_of_the_action_with_and_without_a_bound_on_running_jobs() {
        let plan: Plan = parse(br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#).unwrap();
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1));
        let scheduling =
            SchedulingOptions { rate: Some("3/10s".parse().unwrap()), ..SchedulingOptions::default() };
        let wishes = ActionOptions { scheduling, ..ActionOptions::default() };
        let limit = |max_running| {
            let action = Action { max_running, wishes: wishes.clone(), ..action.clone() };
            let own = overrides(&action, &plan, &JobParams::default()).unwrap();
            assert_eq!(own.needs.limit.as_deref(), Some("action:a"));
            own.limit.unwrap()
        };
        let rate = LimitTerms { concurrency: None, rate: Some(3), period_ms: 10_000 };
        assert_eq!([limit(None), limit(Some(2))], [rate, LimitTerms { concurrency: Some(2), ..rate }]);
    }

    #[test]
    fn quantities_of_an_action_replace_those_of_its_plan() {
        let plan = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}],"requires":{"resources":{"cpus":2,"gpus":1}}}"#;
        let plan: Plan = parse(plan).unwrap();
        let of = |own: &str| {
            let scheduling = SchedulingOptions {
                resources: parse(own.as_bytes()).unwrap(),
                ..SchedulingOptions::default()
            };
            let wishes = ActionOptions { scheduling, ..ActionOptions::default() };
            let action =
                Action { wishes, ..Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1)) };
            let needs = needs(&action, &plan);
            assert_eq!(check_same_needs(&action, &plan, &action.plan_id, &needs), Ok(()));
            let limited = Action { max_running: Some(1), ..action };
            let own = overrides(&limited, &plan, &JobParams::default()).unwrap().needs.clone();
            assert_eq!(own.resources, needs.resources);
            assert_eq!(check_same_needs(&limited, &plan, &limited.plan_id, &own), Ok(()));
            needs.resources.map(|resources| resources.to_string())
        };
        assert_eq!(of("{}").as_deref(), Some("cpus 2, gpus 1"));
        assert_eq!(of(r#"{"cpus":0.5,"memory":"1G"}"#).as_deref(), Some("cpus 0.5, gpus 1, memory 1G"));
        assert_eq!(of(r#"{"cpus":0,"gpus":0}"#), None, "nothing is left");
        let other: Plan = parse(br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#).unwrap();
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1));
        let replaced = check_same_needs(&action, &other, &action.plan_id, &needs(&action, &plan));
        assert_eq!(replaced, Err(Rejection::PlanReplaced(action.plan_id)));
    }

    #[test]
    fn bounds_of_a_plan_are_a_limit_of_all_its_actions() {
        let plan: Plan = parse(
            br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}],"max_running":4,"rate":"3/10s"}"#,
        )
        .unwrap();
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1));
        let own = overrides(&action, &plan, &JobParams::default()).unwrap();
        assert_eq!(own.needs.limit.as_deref(), Some("plan:p"));
        let terms = LimitTerms { concurrency: Some(4), rate: Some(3), period_ms: 10_000 };
        assert_eq!(own.limit, Some(terms));
        let bounded = Action { max_running: Some(2), ..action };
        let both = of_inputs(&bounded, &plan, "[{}]").unwrap_err();
        assert_eq!(both, Rejection::PlanReplaced("p".parse().unwrap()));
    }

    #[test]
    fn plan_with_bounds_retries_only_jobs_under_its_limit() {
        let unbounded: Plan =
            parse(br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#).unwrap();
        let bounded = Plan { max_running: Some(2), ..unbounded.clone() };
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1));
        let may_retry = |plan: &Plan, key: Option<&str>| {
            let stored = Needs { limit: key.map(str::to_owned), ..needs(&action, plan) };
            check_same_needs(&action, plan, &action.plan_id, &stored).is_ok()
        };
        assert!(may_retry(&bounded, Some("plan:p")));
        assert!(!may_retry(&bounded, None) && !may_retry(&bounded, Some("action:a")));
        for key in [None, Some("plan:p"), Some("action:a")] {
            assert!(may_retry(&unbounded, key), "{key:?}");
        }
    }

    #[test]
    fn jobs_belong_to_the_share_of_their_owner_or_to_the_named_one() {
        let plan: Plan = parse(br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#).unwrap();
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1));
        let unowned = needs(&action, &plan);
        assert_eq!(unowned.share, None);
        let of_alice = Action { owner: Some(Owner::new("client", "alice")), ..action };
        assert_eq!(needs(&of_alice, &plan).share.as_deref(), Some("client:alice"));
        // A job that was stored before there were shares.
        assert_eq!(check_same_needs(&of_alice, &plan, &of_alice.plan_id, &unowned), Ok(()));
        let scheduling =
            SchedulingOptions { share: Some("night".parse().unwrap()), ..SchedulingOptions::default() };
        let wishes = ActionOptions { scheduling, ..ActionOptions::default() };
        let bounded = Action { wishes, max_running: Some(1), ..of_alice };
        let own = overrides(&bounded, &plan, &JobParams::default()).unwrap();
        assert_eq!(own.needs.share.as_deref(), Some("share:night"));
    }

    #[test]
    fn budget_of_an_action_is_that_of_each_job() {
        let plan: Plan = parse(br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#).unwrap();
        let budget = JobBudget { name: "alice".into(), ..JobBudget::default() };
        let action = Action {
            budget: Some(Box::new(budget.clone())),
            ..Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1))
        };
        let own = overrides(&action, &plan, &JobParams::default()).unwrap();
        assert_eq!((&own.needs.limit, own.needs.budget.as_deref(), own.limit), (&None, Some("alice"), None));
        assert_eq!(own.terms.ojs.as_ref().unwrap().budget, Some(Box::new(budget)));
    }
}
