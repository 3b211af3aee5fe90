//! Memory of a retry: a job whose task the kernel has killed for lack of memory may want more for
//! its next attempt.

use agenix_protocol::documents::{MAX_MEMORY_BYTES, MEMORY, MemoryFactor, Plan, TaskResult};

use crate::{action::Action, capability::Needs};

/// Maximum memory of a retry, as a multiple of the memory of the first attempt.
pub const MAX_GROWTH: u64 = 16;

/// Unit to which the memory of a retry is rounded up, in bytes: a mebibyte.
const UNIT: u64 = 1 << 20;

/// Returns the factor of the jobs of an action: its own, or else that of its plan.
pub fn factor(action: &Action, plan: &Plan) -> Option<MemoryFactor> {
    action.wishes.scheduling.retry_memory_factor.or(plan.retry_memory_factor)
}

/// Returns true if a task of a failed job lacked memory.
pub fn is_lack_of_memory(results: &[TaskResult]) -> bool {
    results.iter().any(|result| result.out_of_memory)
}

/// Returns the needs of the next attempt of a job that lacked memory. `first` are the needs of its
/// first attempt, `last` those of its last one. `offered` is the most memory that a worker will
/// ever offer, if that is known. Returns `None` without a factor, without a quantity of memory, and
/// at the maximum.
pub fn raised(
    factor: Option<MemoryFactor>,
    first: &Needs,
    last: &Needs,
    offered: Option<u64>,
) -> Option<Needs> {
    let mut raised = last.clone();
    let resources = raised.resources.as_mut()?;
    let before = resources.get(MEMORY);
    let most = maximum(first)?.min(offered.unwrap_or(u64::MAX));
    let next = factor?.times(before).next_multiple_of(UNIT).min(most);
    if before == 0 || next <= before {
        return None;
    }
    resources.set(MEMORY, next);
    Some(raised)
}

/// Returns `first`, the needs of the first attempt, with the memory of `stored`, if a retry may
/// have raised the memory to this amount.
pub fn with_raised_memory(factor: Option<MemoryFactor>, first: Needs, stored: &Needs) -> Needs {
    let raised = stored.resources.as_ref().map_or(0, |resources| resources.get(MEMORY));
    let is_possible = factor.and_then(|_| maximum(&first)).is_some_and(|max| raised <= max);
    let mut needs = first;
    if let Some(resources) = needs.resources.as_mut().filter(|_| is_possible)
        && raised > resources.get(MEMORY)
    {
        resources.set(MEMORY, raised);
    }
    needs
}

/// Returns the maximum memory of a retry; `None` if the first attempt wants no memory.
fn maximum(first: &Needs) -> Option<u64> {
    let first = first.resources.as_ref()?.get(MEMORY);
    (first > 0).then(|| first.saturating_mul(MAX_GROWTH).min(MAX_MEMORY_BYTES))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{MAX_MEMORY_BYTES, MEMORY, Plan, Quantities, TaskResult, parse},
        time::Timestamp,
    };

    use super::{Action, Needs, factor, is_lack_of_memory};
    use crate::{
        action::{ActionOptions, SchedulingOptions},
        action_bounds::{check_same_needs, needs},
    };

    fn plan(resources: &str, factor: &str) -> Plan {
        let json = format!(
            r#"{{"plan_id":"p","tasks":[{{"task_number":1,"command":"sort"}}],
                "requires":{{"resources":{resources}}},"retry_memory_factor":{factor}}}"#
        );
        parse(json.as_bytes()).unwrap()
    }

    fn action(scheduling: SchedulingOptions) -> Action {
        let wishes = ActionOptions { scheduling, ..ActionOptions::default() };
        Action { wishes, ..Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1)) }
    }

    fn raised(action: &Action, plan: &Plan, last: &Needs) -> Option<Needs> {
        super::raised(factor(action, plan), &needs(action, plan), last, None)
    }

    /// Returns the memory of each attempt, in mebibytes, until it stays the same.
    fn memory_of_attempts(action: &Action, plan: &Plan) -> Vec<u64> {
        let (mut all, mut now) = (Vec::new(), Some(needs(action, plan)));
        while let Some(needs) = now {
            all.push(needs.resources.as_ref().map_or(0, |resources| resources.get(MEMORY)) >> 20);
            assert_eq!(check_same_needs(action, plan, &action.plan_id, &needs), Ok(()));
            now = raised(action, plan, &needs);
        }
        all
    }

    #[test]
    fn memory_grows_by_the_factor_up_to_sixteen_times() {
        let action = action(SchedulingOptions::default());
        let of = |resources: &str, factor: &str| memory_of_attempts(&action, &plan(resources, factor));
        assert_eq!(of(r#"{"memory":"1G"}"#, "2"), [1024, 2048, 4096, 8192, 16_384]);
        assert_eq!(of(r#"{"memory":"1G"}"#, "4"), [1024, 4096, 16_384]);
        assert_eq!(of(r#"{"memory":"3M"}"#, "1.5")[..4], [3, 5, 8, 12], "it is rounded up");
        assert_eq!(of(r#"{"memory":"1G"}"#, "null"), [1024]);
        assert_eq!(of(r#"{"cpus":1}"#, "2"), [0]);
        assert_eq!(of("{}", "2"), [0]);
        let most = MAX_MEMORY_BYTES >> 20;
        assert_eq!(of(r#"{"memory":"900T"}"#, "2"), [900 << 20, most]);
        assert_eq!(of(r#"{"memory":"1024T"}"#, "2"), [most]);
    }

    #[test]
    fn memory_never_exceeds_a_known_offer() {
        let (action, plan) = (action(SchedulingOptions::default()), plan(r#"{"memory":"600M"}"#, "2"));
        let first = needs(&action, &plan);
        let next = |last: &Needs, offered: u64| {
            super::raised(factor(&action, &plan), &first, last, Some(offered << 20))
        };
        let memory = |needs: &Needs| needs.resources.as_ref().unwrap().get(MEMORY) >> 20;
        let second = next(&first, 1000).unwrap();
        assert_eq!((memory(&second), next(&second, 1000)), (1000, None));
        assert_eq!(memory(&next(&first, 2000).unwrap()), 1200);
        assert_eq!(next(&first, 600), None);
        assert_eq!(next(&first, 0), None);
    }

    #[test]
    fn factor_and_memory_of_an_action_replace_those_of_its_plan() {
        let plan = plan(r#"{"memory":"1G","cpus":2}"#, "2");
        let mut resources = Quantities::default();
        resources.set(MEMORY, 100 << 20);
        let retry_memory_factor = Some("3".parse().unwrap());
        let own =
            action(SchedulingOptions { resources, retry_memory_factor, ..SchedulingOptions::default() });
        assert_eq!(memory_of_attempts(&own, &plan), [100, 300, 900, 1600]);
        assert_eq!(factor(&own, &plan), retry_memory_factor);
        let next = raised(&own, &plan, &needs(&own, &plan)).unwrap();
        assert_eq!(next.resources.unwrap().to_string(), "cpus 2, memory 300M");
    }

    #[test]
    fn limit_and_budget_of_a_job_stay() {
        let (action, plan) = (action(SchedulingOptions::default()), plan(r#"{"memory":"1G"}"#, "2"));
        let (limit, budget) = (Some("action:a".to_owned()), Some("alice".to_owned()));
        let first = Needs { limit, budget, ..needs(&action, &plan) };
        let next = raised(&action, &plan, &first).unwrap();
        assert_eq!(Needs { resources: first.resources.clone(), ..next }, first);
    }

    #[test]
    fn memory_of_another_plan_is_no_raised_one() {
        let (action, with) = (action(SchedulingOptions::default()), plan(r#"{"memory":"1G"}"#, "2"));
        let is_same = |plan: &Plan, memory: u64| {
            let mut stored = needs(&action, &with);
            stored.resources.as_mut().unwrap().set(MEMORY, memory);
            check_same_needs(&action, plan, &action.plan_id, &stored).is_ok()
        };
        assert!(is_same(&with, 1 << 30) && is_same(&with, 16 << 30));
        assert!(!is_same(&with, (1 << 30) - 1) && !is_same(&with, (16 << 30) + 1));
        assert!(!is_same(&plan(r#"{"memory":"1G"}"#, "null"), 2 << 30));
    }

    #[test]
    fn lack_of_memory_of_any_task_counts() {
        let results =
            |out_of_memory| [TaskResult { out_of_memory, ..TaskResult::default() }, TaskResult::default()];
        assert!(is_lack_of_memory(&results(true)) && !is_lack_of_memory(&results(false)));
    }
}
