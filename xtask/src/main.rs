//! What developers and CI run: `cargo xtask test`, `cargo xtask demo`, and their parts.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "these are commands: what they say is their output")]

mod demo;
mod dist;
mod e2e;
mod floors;
mod mutations;
mod simulate;
mod test;
mod tidy;

use std::{ffi::OsString, os::unix::process::CommandExt, path::PathBuf, process::ExitCode};

use agenix_harness::report::{self, tool};
use anyhow::Context;
use clap::{Args, Parser};

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
    /// agq below the socket, its clock, its disk and its users played from seeds, and everything checked after every step
    Simulate(simulate::Seeds),
    /// agq with one thing left out, again and again: which seed of the simulation notices
    Mutations {
        /// Only those whose names contain this
        filter: Option<String>,
    },
    /// What a crash could leave of the database file, and what damage could: opened, and compared with what was acknowledged
    CrashImages {
        /// Damage every byte of the file, and not one of a few: this takes some minutes
        #[arg(long)]
        every_byte: bool,
    },
    /// The real binaries at work while they are killed, stopped, cut off and starved at random: nothing may be lost
    #[command(disable_help_flag = true)]
    Chaos(Arguments),
    /// What is shipped: static programs, a Debian package, source and formula, the dashboard for Grafana
    Dist {
        /// Where to
        #[arg(long, value_name = "DIR", default_value = "target/dist")]
        out: PathBuf,
    },
    /// How fast it is, beside others that do the same
    #[command(disable_help_flag = true)]
    Bench(Arguments),
    /// A great deal at once, held against floors: a million inputs, thousands of connections, claims during bulk submissions
    #[command(disable_help_flag = true)]
    Load(Arguments),
}

/// Arguments of a program in tools/, which reads them itself.
#[derive(Args)]
struct Arguments {
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs a program of tools/ in place of this one. Returns only if it cannot be started.
fn hand_over(package: &str, command: Option<&str>, Arguments { arguments }: Arguments) -> anyhow::Result<()> {
    let arguments: Vec<OsString> = command.into_iter().map(OsString::from).chain(arguments).collect();
    Err(tool(package, &arguments).exec()).with_context(|| format!("cannot start {package}"))
}

fn main() -> ExitCode {
    let done = match Xtask::parse() {
        Xtask::Test => test::run(),
        Xtask::E2e { filter } => e2e::run(filter.as_deref()),
        Xtask::Tidy => tidy::run(),
        Xtask::Demo => demo::run(),
        Xtask::Simulate(seeds) => simulate::seeds(&seeds),
        Xtask::Mutations { filter } => mutations::run(filter.as_deref()),
        Xtask::CrashImages { every_byte } => simulate::crash_images(every_byte),
        Xtask::Chaos(arguments) => hand_over("agenix-chaos", None, arguments),
        Xtask::Dist { out } => dist::run(&out),
        Xtask::Bench(arguments) => hand_over("agenix-bench", Some("bench"), arguments),
        Xtask::Load(arguments) => hand_over("agenix-bench", Some("load"), arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
