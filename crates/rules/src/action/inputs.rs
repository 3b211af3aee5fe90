//! Inputs of an action, which have to fit its plan.

use agenix_protocol::{
    documents::{Plan, is_object},
    inputs::{check_input, named_fields},
    limits::{Limits, exceeds},
};
use serde_json::{Value, value::RawValue};

use crate::rejection::Rejection;

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
