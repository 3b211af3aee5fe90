//! Inputs of an action, which have to fit its plan.

use agenix_protocol::{
    documents::{ActionSubmission, Plan, UniqueConflict, is_object},
    inputs::{check_input, named_fields},
    limits::{Limits, exceeds},
};
use serde_json::{Value, value::RawValue};

use crate::{action::Action, hash, rejection::Rejection};

/// Checks that every input is a JSON object with the fields that the placeholders of the plan name.
pub fn check_inputs(inputs: &[Box<RawValue>], plan: &Plan, limits: &Limits) -> Result<(), Rejection> {
    if exceeds(inputs.len(), limits.max_inputs) {
        return Err(Rejection::TooManyInputs(limits.max_inputs));
    }
    let fields = named_fields(plan);
    for (at, input) in inputs.iter().enumerate() {
        if !is_object(input.get()) {
            return Err(Rejection::InvalidAction(format!("inputs[{at}] is not an object")));
        }
        let invalid = |fault: String| Rejection::InvalidAction(format!("inputs[{at}]{fault}"));
        // Later readers of the input refuse numbers and depths that a raw value may have.
        serde_json::from_str::<Value>(input.get()).map_err(|error| invalid(format!(": {error}")))?;
        check_input(input, &fields, &plan.inputs).map_err(invalid)?;
    }
    Ok(())
}

/// Returns true if agq may store the action without some of its inputs, or not at all, because
/// other jobs stand for them.
pub fn may_leave_out(action: &ActionSubmission) -> bool {
    action.unique.as_ref().is_some_and(|unique| unique.on_conflict == UniqueConflict::Ignore)
}

/// Returns a hash of inputs of which some may be left out. A repeated submission has the same hash.
pub(super) fn hash_of_inputs(action: &ActionSubmission) -> Option<String> {
    let inputs: Vec<&str> = action.inputs.iter().map(|input| input.get()).collect();
    may_leave_out(action).then(|| hash::of_json(&inputs))
}

/// Returns how many of `count` inputs from position `at` on the action does not have yet: all of
/// them if `at` is absent.
pub fn count_new(action: &Action, at: Option<u64>, count: u64) -> u64 {
    let known = at.map_or(0, |at| action.total_jobs.saturating_sub(at));
    count.saturating_sub(known)
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{documents::parse, time::Timestamp};

    use super::hash_of_inputs;
    use crate::action::Action;

    #[test]
    fn inputs_have_a_hash_if_some_may_be_left_out() {
        let of = |unique: &str, inputs: &str| {
            let json = format!(r#"{{"plan_id":"p","inputs":{inputs},"unique":{unique}}}"#);
            hash_of_inputs(&parse(json.as_bytes()).unwrap())
        };
        let ignore = r#"{"on_conflict":"ignore"}"#;
        assert_eq!(of("{}", "[{}]"), None);
        assert_eq!(of(ignore, r#"[{"a":1}]"#), of(ignore, r#"[ {"a":1} ]"#));
        assert_ne!(of(ignore, r#"[{"a":1}]"#), of(ignore, r#"[{"a": 1}]"#));
    }

    #[test]
    fn repeated_inputs_are_not_new() {
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1));
        let action = Action { total_jobs: 5, ..action };
        let count_new = |at, count| super::count_new(&action, at, count);
        assert_eq!([count_new(None, 3), count_new(Some(5), 3), count_new(Some(9), 3)], [3; 3]);
        assert_eq!([count_new(Some(0), 5), count_new(Some(3), 1), count_new(Some(5), 0)], [0; 3]);
        assert_eq!(count_new(Some(3), 4), 2);
    }
}
