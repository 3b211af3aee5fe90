//! `agx schedule …`

use std::path::Path;

use super::read;
use crate::{
    cli::ServerArgs,
    documents::{NameRef, ScheduleSet},
    error::CliError,
    output::{Output, pretty},
};

const HELP: &str = "see the schedules with `agx schedule list`";

pub(super) async fn set(server: &ServerArgs, file: &Path, output: Output) -> Result<(), CliError> {
    let json = read(file)?;
    let set = server.connect().await?.set_schedule(json).await?;
    let document = ScheduleSet { name: set.name.clone(), next_run_at: set.next_run_at.clone() };
    output.show("schedule.set", &document, |_| {
        format!("schedule {} is set; it submits first at {}", set.name, set.next_run_at)
    })
}

pub(super) async fn get(server: &ServerArgs, name: &str, output: Output) -> Result<(), CliError> {
    let schedule = server.connect().await?.schedule(name).await?;
    let schedule = schedule.ok_or_else(|| CliError::not_found("schedule", &name, HELP))?;
    output.show("schedule.get", &schedule, |schedule| pretty(schedule.get()))
}

pub(super) async fn list(server: &ServerArgs, output: Output) -> Result<(), CliError> {
    let names = server.connect().await?.schedules().await?;
    output.show("schedule.list", &names, |names| names.iter().map(|name| format!("{name}\n")).collect())
}

pub(super) async fn delete(server: &ServerArgs, name: &str, output: Output) -> Result<(), CliError> {
    if !server.connect().await?.delete_schedule(name).await? {
        return Err(CliError::not_found("schedule", &name, HELP));
    }
    output.show("schedule.delete", &NameRef { name: name.to_owned() }, |_| {
        format!("schedule {name} is deleted")
    })
}
