//! Sends inputs to agq as they come: whole where they come at once, else to an open action.

use std::{collections::BTreeSet, time::Duration};

use agenix_client::ClientError;
use agenix_protocol::documents::{ActionSubmission, to_json};
use serde_json::{Map, Value, value::RawValue};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

use super::placeholders::Placeholder;
use crate::{
    failure::Failure,
    patient::Patient,
    pieces::{MOST_BYTES, MOST_INPUTS},
};

/// How long the next input may take to travel together with those before it.
const PATIENCE: Duration = Duration::from_millis(5);
/// The field of a block of stdin (`--pipe`).
pub(crate) const BLOCK: &str = "block";

/// One input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Input {
    /// Its number, from 1.
    pub(crate) seq: u64,
    /// One of each source.
    pub(crate) args: Vec<String>,
    /// A block of stdin.
    pub(crate) block: Option<String>,
}

impl Input {
    /// The input as it travels: the fields that the plan uses, and no others.
    fn document(&self, placeholders: &BTreeSet<Placeholder>) -> Result<Box<RawValue>, Failure> {
        let value = |placeholder: &Placeholder| placeholder.value(&self.args, self.seq);
        let mut fields: Map<String, Value> = placeholders
            .iter()
            .map(|placeholder| (placeholder.field(), Value::from(value(placeholder))))
            .collect();
        if let Some(block) = &self.block {
            fields.insert(BLOCK.into(), Value::from(block.as_str()));
        }
        RawValue::from_string(Value::Object(fields).to_string())
            .map_err(|error| Failure::usage(error.to_string(), "leave this input out"))
    }
}

/// Where inputs go.
pub(crate) struct Feed {
    pub(crate) agq: Patient,
    /// What is submitted, but for its inputs.
    pub(crate) action: ActionSubmission,
    pub(crate) placeholders: BTreeSet<Placeholder>,
    /// The inputs that agq has, in the order of its jobs.
    pub(crate) sent: mpsc::UnboundedSender<Input>,
    /// Told when agq has the action.
    pub(crate) begun: oneshot::Sender<()>,
    /// True when no more are wanted.
    pub(crate) stop: watch::Receiver<bool>,
}

/// Some inputs that travel together.
#[derive(Default)]
struct Batch {
    inputs: Vec<Input>,
    documents: Vec<Box<RawValue>>,
    bytes: usize,
}

impl Feed {
    /// Sends all, to the last. Without any, nothing is submitted.
    pub(crate) async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Result<Input, Failure>>,
    ) -> Result<(), Failure> {
        let (first, mut is_last) = self.gather(&mut inputs).await?;
        if first.inputs.is_empty() {
            return Ok(());
        }
        let (mut count, action_id) = (first.inputs.len() as u64, self.action.action_id.clone());
        self.action.inputs = first.documents;
        self.action.open = !is_last;
        let submitted = self.agq.submit(&self.action).await?;
        self.tell(first.inputs);
        // Nobody waits any more where all has ended already.
        let (begun, _) = oneshot::channel();
        let _nobody = std::mem::replace(&mut self.begun, begun).send(());
        let action_id = action_id.unwrap_or(submitted.action_id);
        let is_open = !is_last;
        while !is_last {
            let (batch, ended) = self.gather(&mut inputs).await?;
            is_last = ended;
            if !batch.inputs.is_empty() {
                match self.agq.add_inputs(&action_id, to_json(&batch.documents), count).await {
                    // `--halt` has cancelled the action meanwhile: it takes no more, and none are wanted.
                    Err(ClientError::Rejected(_)) if *self.stop.borrow() => return Ok(()),
                    added => added?,
                };
                count += batch.inputs.len() as u64;
                self.tell(batch.inputs);
            }
        }
        if is_open {
            self.agq.close_action(&action_id).await?;
        }
        Ok(())
    }

    fn tell(&self, inputs: Vec<Input>) {
        for input in inputs {
            let _nobody = self.sent.send(input);
        }
    }

    /// The inputs that are there, and whether they are the last.
    async fn gather(
        &mut self,
        inputs: &mut mpsc::Receiver<Result<Input, Failure>>,
    ) -> Result<(Batch, bool), Failure> {
        let mut batch = Batch::default();
        loop {
            if batch.inputs.len() >= MOST_INPUTS || batch.bytes >= MOST_BYTES {
                return Ok((batch, false));
            }
            let next = if batch.inputs.is_empty() {
                tokio::select! {
                    next = inputs.recv() => next,
                    Ok(_) = self.stop.wait_for(|&stop| stop) => None,
                }
            } else {
                match timeout(PATIENCE, inputs.recv()).await {
                    Ok(next) => next,
                    Err(_not_yet) => return Ok((batch, false)),
                }
            };
            let Some(input) = next else { return Ok((batch, true)) };
            let input = input?;
            let document = input.document(&self.placeholders)?;
            batch.bytes += document.get().len();
            batch.documents.push(document);
            batch.inputs.push(input);
        }
    }
}
