//! Inputs of an action, which have to fit its plan.

use agenix_protocol::{
    documents::{ActionSubmission, Plan, UniqueConflict, is_object},
    inputs::{check_input, named_fields},
    limits::{Limits, exceeds},
};
use serde_json::{Value, value::RawValue};

use crate::{hash, rejection::Rejection};

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

/// Returns a hash of inputs of which some may be left out. A repeated submission has the same.
pub(super) fn hash_of_inputs(action: &ActionSubmission) -> Option<String> {
    let inputs: Vec<&str> = action.inputs.iter().map(|input| input.get()).collect();
    may_leave_out(action).then(|| hash::of_json(&inputs))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::parse;

    use super::hash_of_inputs;

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
}
