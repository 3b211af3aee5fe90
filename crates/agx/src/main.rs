//! agx, the command line of AGEniX: submits plans and actions to agq and fetches results.

#![forbid(unsafe_code)]

mod background;
mod cli;
mod commands;
mod connection_args;
mod docs_url;
mod documents;
mod error;
mod json_schema;
mod logs;
mod map;
mod output;
mod profiles;
mod remote;
mod sandbox;
mod scale;
mod signing_keys;
mod top;
mod util;
mod watch;

use std::process::ExitCode;

use crate::{cli::Cli, output::OutputFormat, util::threads};

/// Threads that every command may need: that of the runtime, and one that reads stdin.
const MIN_THREADS: usize = 2;

fn main() -> ExitCode {
    let cli: Cli = agenix_cli::parse();
    // Only this call sets the directory, so that it cannot fail.
    let _is_set = tempfile::env::override_temp_dir(&agenix_cli::temp_dir());
    let output = OutputFormat { is_json: cli.json, ..OutputFormat::default() };
    // A separate thread reads the connection, because agq disconnects clients that do not read, and
    // a pager may block the main thread for an unlimited time.
    let build = |()| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let done = match agenix_cli::check_threads(MIN_THREADS).and_then(build) {
        Ok(runtime) => runtime.block_on(cli::run(cli, output)),
        Err(error) => Err(threads::refused(&error)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.fail(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
