//! agq below the socket, played from seeds.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    agq_server::simulation::run_program()
}
