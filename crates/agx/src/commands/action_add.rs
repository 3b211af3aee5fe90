//! `agx action add` and `agx action close`

use std::path::Path;

use agenix_protocol::{documents::to_json, ids::ActionId};
use clap::Args;

use super::action_inputs::{InputFiles, input, inputs, lines};
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

pub(super) async fn add(server: &ConnectionArgs, args: AddArgs, output: OutputFormat) -> Result<()> {
    let field = &args.files.field;
    let inputs = if args.values.is_empty() {
        inputs(&args.files, output)?.map_or_else(|| lines(Path::new("-"), field, output), Ok)?
    } else {
        args.values.iter().map(|value| input(field, value)).collect::<Result<_>>()?
    };
    let (action_id, mut connection) = (args.action_id, server.connect().await?);
    let mut chunks = chunks(&inputs);
    if chunks.is_empty() {
        // agq checks the action, and returns the number of its jobs.
        chunks.push(0..0);
    }
    let mut total_jobs = 0;
    if let Some(at) = args.at {
        let mut agq = RetryingClient::new(server.server()?, connection, output);
        for chunk in chunks {
            let at = at + chunk.start as u64;
            total_jobs = agq.add_inputs(&action_id, to_json(&&inputs[chunk]), at).await?;
        }
    } else {
        // Without a position, a repetition after a lost reply could add the inputs twice.
        for chunk in chunks {
            total_jobs = connection.append_inputs(&action_id, to_json(&&inputs[chunk])).await?;
        }
    }
    let jobs_created = inputs.len() as u64;
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
