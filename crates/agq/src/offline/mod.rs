//! What agq does besides running the queue: backups are fetched, databases are checked, backups are put back, a PostgreSQL is
//! made ready. One file a command. Nothing here serves anybody.

mod backup;
mod check;
mod migrate;
mod part;
mod restore;

use std::{io::Write, process::ExitCode};

use crate::config::Command;

/// Carries a command out.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Backup(args) => backup::backup(args)?,
        Command::Restore(args) => restore::restore(args)?,
        Command::Migrate(args) => migrate::migrate(args)?,
        Command::Check(args) => {
            if !check::check(args)? {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a line.
fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
