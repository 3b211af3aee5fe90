//! `agx logs`

use agenix_client::Connection;
use agenix_protocol::{
    documents::{JobStatus, Status},
    ids::{ActionId, JobId},
};
use clap::Args;

use super::raw_arg::RawArg;
use crate::{
    connection_args::ConnectionArgs,
    error::{CliError, Result},
    logs::{self, LogOptions},
    output::{OutputFormat, counted},
    remote::retrying_client::RetryingClient,
    util::signals::interrupted,
};

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Job or action; each line of an action's output begins with the number of the input
    #[arg(value_name = "JOB|ACTION")]
    pub(crate) id: ActionId,
    /// Follow the output until the job or action ends
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Only the output of this task, by number
    #[arg(long, value_name = "N")]
    pub(crate) task: Option<u32>,
    #[command(flatten)]
    pub(crate) raw: RawArg,
}

pub(crate) async fn run(server: &ConnectionArgs, args: &LogsArgs, output: OutputFormat) -> Result<()> {
    let output = args.raw.apply(output);
    // A pager may suspend agx for an unlimited time, so replies have no timeout.
    let mut connection = Connection::open_without_timeout(&server.server()?).await?;
    let wanted = LogOptions { follow: args.follow, task: args.task, ..LogOptions::default() };
    // Some ids are valid for actions only.
    let job = match JobId::new(args.id.as_str()) {
        Ok(job_id) => connection.job(&job_id).await?,
        Err(_) => None,
    };
    let mut agq = RetryingClient::new(server.server()?, connection, output);
    let shown = async {
        match job {
            Some(job) => of_job(&mut agq, job, &wanted, output).await,
            None => of_action(&mut agq, &args.id, &wanted, output).await,
        }
    };
    tokio::select! {
        shown = shown => shown,
        () = interrupted() => Err(CliError::Unfollowed(args.id.clone())),
    }
}

async fn of_job(
    agq: &mut RetryingClient,
    job: JobStatus,
    wanted: &LogOptions,
    output: OutputFormat,
) -> Result<()> {
    let job = logs::of_job(agq, job, wanted, output).await?;
    let (id, word) = (&job.job_id, job.status.as_str());
    match (job.status, &job.error) {
        (Status::Completed, _) => {}
        (Status::Pending, _) => output.note(&logs::waits(&job)),
        (Status::Running, _) => {
            output.note(&format!("agx: job {id} is running; `agx logs -f {id}` follows it until it ends"));
        }
        (_, Some(why)) => output.note(&format!("agx: job {id} {word}: {why}")),
        (_, None) => output.note(&format!("agx: job {id} {word}")),
    }
    Ok(())
}

async fn of_action(
    agq: &mut RetryingClient,
    id: &ActionId,
    args: &LogOptions,
    output: OutputFormat,
) -> Result<()> {
    if agq.action(id).await?.is_none() {
        let help = "see the actions with `agx history`, and the jobs of one with `agx job list ACTION_ID`";
        return Err(CliError::not_found("job or action", id, help));
    }
    let (action, unread) = logs::of_action(agq, id, args, output).await?;
    if action.pending + action.running > 0 {
        let (pending, running) = (action.pending, action.running);
        output.note(&format!(
            "agx: {} running, and {}; `agx logs -f {id}` follows them until they end",
            counted(running, "of its jobs is", "of its jobs are"),
            counted(pending, "has not begun", "have not begun")
        ));
    }
    if unread > 0 {
        return Err(CliError::Jobs(format!("outputs that could not be fetched: {unread}")));
    }
    Ok(())
}
