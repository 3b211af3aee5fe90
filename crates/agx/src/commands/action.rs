//! `agx action`: the subcommands, and the short ones of them.

use std::path::PathBuf;

use agenix_protocol::ids::ActionId;
use clap::Subcommand;

use super::{
    action_diff, action_results, action_status,
    action_submit::{self, SubmitArgs},
};
use crate::{
    documents::{ActionCancelled, ActionRetried},
    error::CliError,
    output::{Output, counted},
    server_args::ServerArgs,
};

#[derive(Debug, Subcommand)]
pub(crate) enum ActionCommand {
    /// Run a plan on many inputs
    Submit(SubmitArgs),
    /// Show how an action gets on
    Status {
        action_id: ActionId,
        /// Go on showing it until it has ended; the exit code then tells whether all jobs completed
        #[arg(long)]
        watch: bool,
    },
    /// Show how an action gets on until it has ended; the exit code then tells whether all jobs completed
    Watch { action_id: ActionId },
    /// Cancel all jobs of an action that have not ended
    Cancel { action_id: ActionId },
    /// Try the failed and dead jobs of an action again
    Retry { action_id: ActionId },
    /// Compare two actions: whose inputs came out differently; the exit code is 1 if any did
    Diff { before: ActionId, after: ActionId },
    /// Print what the last task of each completed job wrote; failed jobs are named on stderr
    Results {
        action_id: ActionId,
        /// In the order of the inputs, rather than as they come
        #[arg(long)]
        ordered: bool,
        /// Write files DIR/<input number>.out (and .err for failed jobs) instead of printing
        #[arg(long, value_name = "DIR")]
        output_dir: Option<PathBuf>,
    },
}

pub(crate) async fn run(server: &ServerArgs, command: ActionCommand, output: Output) -> Result<(), CliError> {
    match command {
        ActionCommand::Submit(args) => action_submit::run(server, args, output).await,
        ActionCommand::Status { action_id, watch } => {
            action_status::run(server, &action_id, watch, output).await
        }
        ActionCommand::Watch { action_id } => action_status::run(server, &action_id, true, output).await,
        ActionCommand::Cancel { action_id } => cancel(server, &action_id, output).await,
        ActionCommand::Retry { action_id } => retry(server, &action_id, output).await,
        ActionCommand::Diff { before, after } => action_diff::run(server, &before, &after, output).await,
        ActionCommand::Results { action_id, ordered, output_dir } => {
            action_results::run(server, &action_id, ordered, output_dir.as_deref(), output).await
        }
    }
}

async fn cancel(server: &ServerArgs, id: &ActionId, output: Output) -> Result<(), CliError> {
    let cancelled = server.connect().await?.cancel_action(id).await?;
    output.show("action.cancel", &ActionCancelled { action_id: id.clone(), cancelled }, |_| {
        let which =
            counted(cancelled, &format!("job of action {id} is"), &format!("jobs of action {id} are"));
        format!("{which} cancelled; those that had ended stay as they are")
    })
}

async fn retry(server: &ServerArgs, id: &ActionId, output: Output) -> Result<(), CliError> {
    let retried = server.connect().await?.retry_action(id).await?;
    output.show("action.retry", &ActionRetried { action_id: id.clone(), retried }, |_| {
        let which = counted(retried, &format!("job of action {id} is"), &format!("jobs of action {id} are"));
        format!("{which} tried again; watch it with `agx action watch {id}`")
    })
}
