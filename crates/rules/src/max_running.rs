//! Bound on the running jobs of an action: a [limit](crate::limit) whose key names the action.

use agenix_protocol::documents::Plan;

use crate::{
    action::Action,
    job::{JobOverrides, JobParams, Ojs},
    limit::LimitTerms,
    ojs::PLAN_PREFIX,
    plan,
};

/// Returns the parameters that replace `terms`, those of the action, for each job of an action with
/// a bound. `None` without a bound.
pub fn overrides(action: &Action, plan: &Plan, terms: &JobParams) -> Option<JobOverrides> {
    let most = action.max_running?;
    let key = format!("action:{}", action.action_id);
    let ojs = Ojs {
        queue: action.queue.clone(),
        limit: Some(key.clone()),
        ..Ojs::of(format!("{PLAN_PREFIX}{}", action.plan_id))
    };
    let mut needs = plan::needs(plan);
    needs.limit = Some(key);
    Some(JobOverrides {
        plan_id: action.plan_id.clone(),
        queue: action.queue.clone(),
        needs,
        terms: JobParams { ojs: Some(Box::new(ojs)), ..terms.clone() },
        is_named: false,
        unique: None,
        limit: Some(LimitTerms { concurrency: Some(most), ..LimitTerms::default() }),
    })
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{Plan, parse},
        time::Timestamp,
    };

    use super::{Action, JobParams, overrides};

    #[test]
    fn max_running_is_a_limit_of_the_action_alone() {
        let plan: Plan = parse(br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#).unwrap();
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1));
        let terms = JobParams { max_retries: 3, ..JobParams::default() };
        assert_eq!(overrides(&action, &plan, &terms), None);
        let bounded = Action { max_running: Some(2), queue: "night".into(), ..action };
        let own = overrides(&bounded, &plan, &terms).unwrap();
        assert_eq!(
            (own.needs.limit.as_deref(), own.needs.tools),
            (Some("action:a"), vec!["sort".to_owned()])
        );
        assert_eq!((own.limit.unwrap().concurrency, own.limit.unwrap().rate), (Some(2), None));
        assert_eq!((own.terms.max_retries, own.queue.as_str()), (3, "night"));
        let ojs = own.terms.ojs.unwrap();
        assert_eq!((ojs.limit.as_deref(), ojs.is_reserved()), (Some("action:a"), false));
    }
}
