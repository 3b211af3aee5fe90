//! Entry point of the agq server: parses the command line, and runs the server or a subcommand.

#![forbid(unsafe_code)]
mod admin;
mod app;
mod auth;
mod background;
mod blobs;
mod clock;
mod config;
mod error;
mod http;
mod net;
mod redis;
mod registry;
mod resp;
mod service;
mod settings;
#[cfg(feature = "simulation")]
pub mod simulation;
mod startup;
mod store;
mod sync;
mod synced_directory;
mod waiters;

use std::{io::Write, process::ExitCode};

use agenix_protocol::printable::one_line;

use crate::{
    config::Cli,
    startup::{hardening::forbid_core_dumps, logging, server, signals::ignore_file_size_signal},
};

/// Runs agq from its command line to its exit code.
pub fn run_program() -> ExitCode {
    let cli: Cli = agenix_cli::parse();
    logging::start();
    forbid_core_dumps();
    // Plans and results are private to the user who runs agq.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let outcome = match &cli.command {
        Some(command) => run_subcommand(command),
        None => server::serve(cli).map(|()| ExitCode::SUCCESS),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to do if stderr cannot be written.
            let _unread = writeln!(std::io::stderr(), "agq: {}", one_line(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run_subcommand(command: &config::Command) -> anyhow::Result<ExitCode> {
    // tokio panics if the system refuses a thread for calls that block.
    agenix_cli::check_threads(1)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _inside = runtime.enter();
    let _too_large = ignore_file_size_signal()?;
    admin::run(command)
}
