//! `agx action`: dispatch of its subcommands, and `cancel` and `retry`.

use std::path::PathBuf;

use agenix_protocol::ids::ActionId;
use clap::Subcommand;

use super::{
    action_add::{self, AddArgs},
    action_diff,
    action_list::{self, ListArgs},
    action_results, action_status,
    action_submit::{self, SubmitArgs},
    raw_arg::RawArg,
};
use crate::{
    connection_args::ConnectionArgs,
    documents::{ActionCancelled, ActionRetried},
    error::Result,
    output::{OutputFormat, counted},
};

#[derive(Debug, Subcommand)]
pub(crate) enum ActionCommand {
    /// Run a plan on many inputs
    Submit(Box<SubmitArgs>),
    /// Add inputs to an open action
    Add(AddArgs),
    /// Close an open action: it takes no more inputs
    Close { action_id: ActionId },
    /// List actions, the newest first
    List(ListArgs),
    /// Show an action's progress
    Status {
        action_id: ActionId,
        /// Follow the progress until the action ends; the exit code is 1 if a job did not complete
        #[arg(long)]
        watch: bool,
    },
    /// Follow an action's progress until it ends; the exit code is 1 if a job did not complete
    Watch { action_id: ActionId },
    /// Cancel all unfinished jobs of an action
    Cancel { action_id: ActionId },
    /// Retry the failed and dead jobs of an action
    Retry { action_id: ActionId },
    /// Compare the results of two actions by input; the exit code is 1 if any result differs
    Diff { before: ActionId, after: ActionId },
    /// Print the output of each completed job (stdout of its last task); failed jobs are named on
    /// stderr
    Results {
        action_id: ActionId,
        /// Print results in the order of the inputs, rather than as jobs end
        #[arg(long)]
        ordered: bool,
        /// Write files DIR/<input number>.out (and .err for failed jobs) instead of printing
        #[arg(long, value_name = "DIR")]
        output_dir: Option<PathBuf>,
        #[command(flatten)]
        raw: RawArg,
    },
}

pub(crate) async fn run(server: &ConnectionArgs, command: ActionCommand, output: OutputFormat) -> Result<()> {
    match command {
        ActionCommand::Submit(args) => action_submit::run(server, *args, output).await,
        ActionCommand::Add(args) => action_add::add(server, args, output).await,
        ActionCommand::Close { action_id } => action_add::close(server, action_id, output).await,
        ActionCommand::List(args) => action_list::run(server, args, output).await,
        ActionCommand::Status { action_id, watch } => {
            action_status::run(server, &action_id, watch, output).await
        }
        ActionCommand::Watch { action_id } => action_status::run(server, &action_id, true, output).await,
        ActionCommand::Cancel { action_id } => cancel(server, &action_id, output).await,
        ActionCommand::Retry { action_id } => retry(server, &action_id, output).await,
        ActionCommand::Diff { before, after } => action_diff::run(server, &before, &after, output).await,
        ActionCommand::Results { action_id, ordered, output_dir, raw } => {
            let output = raw.apply(output);
            action_results::run(server, &action_id, ordered, output_dir.as_deref(), output).await
        }
    }
}

async fn cancel(server: &ConnectionArgs, id: &ActionId, output: OutputFormat) -> Result<()> {
    let cancelled = server.connect().await?.cancel_action(id).await?;
    output.show("action.cancel", &ActionCancelled { action_id: id.clone(), cancelled }, |_| {
        let which =
            counted(cancelled, &format!("job of action {id} is"), &format!("jobs of action {id} are"));
        format!("{which} cancelled; ended jobs are unchanged")
    })
}

async fn retry(server: &ConnectionArgs, id: &ActionId, output: OutputFormat) -> Result<()> {
    let retried = server.connect().await?.retry_action(id).await?;
    output.show("action.retry", &ActionRetried { action_id: id.clone(), retried }, |_| {
        let which = counted(retried, &format!("job of action {id} is"), &format!("jobs of action {id} are"));
        format!("{which} retried; watch it with `agx action watch {id}`")
    })
}
