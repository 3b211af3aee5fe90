//! Submits a large action in several commands, so that agq can serve other clients in between.

use std::ops::Range;

use agenix_client::{ClientError, SubmittedAction};
use agenix_protocol::{
    documents::{ActionSubmission, to_json},
    errors::ErrorKind,
    limits::Limits,
};
use agenix_rules::{action, concurrency_key, rejection::Rejection};
use serde_json::value::RawValue;

use crate::{
    error::{CliError, Result},
    output::OutputFormat,
    remote::{
        full_queue::{FullQueueWait, is_for_a_full_queue},
        retrying_client::RetryingClient,
    },
};

/// Maximum number of inputs per command.
pub(crate) const MAX_INPUTS: usize = 2000;
/// Maximum number of bytes of the inputs of a command, well below agq's limit. One input may be
/// larger.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Submits an action in one command if it fits, otherwise as an open action in chunks of inputs.
pub(crate) async fn submit(
    agq: &mut RetryingClient,
    mut action: ActionSubmission,
    output: OutputFormat,
) -> Result<SubmittedAction> {
    let chunks = chunks(&action.inputs);
    // Unique jobs are compared in one write, so agq refuses more inputs than one write takes.
    if chunks.len() <= 1 || action.unique.is_some() {
        return Ok(agq.submit(&action).await?);
    }
    check(agq, &action).await?;
    let inputs = std::mem::take(&mut action.inputs);
    let stays_open = std::mem::replace(&mut action.open, true);
    let action_id = agq.submit(&action).await?.action_id;
    if !output.is_json {
        output.note(&format!(
            "action {action_id} gets its {} inputs in {} chunks; if agx is interrupted, the same command \
             with --id {action_id} continues",
            inputs.len(),
            chunks.len()
        ));
    }
    let (count, mut total) = (inputs.len() as u64, 0);
    let mut left: Vec<Range<usize>> = chunks.into_iter().rev().collect();
    let mut full_queue = FullQueueWait::new(output);
    while let Some(chunk) = left.pop() {
        let json = to_json(&&inputs[chunk.clone()]);
        match agq.add_inputs(&action_id, json, chunk.start as u64).await {
            // Fewer inputs may fit.
            Err(ClientError::Rejected(reason)) if is_for_a_full_queue(&reason) && chunk.len() > 1 => {
                let half = chunk.start + chunk.len() / 2;
                left.extend([half..chunk.end, chunk.start..half]);
            }
            Err(ClientError::Rejected(reason)) if is_for_a_full_queue(&reason) => {
                left.push(chunk);
                full_queue.pause(&reason).await;
            }
            added => total = added?,
        }
    }
    if total != count {
        // The existing action begins with the same inputs and has more.
        return Err(refused(&Rejection::ActionExists(action_id)));
    }
    if !stays_open {
        agq.close_action(&action_id).await?;
    }
    Ok(SubmittedAction { action_id, jobs_created: count })
}

/// Checks all inputs before the first job runs, as agq does for an action in one command.
async fn check(agq: &mut RetryingClient, action: &ActionSubmission) -> Result<()> {
    // agq reports a missing plan.
    let plan = agq.with_retry(async |agq| agq.plan(&action.plan_id).await).await?;
    let Some(plan) = plan else { return Ok(()) };
    let limits = Limits { max_inputs: 0, max_concurrency_keys: 0, ..Limits::default() };
    let of_key = action.concurrency.as_ref();
    action::check_inputs(&action.inputs, &plan, &limits)
        .and_then(|()| {
            of_key.map_or(Ok(()), |key| concurrency_key::check_inputs(key, &action.inputs, &limits))
        })
        .map_err(|rejection| refused(&rejection))
}

/// Returns true if agq refused inputs because the budget of the key has no room for so many.
pub(crate) fn is_for_a_budget(reason: &str) -> bool {
    ErrorKind::of(reason) == ErrorKind::BudgetUsed
}

fn refused(rejection: &Rejection) -> CliError {
    ClientError::Rejected(rejection.to_string()).into()
}

/// Splits inputs into ranges for one command each.
pub(crate) fn chunks(inputs: &[Box<RawValue>]) -> Vec<Range<usize>> {
    let mut chunks: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (at, input) in inputs.iter().enumerate() {
        bytes += input.get().len() + 1;
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < MAX_INPUTS && bytes <= MAX_BYTES => chunk.end = at + 1,
            _ => {
                bytes = input.get().len() + 1;
                chunks.push(at..at + 1);
            }
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::{MAX_BYTES, MAX_INPUTS, chunks};

    fn inputs(count: usize, bytes: usize) -> Vec<Box<RawValue>> {
        let text = format!("\"{}\"", "x".repeat(bytes - 2));
        (0..count).map(|_| RawValue::from_string(text.clone()).unwrap()).collect()
    }

    #[test]
    fn chunks_split_above_the_maximum_number_of_inputs() {
        assert!(chunks(&[]).is_empty());
        let whole = 0..MAX_INPUTS;
        assert_eq!(chunks(&inputs(MAX_INPUTS, 4)), std::slice::from_ref(&whole));
        assert_eq!(chunks(&inputs(MAX_INPUTS + 1, 4)), [whole, MAX_INPUTS..MAX_INPUTS + 1]);
    }

    #[test]
    fn chunks_of_large_inputs_hold_fewer_inputs() {
        assert_eq!(chunks(&inputs(5, MAX_BYTES / 2 - 1)), [0..2, 2..4, 4..5]);
        assert_eq!(chunks(&inputs(2, MAX_BYTES * 2)), [0..1, 1..2]);
    }
}
