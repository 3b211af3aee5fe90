//! agq, the queue.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    agq_server::run_program()
}
