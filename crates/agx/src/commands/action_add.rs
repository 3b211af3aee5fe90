//! `agx action add` and `agx action close`

use agenix_client::Connection;
use agenix_protocol::{documents::to_json, ids::ActionId};
use clap::Args;
use serde_json::value::RawValue;

use super::action_inputs::InputFiles;
use crate::{
    connection_args::ConnectionArgs,
    documents::{ActionClosed, ActionExtended},
    error::Result,
    output::{OutputFormat, counted, jobs},
    remote::{chunked_submit::chunks, retrying_client::RetryingClient},
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
    async fn add(&mut self, action_id: &ActionId, inputs: &[Box<RawValue>]) -> Result<u64> {
        match self {
            Self::Position(agq, at) => {
                let total_jobs = agq.add_inputs(action_id, to_json(&inputs), *at).await?;
                *at += inputs.len() as u64;
                Ok(total_jobs)
            }
            Self::End(connection) => Ok(connection.append_inputs(action_id, to_json(&inputs)).await?),
        }
    }
}

pub(super) async fn add(server: &ConnectionArgs, args: AddArgs, output: OutputFormat) -> Result<()> {
    let mut source = args.files.stream(&args.values, output)?;
    let (action_id, connection) = (args.action_id, server.connect().await?);
    let mut target = match args.at {
        Some(at) => AddTarget::Position(RetryingClient::new(server.server()?, connection, output), at),
        None => AddTarget::End(connection),
    };
    let (mut jobs_created, mut total_jobs) = (0, None);
    // Inputs are added as they arrive, because their end may never come.
    while let Some(inputs) = source.next_inputs()? {
        for chunk in chunks(&inputs) {
            total_jobs = Some(target.add(&action_id, &inputs[chunk]).await?);
        }
        jobs_created += inputs.len() as u64;
    }
    let total_jobs = match total_jobs {
        Some(total_jobs) => total_jobs,
        // agq checks the action, and returns the number of its jobs.
        None => target.add(&action_id, &[]).await?,
    };
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
