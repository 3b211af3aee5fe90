//! Deterministic simulation of agq, driven by seeds.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    agq_server::simulation::run_program()
}
