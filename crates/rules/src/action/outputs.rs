//! Plans of workflow steps whose inputs are the outputs of the previous step.

use agenix_protocol::{
    documents::{ActionSubmission, Plan},
    inputs::{NamedField, named_fields},
};

use crate::{concurrency_key, rejection::Rejection};

/// Fields of an input that is made from the output of a job.
const OUTPUT_FIELDS: [&str; 3] = ["output", "input", "job_id"];

/// Checks that the placeholders of the plan name only fields of the previous step's outputs.
pub fn check_takes_outputs(plan: &Plan) -> Result<(), Rejection> {
    let is_there = |field: &str| field.split('.').next().is_some_and(|first| OUTPUT_FIELDS.contains(&first));
    let unfit = |named: &NamedField| named.is_list || !is_there(&named.field);
    if let Some(field) = plan.inputs.keys().next() {
        return Err(Rejection::InvalidAction(format!(
            "its inputs are the outputs of the previous step, which nobody can check, and inputs of the plan gives the field \
             '{field}' a type: give the step inputs, or leave the types out"
        )));
    }
    match named_fields(plan).into_iter().find(unfit) {
        None => Ok(()),
        Some(NamedField { field, place, is_list: true }) => Err(Rejection::InvalidAction(format!(
            "its inputs are the outputs of the previous step, whose field '{field}' is not an array, and {place} of the plan \
             makes arguments of its elements: name {{{{input.output}}}} there, or give the step inputs"
        ))),
        Some(NamedField { field, place, .. }) => Err(Rejection::InvalidAction(format!(
            "its inputs are the outputs of the previous step, which have no field '{field}', which {place} of the plan uses: \
             name {{{{input.output}}}} there, or give the step inputs"
        ))),
    }
}

/// Checks that the concurrency key of an action can be made from the previous step's outputs.
pub fn check_key_takes_outputs(action: &ActionSubmission) -> Result<(), Rejection> {
    let Some(concurrency) = &action.concurrency else { return Ok(()) };
    concurrency_key::check_fields(concurrency, &OUTPUT_FIELDS).map_err(Rejection::InvalidAction)
}
