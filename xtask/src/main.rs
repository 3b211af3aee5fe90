//! What developers and CI run: `cargo xtask test`, `cargo xtask demo`, and their parts.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "these are commands: what they say is their output")]

mod binaries;
mod demo;
mod e2e;
mod floors;
mod report;
mod test;
mod tidy;
mod tools;

use std::process::ExitCode;

use clap::Parser;

/// The commands of this repository.
#[derive(Parser)]
enum Xtask {
    /// Everything that CI runs: format, clippy, tidy, cargo-deny, unit tests, store contract, stories
    Test,
    /// The stories on the real binaries alone
    E2e {
        /// Only the stories whose names contain this
        filter: Option<String>,
    },
    /// The rules that no other tool checks: floors, paths, documents
    Tidy,
    /// The main job: words of a thousand files, counted by two workers, while agq is killed half-way
    Demo,
}

fn main() -> ExitCode {
    let done = match Xtask::parse() {
        Xtask::Test => test::run(),
        Xtask::E2e { filter } => e2e::run(filter.as_deref()),
        Xtask::Tidy => tidy::run(),
        Xtask::Demo => demo::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
