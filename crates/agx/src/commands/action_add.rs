//! `agx action add` and `agx action close`

use std::ops::Range;

use agenix_client::{ClientError, Connection};
use agenix_protocol::{documents::to_json, errors::ErrorKind, ids::ActionId};
use clap::Args;
use serde_json::value::RawValue;

use super::action_inputs::{InputFiles, InputStream};
use crate::{
    connection_args::ConnectionArgs,
    documents::{ActionClosed, ActionExtended},
    error::{CliError, Result},
    output::{OutputFormat, counted, jobs},
    remote::{chunked_submit::add_in_chunks, full_queue::FullQueueWait, retrying_client::RetryingClient},
    util::text::any_bytes,
};

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The open action, as of `agx action submit --open`
    pub(crate) action_id: ActionId,
    /// Inputs: each value becomes {"line": …}; without values, --inputs and --lines, the lines of
    /// stdin
    #[arg(value_name = "INPUT", conflicts_with = "source", value_parser = any_bytes())]
    pub(crate) values: Vec<String>,
    #[command(flatten)]
    pub(crate) files: InputFiles,
    /// Number of the first of these inputs, from 0: then the command can be repeated, and adds no
    /// input twice
    #[arg(long, value_name = "N")]
    pub(crate) at: Option<u64>,
}

/// Place in an action to which inputs are added.
enum AddTarget {
    /// Position of the next input. agq adds an input at a position only once, so that a request may
    /// be sent again after a lost reply.
    Position(RetryingClient, u64),
    /// End of the action.
    End(Connection),
}

impl AddTarget {
    /// Adds inputs, and returns the number of jobs of the action.
    async fn add(&mut self, action_id: &ActionId, inputs: &[Box<RawValue>]) -> Result<u64, ClientError> {
        match self {
            Self::Position(agq, at) => {
                let total_jobs = agq.add_inputs(action_id, to_json(&inputs), *at).await?;
                *at += inputs.len() as u64;
                Ok(total_jobs)
            }
            Self::End(connection) => connection.append_inputs(action_id, to_json(&inputs)).await,
        }
    }
}

/// Adder of inputs to an action.
struct InputAdder {
    action_id: ActionId,
    target: AddTarget,
    full_queue: FullQueueWait,
    /// Number of inputs that agq has taken.
    taken: u64,
    /// Number of jobs of the action, as of the last request.
    total_jobs: Option<u64>,
}

impl InputAdder {
    /// Adds all inputs as they arrive, because their end may never come. Returns the number of jobs
    /// of the action.
    async fn add_all(&mut self, source: &mut InputStream<'_>) -> Result<u64> {
        while let Some(inputs) = source.next_inputs()? {
            self.add(&inputs).await?;
        }
        match self.total_jobs {
            Some(total_jobs) => Ok(total_jobs),
            // agq checks the action, and returns the number of its jobs.
            None => Ok(self.target.add(&self.action_id, &[]).await?),
        }
    }

    async fn add(&mut self, inputs: &[Box<RawValue>]) -> Result<()> {
        let Self { action_id, target, full_queue, taken, total_jobs } = self;
        let added = add_in_chunks(inputs, full_queue, async |chunk: Range<usize>| {
            let count = chunk.len() as u64;
            let added = target.add(action_id, &inputs[chunk]).await;
            let total = added.map_err(|failure| located(failure, *taken))?;
            *taken += count;
            *total_jobs = Some(total);
            Ok(())
        });
        Ok(added.await?)
    }

    /// Returns `failure` with the number of inputs that agq has taken before.
    fn after_taken(&self, failure: CliError) -> CliError {
        let (taken, id) = (self.taken, &self.action_id);
        if taken == 0 {
            return failure;
        }
        let help = match &self.target {
            AddTarget::Position(_, at) => format!("the inputs after these follow with --at {at}"),
            AddTarget::End(_) if failure.is_outage() => {
                format!("agq may have taken more: `agx action status {id}` has the number of all inputs")
            }
            AddTarget::End(_) => "give only the inputs after these, because agq would add these again".into(),
        };
        failure.after(counted(taken, "input was added before", "inputs were added before"), help)
    }
}

/// Returns the error of a request with the place of the input in all inputs. The first input of the
/// request is the one with the index `first`.
fn located(failure: ClientError, first: u64) -> ClientError {
    match failure {
        ClientError::Rejected(reason) if ErrorKind::of(&reason) == ErrorKind::InvalidInput => {
            ClientError::Rejected(with_index_after(first, &reason).unwrap_or(reason))
        }
        failure => failure,
    }
}

/// Adds `first` to the index of the input that an error of agq names.
fn with_index_after(first: u64, reason: &str) -> Option<String> {
    let (before, rest) = reason.split_once("inputs[")?;
    let (index, after) = rest.split_once(']')?;
    let index = first + index.parse::<u64>().ok()?;
    Some(format!("{before}inputs[{index}]{after}"))
}

pub(super) async fn add(server: &ConnectionArgs, args: AddArgs, output: OutputFormat) -> Result<()> {
    let mut source = args.files.stream(&args.values, output)?;
    let (action_id, connection) = (args.action_id, server.connect().await?);
    let target = match args.at {
        Some(at) => AddTarget::Position(RetryingClient::new(server.server()?, connection, output), at),
        None => AddTarget::End(connection),
    };
    let full_queue = FullQueueWait::new(output);
    let mut adder = InputAdder { action_id, target, full_queue, taken: 0, total_jobs: None };
    let added = adder.add_all(&mut source).await;
    let total_jobs = added.map_err(|failure| adder.after_taken(failure))?;
    let InputAdder { action_id, taken: jobs_created, .. } = adder;
    let data = ActionExtended { action_id, jobs_created, total_jobs };
    output.show("action.add", &data, |data| {
        let added = counted(jobs_created, "input is", "inputs are");
        format!("{added} added to action {}, which has {}", data.action_id, jobs(total_jobs))
    })
}

pub(super) async fn close(server: &ConnectionArgs, action_id: ActionId, output: OutputFormat) -> Result<()> {
    let mut agq = RetryingClient::new(server.server()?, server.connect().await?, output);
    agq.close_action(&action_id).await?;
    output.show("action.close", &ActionClosed { action_id }, |data| {
        let id = &data.action_id;
        format!("action {id} takes no more inputs; watch it with `agx action watch {id}`")
    })
}

#[cfg(test)]
mod tests {
    use super::{ClientError, located};

    #[test]
    fn refused_input_has_its_place_in_all_inputs() {
        let place = |reason: &str| located(ClientError::Rejected(reason.to_owned()), 4000).to_string();
        let refused = "Invalid action schema: inputs[500].line contains a NUL byte";
        assert_eq!(place(refused), "Invalid action schema: inputs[4500].line contains a NUL byte");
        for other in ["Invalid action schema: inputs[x", "Action is not open: inputs[1]"] {
            assert_eq!(place(other), other);
        }
    }
}
