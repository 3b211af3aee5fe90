//! Program that is a supervisor and nothing else, for tests of the crate.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    if agenix_sandbox::supervisor::is_requested(std::env::args_os()) {
        return agenix_sandbox::supervisor::main();
    }
    ExitCode::FAILURE
}
