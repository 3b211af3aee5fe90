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
        pace::SubmissionPace,
        read_ahead::ReadAhead,
        stop_level::StopLevel,
    },
    remote::{
        chunked_submit::{MAX_BYTES, MAX_INPUTS},
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

/// Inputs that were not sent before an early end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UnsentInputs {
    /// Number of inputs that agx has read and not sent.
    pub(crate) inputs: u64,
    /// True if there may be further inputs that agx has not read.
    pub(crate) is_more: bool,
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
    pub(crate) pace: SubmissionPace,
}

/// Inputs that are sent in one command.
#[derive(Default)]
struct InputBatch {
    inputs: Vec<(MapInput, Box<RawValue>)>,
    bytes: usize,
}

impl InputBatch {
    fn push(&mut self, input: MapInput, document: Box<RawValue>) {
        self.bytes += document.get().len() + 1;
        self.inputs.push((input, document));
    }

    fn takes(&self, document: &RawValue) -> bool {
        let is_small = self.bytes + document.get().len() < MAX_BYTES;
        self.inputs.is_empty() || (self.inputs.len() < MAX_INPUTS && is_small)
    }

    fn documents(&self) -> Vec<&RawValue> {
        self.inputs.iter().map(|(_, document)| &**document).collect()
    }

    /// Keeps the first `stored` inputs, and returns the number of the others. A halt that is met
    /// while agq stores a batch in chunks leaves the last inputs out.
    fn truncate(&mut self, stored: u64) -> u64 {
        let all = self.inputs.len();
        self.inputs.truncate(usize::try_from(stored).unwrap_or(usize::MAX));
        (all - self.inputs.len()) as u64
    }

    /// Splits the batch into two halves.
    fn split(mut self) -> (Self, Self) {
        let second = self.inputs.split_off(self.inputs.len() / 2);
        (Self { inputs: self.inputs, bytes: 0 }, Self { inputs: second, bytes: 0 })
    }
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
        let mut left = UnsentInputs { inputs: unsent, is_more: false };
        if self.is_over() {
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
        let Some(begun) = self.begun.take() else { return self.add(batch).await };
        self.action.open = !is_last;
        self.action.inputs = batch.documents().into_iter().map(ToOwned::to_owned).collect();
        let mut unsent = 0;
        let (submitted, rest) = match self.agq.submit(&self.action).await {
            // The inputs follow by `add`, which finds the one that agq refuses.
            Err(ClientError::Rejected(reason))
                if is_for_an_input(&reason) || is_for_their_number(&reason) =>
            {
                (self.action.open, self.action.inputs) = (true, Vec::new());
                (self.agq.submit(&self.action).await.map(drop), Some(batch))
            }
            submitted => {
                self.action.inputs = Vec::new();
                if let Ok(stored) = &submitted {
                    unsent = batch.truncate(stored.jobs_created);
                    self.announce(batch);
                }
                (submitted.map(drop), None)
            }
        };
        if let Err(error) = submitted {
            self.begun = Some(begun);
            return Err(error.into());
        }
        // The receiver may have ended already.
        let _nobody = begun.send(());
        match rest {
            Some(batch) => self.add(batch).await,
            None => Ok(unsent),
        }
    }

    /// Adds a batch to the action. Bisection finds each input that agq refuses, and adds the
    /// others. While the queue is full, waits for room. Returns the number of inputs that were not
    /// added because of an early end.
    async fn add(&mut self, batch: InputBatch) -> Result<u64> {
        let mut batches = vec![batch];
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
                        && (is_for_an_input(&reason) || is_for_their_number(&reason)) =>
                {
                    let (first, second) = batch.split();
                    batches.extend([second, first]);
                }
                Err(ClientError::Rejected(reason)) if is_for_an_input(&reason) => self.refuse(batch, &reason),
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

fn inputs_of(batches: &[InputBatch]) -> u64 {
    batches.iter().map(|batch| batch.inputs.len() as u64).sum()
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
    use serde_json::value::RawValue;

    use super::{InputBatch, MAX_BYTES, MAX_INPUTS, MapInput, is_for_an_input, is_for_their_number};

    fn document(bytes: usize) -> Box<RawValue> {
        RawValue::from_string(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap()
    }

    fn batch(documents: &[usize]) -> InputBatch {
        let mut batch = InputBatch::default();
        for (seq, &bytes) in (1..).zip(documents) {
            batch.push(MapInput { seq, args: Vec::new(), block: None }, document(bytes));
        }
        batch
    }

    fn numbers(batch: &InputBatch) -> Vec<u64> {
        batch.inputs.iter().map(|(input, _)| input.seq).collect()
    }

    #[test]
    fn truncated_batch_keeps_the_stored_inputs_and_counts_the_others() {
        for (stored, kept, others) in
            [(0, vec![], 3), (2, vec![1, 2], 1), (3, vec![1, 2, 3], 0), (9, vec![1, 2, 3], 0)]
        {
            let mut batch = batch(&[2; 3]);
            assert_eq!((batch.truncate(stored), numbers(&batch)), (others, kept), "{stored}");
        }
    }

    #[test]
    fn batches_are_bounded_before_they_are_sent() {
        assert!(batch(&[]).takes(&document(3 * MAX_BYTES)), "one may be larger, and travels alone");
        assert!(!batch(&[MAX_BYTES / 2]).takes(&document(MAX_BYTES / 2)));
        assert!(batch(&[MAX_BYTES / 2]).takes(&document(MAX_BYTES / 2 - 2)));
        assert!(!batch(&vec![2; MAX_INPUTS]).takes(&document(2)));
    }

    #[test]
    fn split_batches_keep_all_inputs_in_order() {
        let (first, second) = batch(&[2; 5]).split();
        assert_eq!((numbers(&first), numbers(&second)), (vec![1, 2], vec![3, 4, 5]));
    }

    #[test]
    fn rejections_of_inputs_differ_from_those_of_the_action() {
        assert!(is_for_an_input("Invalid action schema: inputs[3].line contains a NUL byte"));
        assert!(is_for_an_input("Message too large: max 10485760 bytes"));
        assert!(!is_for_an_input("Invalid action schema: AT is 4, but the action has 3 inputs"));
        assert!(!is_for_an_input("Action is not open: a"));
        let full = "Queue is full: ready has 0 jobs, at most 1000";
        assert!(is_for_their_number(full) && !is_for_an_input(full));
    }
}
