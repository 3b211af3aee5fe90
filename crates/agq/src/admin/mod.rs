//! Subcommands of `agq` for administration, one file each: backup, restore, check, export, import,
//! migration of PostgreSQL, tokens and completions. No module here runs the server.

mod backup;
mod blob_copy;
mod check;
mod completions;
mod export;
mod import;
mod migrate;
mod partial_file;
mod restore;
mod token;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;

use crate::config::Command;

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Backup(args) => backup::backup(args)?,
        Command::Restore(args) => restore::restore(args)?,
        Command::Token(args) => token::token(args)?,
        Command::Migrate(args) => migrate::migrate(args)?,
        Command::Export(args) => export::export(args)?,
        Command::Import(args) => import::import(args)?,
        Command::Completions { shell } => completions::completions(*shell)?,
        Command::Man { directory } => completions::man(directory)?,
        Command::Check(args) => {
            if !check::check(args)? {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn say(line: &str) -> anyhow::Result<()> {
    print(format!("{line}\n").as_bytes())
}

fn print(text: &[u8]) -> anyhow::Result<()> {
    let printed = agenix_cli::stdout().and_then(|mut out| out.write_all(text).and_then(|()| out.flush()));
    printed.context("the output could not be written")
}

/// Returns the path of the database in a data directory, or `path` itself if it is a file.
fn database(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("agq.redb") } else { path.to_owned() }
}
