//! One file a command.

mod action_results;
mod action_status;
mod action_submit;
mod background;
mod job;
mod map;
mod plan;
mod profile;
mod queue;
mod schedule;
mod worker;
mod workflow;

use std::{io::Read, path::Path};

use agenix_protocol::{documents::ActionStatus, ids::ActionId};

use crate::{
    cli::{
        ActionCommand, Cli, Command, JobCommand, PlanCommand, QueueCommand, ScheduleCommand, WorkerCommand,
        WorkflowCommand,
    },
    failure::Failure,
    keeper,
    output::Output,
};

/// Does what the command line says.
pub(crate) async fn run(cli: Cli, output: Output) -> Result<(), Failure> {
    let server = &cli.server;
    match cli.command {
        Command::Up(args) => background::up(&args, output).await,
        Command::Down(args) => background::down(&args, output),
        Command::Join(args) => background::join(&args, output).await,
        Command::Keep { directory } => keeper::run(&directory).await,
        Command::Profile(command) => profile::run(server, command, output),
        Command::Map(args) => map::run(server, *args, output).await,
        Command::Plan(PlanCommand::Submit { file }) => plan::submit(server, &file, output).await,
        Command::Plan(PlanCommand::Get { plan_id }) => plan::get(server, &plan_id, output).await,
        Command::Plan(PlanCommand::List) => plan::list(server, output).await,
        Command::Plan(PlanCommand::Check { file }) => plan::check(&file, output),
        Command::Action(ActionCommand::Submit(args)) => action_submit::run(server, args, output).await,
        Command::Action(ActionCommand::Status { action_id, watch }) => {
            action_status::run(server, &action_id, watch, output).await
        }
        Command::Action(ActionCommand::Results { action_id, ordered, output_dir }) => {
            action_results::run(server, &action_id, ordered, output_dir.as_deref(), output).await
        }
        Command::Job(JobCommand::Status { job_id }) => job::status(server, &job_id, output).await,
        Command::Job(JobCommand::List { action_id, status }) => {
            job::list(server, &action_id, status, output).await
        }
        Command::Worker(WorkerCommand::List) => worker::list(server, output).await,
        Command::Queue(QueueCommand::Stats) => queue::stats(server, output).await,
        Command::Schedule(ScheduleCommand::Set { file }) => schedule::set(server, &file, output).await,
        Command::Schedule(ScheduleCommand::Get { name }) => schedule::get(server, &name, output).await,
        Command::Schedule(ScheduleCommand::List) => schedule::list(server, output).await,
        Command::Schedule(ScheduleCommand::Delete { name }) => schedule::delete(server, &name, output).await,
        Command::Workflow(WorkflowCommand::Submit { file }) => workflow::submit(server, &file, output).await,
        Command::Workflow(WorkflowCommand::Status { workflow_id }) => {
            workflow::status(server, &workflow_id, output).await
        }
        Command::Workflow(WorkflowCommand::List) => workflow::list(server, output).await,
        Command::Workflow(WorkflowCommand::Cancel { workflow_id }) => {
            workflow::cancel(server, &workflow_id, output).await
        }
    }
}

/// An id of our own, so that the submission can be sent again when its answer was lost.
fn new_id() -> Result<ActionId, Failure> {
    let id = uuid::Uuid::new_v4().to_string();
    ActionId::new(id).map_err(|error| Failure::usage(error.to_string(), "choose one with --id"))
}

/// A file's bytes, or stdin's for `-`.
fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    let failed = |error| {
        Failure::usage(
            format!("cannot read {}: {error}", file.display()),
            "give a file that can be read, or - for stdin",
        )
    };
    read.map(|_| bytes).map_err(failed)
}

/// The exit code of an action that has ended.
fn verdict(status: &ActionStatus) -> Result<(), Failure> {
    if status.completed == status.total_jobs {
        return Ok(());
    }
    let (bad, total, id) = (status.total_jobs - status.completed, status.total_jobs, &status.action_id);
    Err(Failure::Jobs(format!(
        "{bad} of {total} jobs did not complete; see them with `agx action results {id}`"
    )))
}
