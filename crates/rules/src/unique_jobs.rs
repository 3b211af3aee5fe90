//! Unique jobs of an action: each job has a key, and an earlier job with the same key counts as in
//! [`Unique`].
//!
//! One write checks all jobs of a submission and adds them, so that two submissions never add the
//! same job. Actions whose inputs need several writes therefore have no unique jobs.

use std::collections::HashMap;

use agenix_protocol::{
    documents::{ActionSubmission, UniqueConflict, UniqueJobs},
    ids::PlanId,
};
use serde_json::{Value, json, value::RawValue};

use crate::{
    hash,
    job::{OnConflict, Unique},
    key_template::KeyTemplate,
    ojs::{COUNTING, exact, parse_duration},
    owner::Owner,
    rejection::Rejection,
};

/// States in which an earlier job counts only if the submitter names them.
const ENDED: [&str; 3] = ["completed", "cancelled", "discarded"];

fn template(unique: &UniqueJobs) -> Option<KeyTemplate<'_>> {
    unique.key.as_deref().map(|template| KeyTemplate { name: "unique.key", template })
}

/// Checks the uniqueness constraint of an action, that each input has a key, and that one write
/// stores all inputs, at most `max_inputs`.
pub fn check(action: &ActionSubmission, max_inputs: usize) -> Result<(), Rejection> {
    let Some(unique) = &action.unique else { return Ok(()) };
    check_options(action, unique, max_inputs).map_err(Rejection::InvalidAction)?;
    let mut of_keys = HashMap::new();
    for (at, input) in action.inputs.iter().enumerate() {
        // Jobs of one action have one owner.
        let own = of_input(unique, (&action.plan_id, None), input);
        let key = own.map_err(|fault| Rejection::InvalidAction(format!("inputs[{at}]{fault}")))?.key;
        if let Some(first) = of_keys.insert(key, at).filter(|_| unique.on_conflict != UniqueConflict::Ignore)
        {
            return Err(Rejection::InvalidAction(format!(
                "inputs[{at}] has the same unique key as inputs[{first}]: leave one of them out, or use unique.on_conflict \
                 ignore"
            )));
        }
    }
    Ok(())
}

fn check_options(action: &ActionSubmission, unique: &UniqueJobs, max_inputs: usize) -> Result<(), String> {
    if action.open {
        return Err("unique and open are both given, and inputs that come later are not compared: leave one of them out".into());
    }
    if action.inputs.len() > max_inputs {
        return Err(format!(
            "unique is given, and there are more than {max_inputs} inputs, which agq does not compare at once: submit them as \
             several actions, or leave unique out"
        ));
    }
    let is_state = |state: &&String| COUNTING.iter().chain(&ENDED).any(|known| known == state);
    if let Some(state) = unique.states.iter().find(|state| !is_state(state)) {
        return Err(format!(
            "unique.states has '{}': use {}, {}",
            state.escape_debug(),
            COUNTING.join(", "),
            ENDED.join(", ")
        ));
    }
    period_ms(unique)?;
    template(unique).map_or(Ok(()), KeyTemplate::check)
}

fn period_ms(unique: &UniqueJobs) -> Result<Option<u64>, String> {
    let parsed = |text: &String| {
        let period = parse_duration(text).filter(|period| *period > 0);
        period.ok_or_else(|| {
            format!("unique.period is '{}': use a duration such as PT10M or P1D", text.escape_debug())
        })
    };
    unique.period.as_ref().map(parsed).transpose()
}

/// Returns the uniqueness constraint of the job of an input.
///
/// # Errors
///
/// Returns the fault as a text that follows the name of the input.
pub(crate) fn of_input(
    unique: &UniqueJobs,
    (plan_id, owner): (&PlanId, Option<&Owner>),
    input: &RawValue,
) -> Result<Unique, String> {
    let key: Value = match template(unique) {
        Some(template) => json!({"key": template.render(input)?}),
        None => json!({"plan": plan_id, "input": exact(input)}),
    };
    // The Open Job Spec has other fields, so its keys differ.
    let key = hash::of_json(&json!({"action_of": owner, "by": key}));
    Ok(Unique {
        key,
        on_conflict: match unique.on_conflict {
            UniqueConflict::Reject => OnConflict::Reject,
            UniqueConflict::Ignore => OnConflict::Ignore,
            UniqueConflict::Replace => OnConflict::Replace,
        },
        states: match unique.states.as_slice() {
            [] => COUNTING.map(String::from).into(),
            states => states.to_vec(),
        },
        period_ms: period_ms(unique).map_err(|fault| format!(": {fault}"))?,
    })
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{ActionSubmission, parse};

    use super::{OnConflict, Owner, Rejection, Unique, check, of_input};

    fn submission(unique: &str, inputs: &str) -> ActionSubmission {
        let json = format!(r#"{{"plan_id":"p","inputs":{inputs},"unique":{unique}}}"#);
        parse(json.as_bytes()).unwrap()
    }

    /// Returns the constraint of the only input, in an action of `owner`.
    fn constraint(unique: &str, plan_id: &str, owner: Option<&Owner>, input: &str) -> Unique {
        let action = submission(unique, &format!("[{input}]"));
        of_input(&action.unique.unwrap(), (&plan_id.parse().unwrap(), owner), &action.inputs[0]).unwrap()
    }

    #[test]
    fn key_of_a_unique_job_is_its_plan_and_input_or_the_template() {
        let of = |unique, plan, input| constraint(unique, plan, None, input).key;
        assert_eq!(of("{}", "p", r#"{"a":1,"b":[2]}"#), of("{}", "p", r#"{ "b":[ 2 ], "a":1 }"#));
        assert_ne!(of("{}", "p", r#"{"a":1}"#), of("{}", "p", r#"{"a":2}"#));
        assert_ne!(of("{}", "p", r#"{"a":1}"#), of("{}", "q", r#"{"a":1}"#));
        let by_order = r#"{"key":"order:{{input.a}}"}"#;
        assert_eq!(of(by_order, "p", r#"{"a":1,"b":1}"#), of(by_order, "q", r#"{"a":1,"b":2}"#));
        assert_ne!(of(by_order, "p", r#"{"a":1}"#), of(by_order, "p", r#"{"a":2}"#));
        let alice = Owner::new("client", "alice");
        assert_ne!(
            of(by_order, "p", r#"{"a":1}"#),
            constraint(by_order, "p", Some(&alice), r#"{"a":1}"#).key
        );
    }

    #[test]
    fn unique_options_have_the_defaults_of_the_open_job_spec() {
        let default = constraint("{}", "p", None, "{}");
        assert_eq!((default.on_conflict, default.period_ms), (OnConflict::Reject, None));
        assert_eq!(default.states, ["available", "active", "scheduled", "retryable", "pending"]);
        let given = r#"{"on_conflict":"replace","states":["completed"],"period":"PT10M"}"#;
        let given = constraint(given, "p", None, "{}");
        assert_eq!((given.on_conflict, given.period_ms), (OnConflict::Replace, Some(600_000)));
        assert_eq!(given.states, ["completed"]);
    }

    #[test]
    fn unique_options_are_checked_with_all_inputs() {
        let check = |action: &ActionSubmission, most| {
            check(action, most).map_err(|refused| match refused {
                Rejection::InvalidAction(text) => text,
                other => other.to_string(),
            })
        };
        let of = |unique, inputs| check(&submission(unique, inputs), 9);
        assert_eq!(of(r#"{"key":"{{input.a}}","period":"P1D","states":["active"]}"#, r#"[{"a":1}]"#), Ok(()));
        for (unique, fault) in [
            (r#"{"key":""}"#, "unique.key is empty"),
            (r#"{"key":"{{input.a}}"}"#, "inputs[1] has no field 'a', which unique.key uses"),
            (r#"{"states":["ready"]}"#, "unique.states has 'ready': use available, active"),
            (r#"{"period":"10m"}"#, "unique.period is '10m': use a duration such as PT10M or P1D"),
            (r#"{"period":"PT0S"}"#, "unique.period is 'PT0S'"),
        ] {
            let refused = of(unique, r#"[{"a":1},{"b":1}]"#).unwrap_err();
            assert!(refused.starts_with(fault), "{refused}");
        }
        let twice = of(r#"{"key":"{{input.a}}"}"#, r#"[{"a":1},{"a":2},{"a":1}]"#).unwrap_err();
        assert!(twice.starts_with("inputs[2] has the same unique key as inputs[0]"), "{twice}");
        assert_eq!(of(r#"{"on_conflict":"ignore"}"#, r#"[{"a":1},{"a":1}]"#), Ok(()));
        let open = ActionSubmission { open: true, ..submission("{}", "[]") };
        assert!(check(&open, 9).unwrap_err().starts_with("unique and open are both given"));
        let three = submission("{}", r#"[{"a":1},{"a":2},{"a":3}]"#);
        assert_eq!(check(&three, 3), Ok(()));
        let refused = check(&three, 2).unwrap_err();
        assert!(refused.contains("there are more than 2 inputs"), "{refused}");
    }
}
