//! Concurrency keys: of the jobs with equal keys, a bounded number run at once, also of several
//! actions.
//!
//! A key is a [limit](crate::limit) whose key has the owner of the action. Keys of several owners
//! and keys of other limits therefore never are the same.

use std::collections::HashSet;

use agenix_protocol::{
    documents::{ActionSubmission, ConcurrencyKey, Plan},
    limits::{Limits, exceeds},
};
use serde_json::value::RawValue;

use crate::{key_template::KeyTemplate, limit::LimitTerms, owner::Owner, rejection::Rejection};

/// Beginning of the key of each limit that stands for a concurrency key.
const PREFIX: &str = "concurrency:";
/// Beginnings of the keys of limits that agq makes. Jobs of the Open Job Spec cannot choose them.
pub const RESERVED: [&str; 3] = ["action:", PREFIX, "plan:"];

fn template(concurrency: &ConcurrencyKey) -> KeyTemplate<'_> {
    KeyTemplate { name: "concurrency.key", template: &concurrency.key }
}

/// Checks the concurrency key of an action, whatever inputs the action gets, and that each of its
/// jobs has one limit at most.
pub(crate) fn check(action: &ActionSubmission, plan: &Plan) -> Result<(), String> {
    let own = [
        ("max_running", action.max_running.is_some()),
        ("rate", action.rate.is_some()),
        ("concurrency", action.concurrency.is_some()),
    ];
    let has_bounds = plan.max_running.is_some() || plan.rate.is_some();
    if let (true, Some((own, _))) = (has_bounds, own.into_iter().find(|(_, is_given)| *is_given)) {
        return Err(format!(
            "{own} is given, and the plan {} has max_running or rate for all its jobs, and a job has one limit: leave \
             {own} out, or submit a plan without these bounds",
            action.plan_id
        ));
    }
    let Some(concurrency) = &action.concurrency else { return Ok(()) };
    if concurrency.max_running == 0 {
        return Err("concurrency.max_running is 0: use 1 or more".into());
    }
    let other = [("max_running", action.max_running.is_some()), ("rate", action.rate.is_some())];
    if let Some((other, _)) = other.into_iter().find(|(_, is_given)| *is_given) {
        return Err(format!(
            "{other} and concurrency are both given, and a job has one limit: leave one of them out"
        ));
    }
    template(concurrency).check()
}

/// Checks that each input has a concurrency key, and that they have few enough different keys.
pub fn check_inputs(
    concurrency: &ConcurrencyKey,
    inputs: &[Box<RawValue>],
    limits: &Limits,
) -> Result<(), Rejection> {
    let mut keys = HashSet::new();
    for (at, input) in inputs.iter().enumerate() {
        let key = template(concurrency).render(input);
        keys.insert(key.map_err(|fault| Rejection::InvalidAction(format!("inputs[{at}]{fault}")))?);
        if exceeds(keys.len(), limits.max_concurrency_keys) {
            return Err(Rejection::InvalidAction(format!(
                "inputs[{at}] has one more different concurrency.key than the maximum of {}: submit the inputs in several \
                 parts, or raise --max-concurrency-keys of agq",
                limits.max_concurrency_keys
            )));
        }
    }
    Ok(())
}

/// Checks that the placeholders of the key name only fields that begin with one of `known`.
pub(crate) fn check_fields(concurrency: &ConcurrencyKey, known: &[&str]) -> Result<(), String> {
    template(concurrency).check_fields(known)
}

/// Returns the key of the limit of a job with an input, in an action of `owner`.
///
/// # Errors
///
/// Returns the fault as a text that follows the name of the input.
pub(crate) fn limit_key(
    concurrency: &ConcurrencyKey,
    owner: Option<&Owner>,
    input: &RawValue,
) -> Result<String, String> {
    let key = template(concurrency).render(input)?;
    // The text before the key has exactly two colons, and ends with them if there is no owner.
    let owner = owner.map_or(":", Owner::as_str);
    Ok(format!("{PREFIX}{owner}:{key}"))
}

/// Returns the terms of the limits of a concurrency key.
pub(crate) fn terms(concurrency: &ConcurrencyKey) -> LimitTerms {
    LimitTerms { concurrency: Some(concurrency.max_running), rate: None, period_ms: 0 }
}

/// Returns the concurrency key that the limit `key` stands for.
pub(crate) fn of_limit(key: &str) -> Option<&str> {
    let (_role, rest) = key.strip_prefix(PREFIX)?.split_once(':')?;
    rest.split_once(':').map(|(_name, key)| key)
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{documents::parse, limits::Limits};
    use serde_json::value::RawValue;

    use super::{ConcurrencyKey, Owner, Plan, check, check_inputs, limit_key, of_limit};

    fn of_user() -> ConcurrencyKey {
        ConcurrencyKey { key: "user:{{input.user}}".into(), max_running: 2 }
    }

    fn inputs(users: impl IntoIterator<Item = u64>) -> Vec<Box<RawValue>> {
        let input = |user| RawValue::from_string(format!(r#"{{"user":{user}}}"#)).unwrap();
        users.into_iter().map(input).collect()
    }

    #[test]
    fn concurrency_key_belongs_to_the_owner_of_the_action() {
        let input = &inputs([7])[0];
        let of = |owner: Option<&Owner>| limit_key(&of_user(), owner, input).unwrap();
        let alice = Owner::new("client", "alice");
        assert_eq!(of(Some(&alice)), "concurrency:client:alice:user:7");
        assert_eq!(of(None), "concurrency:::user:7");
        assert_ne!(of(None), of(Some(&alice)));
        let shadowing = ConcurrencyKey { key: "client:alice:user:7".into(), max_running: 2 };
        assert_ne!(limit_key(&shadowing, None, input).unwrap(), of(Some(&alice)));
        for owner in [None, Some(&alice)] {
            assert_eq!(of_limit(&of(owner)), Some("user:7"));
        }
        assert_eq!([of_limit("action:a"), of_limit("queue:concurrency:::x")], [None, None]);
    }

    #[test]
    fn concurrency_key_and_other_bounds_exclude_each_other() {
        let mut plan: Plan = parse(br#"{"tasks":[{"task_number":1,"command":"true"}]}"#).unwrap();
        let refused = |plan: &Plan, more: &str| {
            let json = format!(r#"{{"plan_id":"p","inputs":[{{}}],"concurrency":{more}}}"#);
            check(&parse(json.as_bytes()).unwrap(), plan)
        };
        assert_eq!(refused(&plan, r#"{"key":"a"}"#), Ok(()));
        assert!(
            refused(&plan, r#"{"key":"a"},"max_running":2"#)
                .unwrap_err()
                .starts_with("max_running and concurrency")
        );
        assert!(
            refused(&plan, r#"{"key":"a"},"rate":"2/s""#).unwrap_err().starts_with("rate and concurrency")
        );
        let none = refused(&plan, r#"{"key":"a","max_running":0}"#).unwrap_err();
        assert_eq!(none, "concurrency.max_running is 0: use 1 or more");
        assert_eq!(refused(&plan, r#"{"key":""}"#).unwrap_err(), "concurrency.key is empty");
        plan.rate = Some("2/s".parse().unwrap());
        let both = refused(&plan, r#"{"key":"a"}"#).unwrap_err();
        assert!(both.starts_with("concurrency is given, and the plan p has max_running or rate"), "{both}");
    }

    #[test]
    fn inputs_have_a_bounded_number_of_different_keys() {
        let limits = |most| Limits { max_concurrency_keys: most, ..Limits::default() };
        let check = |users: Vec<u64>, most| check_inputs(&of_user(), &inputs(users), &limits(most));
        assert_eq!(check(vec![1, 2, 1, 2, 2], 2), Ok(()));
        assert_eq!(check((0..100).collect(), 0), Ok(()), "there is no bound");
        let refused = check(vec![1, 2, 1, 3], 2).unwrap_err().to_string();
        assert!(
            refused.contains("inputs[3] has one more different concurrency.key than the maximum of 2"),
            "{refused}"
        );
    }

    #[test]
    fn input_without_a_field_of_the_key_is_named() {
        let mut all = inputs([1]);
        all.push(RawValue::from_string("{}".into()).unwrap());
        let refused = check_inputs(&of_user(), &all, &Limits::default()).unwrap_err().to_string();
        let why = "Invalid action schema: inputs[1] has no field 'user', which concurrency.key uses";
        assert_eq!(refused, why);
    }
}
