//! Submits inputs to agq as they arrive: in one command if all are there at once, otherwise to an
//! open action.

use std::time::Duration;

use agenix_client::ClientError;
use agenix_protocol::{
    documents::{ActionSubmission, to_json},
    errors::ErrorKind,
    ids::ActionId,
};
use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout_at},
};

use crate::{
    error::{CliError, Result},
    map::{
        fields::InputFields,
        input::{InvalidInput, MapInput, Read},
        input_batch::{InputBatch, inputs_of},
        pace::SubmissionPace,
        read_ahead::ReadAhead,
        stop_level::StopLevel,
    },
    remote::{
        chunked_submit::is_for_a_budget,
        full_queue::{FullQueueWait, is_for_a_full_queue},
        retrying_client::RetryingClient,
    },
};

/// Maximum wait for the next input of a batch.
const MAX_INPUT_WAIT: Duration = Duration::from_millis(5);
/// Maximum wait of the first input of a batch for further ones.
const MAX_BATCH_WAIT: Duration = Duration::from_millis(50);

/// Fate of an input that agx has read.
#[derive(Debug)]
pub(crate) enum SubmittedInput {
    /// agq has the input, whose size in bytes is the number, as the next job of the action.
    Job(MapInput, usize),
    Unfit(InvalidInput),
}

/// Inputs that were not sent before an early end, or because of a used-up budget.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UnsentInputs {
    /// Number of inputs that agx has read and not sent.
    pub(crate) inputs: u64,
    /// True if there may be further inputs that agx has not read.
    pub(crate) is_more: bool,
    /// Reason why agq takes no more of them: the budget of the key is used up.
    pub(crate) refused: Option<String>,
}

/// Sender of inputs to agq.
pub(crate) struct InputSubmitter {
    pub(crate) agq: RetryingClient,
    /// Action without its inputs. The action has an id.
    pub(crate) action: ActionSubmission,
    pub(crate) action_id: ActionId,
    pub(crate) fields: InputFields,
    /// Sender of the inputs that agq has, in this order, and of those that no job can have.
    pub(crate) sent: mpsc::UnboundedSender<SubmittedInput>,
    /// Notified when agq has the action.
    pub(crate) begun: Option<oneshot::Sender<()>>,
    pub(crate) ahead: ReadAhead,
    pub(crate) stop_level: watch::Receiver<StopLevel>,
    pub(crate) full_queue: FullQueueWait,
    /// Number of jobs that agq has.
    pub(crate) count: u64,
    /// Reason why agq takes no more inputs.
    pub(crate) refused: Option<String>,
    pub(crate) pace: SubmissionPace,
}

/// Receiver of inputs, and one input that did not fit into the previous batch.
struct InputReceiver {
    inputs: mpsc::Receiver<Read>,
    held: Option<(MapInput, Box<RawValue>)>,
}

impl InputSubmitter {
    /// Sends all inputs. Without any input, nothing is submitted.
    pub(crate) async fn run(mut self, inputs: mpsc::Receiver<Read>) -> Result<UnsentInputs> {
        let mut source = InputReceiver { inputs, held: None };
        let sent = self.send(&mut source).await;
        // The action is closed after an error, too, because agq gets no further inputs.
        let is_lost = sent.as_ref().is_err_and(CliError::is_outage);
        if self.action.open && self.begun.is_none() && !is_lost {
            match self.agq.close_action(&self.action_id).await {
                Err(ClientError::Rejected(_)) if self.is_over() => {}
                closed => closed?,
            }
        }
        let unsent = sent?;
        let is_over = self.is_over() || self.refused.is_some();
        let mut left = UnsentInputs { inputs: unsent, is_more: false, refused: self.refused.take() };
        if is_over {
            left.inputs += u64::from(source.held.is_some());
            loop {
                match source.inputs.try_recv() {
                    Ok(Read::Input(..)) => left.inputs += 1,
                    Ok(_) => {}
                    Err(mpsc::error::TryRecvError::Empty) => {
                        return Ok(UnsentInputs { is_more: true, ..left });
                    }
                    Err(mpsc::error::TryRecvError::Disconnected) => return Ok(left),
                }
            }
        }
        Ok(left)
    }

    /// Returns true if no further inputs are wanted.
    fn is_over(&self) -> bool {
        *self.stop_level.borrow() != StopLevel::All
    }

    /// Sends inputs to the last one or an early end. Returns the number of taken and unsent inputs.
    async fn send(&mut self, source: &mut InputReceiver) -> Result<u64> {
        loop {
            let (batch, is_last) = self.gather(source).await?;
            let unsent = if batch.inputs.is_empty() {
                0
            } else if self.pace.turn(&mut self.stop_level).await {
                self.submit(batch, is_last).await?
            } else {
                batch.inputs.len() as u64
            };
            if is_last || unsent > 0 {
                return Ok(unsent);
            }
        }
    }

    /// Submits a batch, the first as a new action. Returns how many inputs were not submitted.
    async fn submit(&mut self, mut batch: InputBatch, is_last: bool) -> Result<u64> {
        let Some(begun) = self.begun.take() else { return self.add(vec![batch]).await };
        // Batches after this one, the next one at the end.
        let mut later = Vec::new();
        let submitted = loop {
            self.action.open = !is_last || !later.is_empty();
            self.action.inputs = batch.documents().into_iter().map(ToOwned::to_owned).collect();
            match self.agq.submit(&self.action).await {
                // The budget may have room for a part.
                Err(ClientError::Rejected(reason)) if is_for_a_budget(&reason) && batch.inputs.len() > 1 => {
                    let (first, second) = batch.split();
                    later.push(second);
                    batch = first;
                }
                submitted => break submitted,
            }
        };
        self.action.inputs = Vec::new();
        let mut unsent = 0;
        let submitted = match submitted {
            // The inputs follow by `add`, which finds the one that agq refuses.
            Err(ClientError::Rejected(reason))
                if is_for_an_input(&reason) || is_for_their_number(&reason) =>
            {
                self.action.open = true;
                later.push(batch);
                self.agq.submit(&self.action).await.map(drop)
            }
            Ok(stored) => {
                unsent = batch.truncate(stored.jobs_created);
                self.announce(batch);
                Ok(())
            }
            Err(error) => Err(error),
        };
        if let Err(error) = submitted {
            self.begun = Some(begun);
            return Err(error.into());
        }
        // The receiver may have ended already.
        let _nobody = begun.send(());
        if unsent > 0 {
            return Ok(unsent + inputs_of(&later));
        }
        self.add(later).await
    }

    /// Adds batches to the action, the last one first. Bisection finds each input that agq refuses,
    /// and adds the others. While the queue is full, waits for room. Returns the number of inputs
    /// that were not added because of an early end or a used-up budget.
    async fn add(&mut self, mut batches: Vec<InputBatch>) -> Result<u64> {
        while let Some(batch) = batches.pop() {
            let json = to_json(&batch.documents());
            match self.agq.add_inputs(&self.action_id, json, self.count).await {
                // A rejection after an early end means that the action takes no more inputs.
                Err(ClientError::Rejected(reason)) if self.is_over() || is_for_a_halt(&reason) => {
                    // The collector sees a halt within a moment.
                    let _ended = self.stop_level.wait_for(|&stop_level| stop_level != StopLevel::All).await;
                    batches.push(batch);
                    return Ok(inputs_of(&batches));
                }
                Err(ClientError::Rejected(reason))
                    if batch.inputs.len() > 1
                        && (is_for_an_input(&reason)
                            || is_for_their_number(&reason)
                            || is_for_a_budget(&reason)) =>
                {
                    let (first, second) = batch.split();
                    batches.extend([second, first]);
                }
                Err(ClientError::Rejected(reason)) if is_for_an_input(&reason) => self.refuse(batch, &reason),
                Err(ClientError::Rejected(reason)) if is_for_a_budget(&reason) => {
                    // The accepted jobs are charged, so the map continues with them.
                    batches.push(batch);
                    self.refused = Some(reason);
                    return Ok(inputs_of(&batches));
                }
                Err(ClientError::Rejected(reason)) if is_for_a_full_queue(&reason) => {
                    batches.push(batch);
                    tokio::select! {
                        () = self.full_queue.pause(&reason) => {}
                        _ = self.stop_level.wait_for(|&stop_level| stop_level != StopLevel::All) => {
                            return Ok(inputs_of(&batches));
                        }
                    }
                }
                added => {
                    added?;
                    self.announce(batch);
                }
            }
        }
        Ok(0)
    }

    fn announce(&mut self, batch: InputBatch) {
        self.count += batch.inputs.len() as u64;
        for (mut input, document) in batch.inputs {
            if let Some(block) = &mut input.block {
                *block = String::new();
            }
            let _nobody = self.sent.send(SubmittedInput::Job(input, document.get().len()));
        }
    }

    fn refuse(&self, batch: InputBatch, reason: &str) {
        for (input, document) in batch.inputs {
            self.ahead.taken(0, document.get().len());
            let bytes = document.get().len();
            let why = format!("agq refused its input of {bytes} bytes: {reason}");
            let _nobody = self.sent.send(SubmittedInput::Unfit(InvalidInput { seq: input.seq, why }));
        }
    }

    /// Returns the next batch, and true if it is the last one.
    async fn gather(&mut self, source: &mut InputReceiver) -> Result<(InputBatch, bool)> {
        let (mut batch, mut latest) = (InputBatch::default(), None);
        loop {
            if let Some((input, document)) = source.held.take() {
                if !batch.takes(&document) {
                    source.held = Some((input, document));
                    return Ok((batch, false));
                }
                self.ahead.add(document.get().len());
                batch.push(input, document);
            }
            let is_first = batch.inputs.is_empty();
            if !is_first && (self.is_over() || self.pace.is_set() || !self.ahead.has_room()) {
                return Ok((batch, false));
            }
            let next = if is_first {
                tokio::select! {
                    biased;
                    Ok(_) = self.stop_level.wait_for(|&stop_level| stop_level != StopLevel::All) => None,
                    next = next_with_room(&self.ahead, &mut source.inputs) => next,
                }
            } else {
                let now = Instant::now();
                let latest = *latest.get_or_insert(now + MAX_BATCH_WAIT);
                match timeout_at(latest.min(now + MAX_INPUT_WAIT), source.inputs.recv()).await {
                    Ok(next) => next,
                    Err(_not_yet) => return Ok((batch, false)),
                }
            };
            match next {
                None => return Ok((batch, true)),
                Some(Read::Failed(failure)) if batch.inputs.is_empty() => return Err(failure),
                // The batch comes from inputs before the failure, so it is sent first.
                Some(Read::Failed(failure)) => {
                    self.submit(batch, false).await?;
                    return Err(failure);
                }
                Some(Read::Unfit(unfit)) => self.announce_invalid(unfit),
                Some(Read::Input(input, _room)) => match input.document(&self.fields) {
                    Ok(document) => source.held = Some((input, document)),
                    Err(why) => self.announce_invalid(InvalidInput { seq: input.seq, why }),
                },
            }
        }
    }

    fn announce_invalid(&self, unfit: InvalidInput) {
        self.ahead.add(0);
        let _nobody = self.sent.send(SubmittedInput::Unfit(unfit));
    }
}

/// Returns the next input as soon as it may be submitted.
async fn next_with_room(ahead: &ReadAhead, inputs: &mut mpsc::Receiver<Read>) -> Option<Read> {
    ahead.room().await;
    inputs.recv().await
}

/// Returns true if agq refused a batch because of one of its inputs.
fn is_for_an_input(reason: &str) -> bool {
    matches!(ErrorKind::of(reason), ErrorKind::InvalidInput | ErrorKind::MessageTooLarge)
}

/// Returns true if agq refused a batch because the halt policy of the action was met.
fn is_for_a_halt(reason: &str) -> bool {
    ErrorKind::of(reason) == ErrorKind::ActionHalted
}

/// Returns true if agq refused a batch because it has too many inputs.
fn is_for_their_number(reason: &str) -> bool {
    matches!(ErrorKind::of(reason), ErrorKind::TooManyInputs | ErrorKind::QueueFull)
}

#[cfg(test)]
mod tests {
    use super::{is_for_a_budget, is_for_an_input, is_for_their_number};

    #[test]
    fn rejections_of_inputs_differ_from_those_of_the_action() {
        assert!(is_for_an_input("Invalid action schema: inputs[3].line contains a NUL byte"));
        assert!(is_for_an_input("Message too large: max 10485760 bytes"));
        assert!(!is_for_an_input("Invalid action schema: AT is 4, but the action has 3 inputs"));
        assert!(!is_for_an_input("Action is not open: a"));
        let full = "Queue is full: ready has 0 jobs, at most 1000";
        assert!(is_for_their_number(full) && !is_for_an_input(full));
        let used = "BUDGET used up: jobs 4000 of 5000, 2000 wanted, next at 2026-11-27T05:00:00.000Z";
        assert!(is_for_a_budget(used) && !is_for_their_number(used) && !is_for_an_input(used));
    }
}
