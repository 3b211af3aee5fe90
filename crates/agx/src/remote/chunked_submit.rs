//! Submits a large action in several commands, so that agq can serve other clients in between.

use std::ops::Range;

use agenix_client::{ClientError, SubmittedAction};
use agenix_protocol::{
    documents::{ActionSubmission, to_json},
    errors::ErrorKind,
    ids::ActionId,
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
    let (count, mut total, mut full_queue) = (inputs.len() as u64, 0, FullQueueWait::new(output));
    let added = add_in_chunks(&inputs, &mut full_queue, async |chunk: Range<usize>| {
        let json = to_json(&&inputs[chunk.clone()]);
        total = agq.add_inputs(&action_id, json, chunk.start as u64).await?;
        Ok(())
    })
    .await;
    added.map_err(|failure| unfinished(failure, &action_id, (total, count)))?;
    if total != count {
        // The existing action begins with the same inputs and has more.
        return Err(refused(&Rejection::ActionExists(action_id)));
    }
    if !stays_open {
        agq.close_action(&action_id).await?;
    }
    Ok(SubmittedAction { action_id, jobs_created: count })
}

/// Adds inputs with `add`, which gets a range of them for one command at a time. While the queue is
/// full, adds fewer at once, and waits for room.
pub(crate) async fn add_in_chunks(
    inputs: &[Box<RawValue>],
    full_queue: &mut FullQueueWait,
    mut add: impl AsyncFnMut(Range<usize>) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let mut left: Vec<Range<usize>> = chunks(inputs).into_iter().rev().collect();
    while let Some(chunk) = left.pop() {
        match add(chunk.clone()).await {
            // Fewer inputs may fit.
            Err(ClientError::Rejected(reason)) if is_for_a_full_queue(&reason) && chunk.len() > 1 => {
                let half = chunk.start + chunk.len() / 2;
                left.extend([half..chunk.end, chunk.start..half]);
            }
            Err(ClientError::Rejected(reason)) if is_for_a_full_queue(&reason) => {
                left.push(chunk);
                full_queue.pause(&reason).await;
            }
            added => added?,
        }
    }
    Ok(())
}

/// Returns the error of a submission of which agq has stored some inputs, given with their number
/// and that of all inputs. The action stays open, so the submission can be continued.
fn unfinished(failure: ClientError, action_id: &ActionId, (stored, all): (u64, u64)) -> CliError {
    let can_continue = match &failure {
        ClientError::Rejected(reason) => is_for_a_budget(reason),
        failure => failure.is_outage(),
    };
    if !can_continue {
        return failure.into();
    }
    CliError::from(failure).after(
        format!("action {action_id} is open, and has {stored} of {all} inputs"),
        format!("the same command with --id {action_id} continues; `agx action cancel {action_id}` ends it"),
    )
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
fn chunks(inputs: &[Box<RawValue>]) -> Vec<Range<usize>> {
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

    use super::{
        ClientError, FullQueueWait, MAX_BYTES, MAX_INPUTS, OutputFormat, Range, add_in_chunks, chunks,
        unfinished,
    };

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

    #[tokio::test]
    async fn chunks_are_halved_until_they_fit_into_the_queue() {
        let (mut added, mut full_queue) = (Vec::new(), FullQueueWait::new(OutputFormat::default()));
        let all = add_in_chunks(&inputs(10, 4), &mut full_queue, async |chunk: Range<usize>| {
            if chunk.len() > 3 {
                return Err(ClientError::Rejected("Queue is full: ready has 7 jobs, at most 10".into()));
            }
            added.push(chunk);
            Ok(())
        })
        .await;
        assert!(all.is_ok());
        assert_eq!(added, [0..2, 2..5, 5..7, 7..10]);
    }

    #[test]
    fn refusal_in_the_middle_says_how_the_submission_continues() {
        let refused = |reason: &str| {
            let failure = ClientError::Rejected(reason.to_owned());
            let failure = unfinished(failure, &"a".parse().unwrap(), (2000, 5000));
            (failure.to_string(), failure.help().unwrap())
        };
        let (failure, help) = refused("BUDGET used up: jobs 2000 of 3000, 2000 wanted");
        assert!(failure.ends_with("2000 wanted; action a is open, and has 2000 of 5000 inputs"), "{failure}");
        assert!(help.contains("the same command with --id a continues"), "{help}");
        let (failure, _) = refused("Invalid action schema: input 7 already exists with other content");
        assert!(failure.ends_with("other content"), "the action is another one: {failure}");
    }
}
