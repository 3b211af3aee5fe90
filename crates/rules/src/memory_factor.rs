//! Factor of the memory of a retry, in plans and actions: whether jobs want memory that it raises.

use agenix_protocol::documents::{ActionSubmission, MEMORY, MemoryFactor, Plan, Quantities};

/// Checks that the jobs of a plan with a factor want memory, because a retry has none to raise
/// otherwise.
pub(crate) fn check_plan(plan: &Plan) -> Result<(), String> {
    check(plan.retry_memory_factor, &plan.requires.resources, "requires.resources.memory")
}

/// Checks that the jobs of an action with a factor of its own want memory.
pub(crate) fn check_action(action: &ActionSubmission, plan: &Plan) -> Result<(), String> {
    // A plan that was deleted since the first submission has no tasks here.
    if plan.tasks.is_empty() {
        return Ok(());
    }
    let resources = plan.requires.resources.overridden(&action.resources);
    check(action.retry_memory_factor, &resources, "resources.memory")
}

fn check(factor: Option<MemoryFactor>, resources: &Quantities, place: &str) -> Result<(), String> {
    if factor.is_none() || resources.get(MEMORY) > 0 {
        return Ok(());
    }
    Err(format!(
        "retry_memory_factor is given, and a job wants no memory, so a retry has nothing to raise: set {place}, or leave \
         retry_memory_factor out"
    ))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{Plan, parse};

    use super::{check_action, check_plan};

    fn plan(resources: &str, factor: &str) -> Plan {
        let json = format!(
            r#"{{"plan_id":"p","tasks":[{{"task_number":1,"command":"sort"}}],
                "requires":{{"resources":{resources}}},"retry_memory_factor":{factor}}}"#
        );
        parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn factor_without_memory_is_refused() {
        let refused = |checked: Result<(), String>| checked.err().unwrap_or_default();
        for resources in ["{}", r#"{"cpus":1}"#, r#"{"memory":0}"#] {
            let text = refused(check_plan(&plan(resources, "2")));
            assert!(
                text.ends_with("set requires.resources.memory, or leave retry_memory_factor out"),
                "{text}"
            );
            assert_eq!(check_plan(&plan(resources, "null")), Ok(()));
        }
        assert_eq!(check_plan(&plan(r#"{"memory":1}"#, "2")), Ok(()));
        let of = |own: &str, with: &Plan| {
            let json = format!(r#"{{"plan_id":"p","inputs":[{{}}]{own}}}"#);
            refused(check_action(&parse(json.as_bytes()).unwrap(), with))
        };
        let (with, without) = (plan(r#"{"memory":"1G"}"#, "2"), plan("{}", "null"));
        let factor = r#","retry_memory_factor":3"#;
        assert!(of(factor, &without).ends_with("set resources.memory, or leave retry_memory_factor out"));
        let none = r#","retry_memory_factor":3,"resources":{"memory":0}"#;
        assert!(of(none, &with).starts_with("retry_memory_factor is given, and a job wants no memory"));
        let some = r#","retry_memory_factor":3,"resources":{"memory":"1M"}"#;
        assert_eq!([of(factor, &with), of(some, &without), of("", &without)], ["", "", ""]);
        assert_eq!(of(r#","resources":{"memory":0}"#, &with), "", "the action takes the memory away");
        let deleted = Plan { tasks: Vec::new(), ..without };
        assert_eq!(of(factor, &deleted), "", "a repeated submission finds its plan deleted");
    }
}
