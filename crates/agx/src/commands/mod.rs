//! One file a command.

mod action_diff;
mod action_results;
mod action_status;
mod action_submit;
mod change;
mod doctor;
mod job;
mod logs;
mod map;
mod map_pipeline;
mod overview;
mod plan;
mod plan_write;
mod profile;
mod queue;
mod schedule;
mod suggest;
mod up;
mod worker;
mod workflow;

use std::{
    io::{IsTerminal, Read},
    path::Path,
};

use agenix_protocol::{documents::ActionStatus, ids::ActionId};

use agenix_shell::Refusal;
use clap::CommandFactory;

use crate::{
    background::supervisor,
    cli::{
        ActionCommand, Cli, Command, JobCommand, PlanCommand, QueueCommand, ScheduleCommand, ServerArgs,
        WorkerCommand, WorkflowCommand,
    },
    error::CliError,
    json_schema,
    output::Output,
    top,
    util::{
        atomic_file::cannot_write,
        text::{not_utf_8, without_mark},
    },
};

/// Does what the command line says. Where something is not there, what was meant is looked for.
pub(crate) async fn run(cli: Cli, output: Output) -> Result<(), CliError> {
    let Cli { server, command, .. } = cli;
    match carry_out(&server, command, output).await {
        Err(failure @ CliError::NotThere { .. }) => Err(suggest::with_suggestion(&server, failure).await),
        done => done,
    }
}

async fn carry_out(server: &ServerArgs, command: Option<Command>, output: Output) -> Result<(), CliError> {
    let Some(command) = command else { return overview::overview(server, output).await };
    match command {
        Command::Up(args) => up::up(&args, server, output).await,
        Command::Down(args) => up::down(&args, output).await,
        Command::Join(args) => up::join(&args, output).await,
        Command::Keep { directory } => supervisor::run(&directory).await,
        Command::Profile(command) => profile::run(server, command, output),
        Command::Logs(args) => logs::run(server, &args, output).await,
        Command::History { most } => overview::history(server, most, output).await,
        Command::Top => top(server).await,
        Command::Doctor => doctor::run(server, output).await,
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "agx", &mut text);
            output.raw(&text)?;
            output.flush()
        }
        Command::JsonSchema => {
            let schema = serde_json::to_string_pretty(&json_schema::document()).unwrap_or_default();
            output.raw(schema.as_bytes())?;
            output.raw(b"\n")?;
            output.flush()
        }
        Command::Man { directory } => man(&directory),
        Command::Map(args) => map::run(server, *args, output).await,
        Command::Plan(command) => of_plans(server, command, output).await,
        Command::Action(command) => of_actions(server, command, output).await,
        Command::Job(command) => of_jobs(server, command, output).await,
        Command::Worker(WorkerCommand::List) => worker::list(server, output).await,
        Command::Worker(WorkerCommand::Drain { worker_id }) => {
            change::drain(server, &worker_id, true, output).await
        }
        Command::Worker(WorkerCommand::Resume { worker_id }) => {
            change::drain(server, &worker_id, false, output).await
        }
        Command::Queue(QueueCommand::Stats) => queue::stats(server, output).await,
        Command::Queue(QueueCommand::Pause { queue }) => change::pause(server, &queue, true, output).await,
        Command::Queue(QueueCommand::Resume { queue }) => change::pause(server, &queue, false, output).await,
        Command::Schedule(command) => of_schedules(server, command, output).await,
        Command::Workflow(command) => of_workflows(server, command, output).await,
    }
}

/// `agx man`
fn man(directory: &Path) -> Result<(), CliError> {
    let written =
        std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    written.map_err(|error| cannot_write(directory, &error))
}

/// `agx top`
async fn top(server: &ServerArgs) -> Result<(), CliError> {
    if !std::io::stdout().is_terminal() {
        return Err(CliError::usage(
            "there is no terminal to show it on",
            "for a script there is `agx --json`",
        ));
    }
    top::show(&server.server()?).await
}

async fn of_plans(server: &ServerArgs, command: PlanCommand, output: Output) -> Result<(), CliError> {
    match command {
        PlanCommand::Submit { file } => plan::submit(server, &file, output).await,
        PlanCommand::Get { plan_id } => plan::get(server, &plan_id, output).await,
        PlanCommand::List => plan::list(server, output).await,
        PlanCommand::From(args) => plan_write::from(server, args, output).await,
        PlanCommand::New => plan_write::new(server, output).await,
        PlanCommand::Edit { plan_id, new_id } => plan_write::edit(server, &plan_id, new_id, output).await,
        PlanCommand::Delete { plan_id } => change::delete_plan(server, &plan_id, output).await,
        PlanCommand::Check { file } => plan::check(&file, output),
    }
}

async fn of_actions(server: &ServerArgs, command: ActionCommand, output: Output) -> Result<(), CliError> {
    match command {
        ActionCommand::Submit(args) => action_submit::run(server, args, output).await,
        ActionCommand::Status { action_id, watch } => {
            action_status::run(server, &action_id, watch, output).await
        }
        ActionCommand::Watch { action_id } => action_status::run(server, &action_id, true, output).await,
        ActionCommand::Cancel { action_id } => change::cancel_action(server, &action_id, output).await,
        ActionCommand::Retry { action_id } => change::retry_action(server, &action_id, output).await,
        ActionCommand::Diff { before, after } => action_diff::run(server, &before, &after, output).await,
        ActionCommand::Results { action_id, ordered, output_dir } => {
            action_results::run(server, &action_id, ordered, output_dir.as_deref(), output).await
        }
    }
}

async fn of_jobs(server: &ServerArgs, command: JobCommand, output: Output) -> Result<(), CliError> {
    match command {
        JobCommand::Status { job_id } => job::status(server, &job_id, output).await,
        JobCommand::Explain { job_id } => job::explain(server, &job_id, output).await,
        JobCommand::Cancel { job_id } => change::cancel_job(server, &job_id, output).await,
        JobCommand::Retry { job_id, force } => change::retry_job(server, &job_id, force, output).await,
        JobCommand::List { action_id, status } => job::list(server, &action_id, status, output).await,
    }
}

async fn of_schedules(server: &ServerArgs, command: ScheduleCommand, output: Output) -> Result<(), CliError> {
    match command {
        ScheduleCommand::Set { file } => schedule::set(server, &file, output).await,
        ScheduleCommand::Get { name } => schedule::get(server, &name, output).await,
        ScheduleCommand::List => schedule::list(server, output).await,
        ScheduleCommand::Delete { name } => schedule::delete(server, &name, output).await,
    }
}

async fn of_workflows(server: &ServerArgs, command: WorkflowCommand, output: Output) -> Result<(), CliError> {
    match command {
        WorkflowCommand::Submit { file } => workflow::submit(server, &file, output).await,
        WorkflowCommand::Status { workflow_id } => workflow::status(server, &workflow_id, output).await,
        WorkflowCommand::List => workflow::list(server, output).await,
        WorkflowCommand::Cancel { workflow_id } => workflow::cancel(server, &workflow_id, output).await,
    }
}

/// What a pipeline cannot say, with its place.
fn refused(refusal: &Refusal) -> CliError {
    CliError::Marked { what: refusal.to_string(), help: refusal.instead().into() }
}

/// An id of our own, so that the submission can be sent again when its answer was lost.
fn new_id() -> Result<ActionId, CliError> {
    let id = uuid::Uuid::new_v4().to_string();
    ActionId::new(id).map_err(|error| CliError::usage(error.to_string(), "choose one with --id"))
}

/// Reads the bytes of `file`, or of stdin if `file` is `-`, and removes a byte order mark.
fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        agenix_cli::stdin().and_then(|mut stdin| stdin.read_to_end(&mut bytes))
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    let failed = |error| {
        CliError::usage(
            format!("cannot read {}: {error}", file.display()),
            "give a file that can be read, or - for stdin",
        )
    };
    read.map_err(failed)?;
    match without_mark(&bytes) {
        Ok(text) if text.len() == bytes.len() => Ok(bytes),
        Ok(text) => Ok(text.to_vec()),
        Err(encoding) => Err(not_utf_8(file, encoding)),
    }
}

/// The exit code of an action that has ended.
fn verdict(status: &ActionStatus) -> Result<(), CliError> {
    if status.completed == status.total_jobs {
        return Ok(());
    }
    let (bad, total, id) = (status.total_jobs - status.completed, status.total_jobs, &status.action_id);
    Err(CliError::Jobs(format!(
        "{bad} of {total} jobs did not complete; see them with `agx action results {id}`"
    )))
}
