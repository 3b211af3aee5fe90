//! `agx schedule`

use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::read;
use crate::{
    connection_args::ConnectionArgs,
    documents::{NameRef, ScheduleSet},
    error::{CliError, Result},
    output::{OutputFormat, pretty},
};

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Create or replace a schedule
    Set {
        /// Schedule in JSON: name, expression (minute hour day month weekday, or @daily …),
        /// timezone, action; - reads stdin
        file: PathBuf,
    },
    /// Print a schedule with its next run and its last submission
    Get { name: String },
    /// List the schedules
    List,
    /// Delete a schedule; the actions that it submitted stay
    Delete { name: String },
}

pub(crate) async fn run(
    server: &ConnectionArgs,
    command: ScheduleCommand,
    output: OutputFormat,
) -> Result<()> {
    match command {
        ScheduleCommand::Set { file } => set(server, &file, output).await,
        ScheduleCommand::Get { name } => get(server, &name, output).await,
        ScheduleCommand::List => output.list("schedule.list", &server.connect().await?.schedules().await?),
        ScheduleCommand::Delete { name } => delete(server, &name, output).await,
    }
}

const HELP: &str = "see the schedules with `agx schedule list`";

async fn set(server: &ConnectionArgs, file: &Path, output: OutputFormat) -> Result<()> {
    let json = read(file)?;
    let set = server.connect().await?.set_schedule(json).await?;
    let document = ScheduleSet { name: set.name.clone(), next_run_at: set.next_run_at.clone() };
    output.show("schedule.set", &document, |_| {
        format!("schedule {} is set; its first run is at {}", set.name, set.next_run_at)
    })
}

async fn get(server: &ConnectionArgs, name: &str, output: OutputFormat) -> Result<()> {
    let schedule = server.connect().await?.schedule(name).await?;
    let schedule = schedule.ok_or_else(|| CliError::not_found("schedule", &name, HELP))?;
    output.show("schedule.get", &schedule, |schedule| pretty(schedule.get()))
}

async fn delete(server: &ConnectionArgs, name: &str, output: OutputFormat) -> Result<()> {
    if !server.connect().await?.delete_schedule(name).await? {
        return Err(CliError::not_found("schedule", &name, HELP));
    }
    output.show("schedule.delete", &NameRef { name: name.to_owned() }, |_| {
        format!("schedule {name} is deleted")
    })
}
