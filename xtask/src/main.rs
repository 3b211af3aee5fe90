//! What developers and CI run: `cargo xtask test`, `cargo xtask demo`, and their parts.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "these are commands: what they say is their output")]

mod bench;
mod binaries;
mod chaos;
mod command_table;
mod demo;
mod dist;
mod e2e;
mod floors;
mod load;
mod mutations;
mod report;
mod resp;
mod simulate;
mod test;
mod tidy;
mod tools;
mod trained;

use std::{path::PathBuf, process::ExitCode};

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
    /// Write the table of commands into docs/protocol/README.md
    CommandTable,
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
    Chaos {
        /// For how long; fractions are fine
        #[arg(long, default_value_t = 1.0)]
        minutes: f64,
        /// The seed of an earlier run, to do the same again [default: a random one]
        #[arg(long)]
        seed: Option<u64>,
        /// Where the programs are [default: a release build of them]
        #[arg(long, value_name = "DIR")]
        bin: Option<PathBuf>,
    },
    /// What is shipped: static programs, a Debian package, source and formula, the dashboard for Grafana
    Dist {
        /// Where to
        #[arg(long, value_name = "DIR", default_value = "target/dist")]
        out: PathBuf,
    },
    /// How fast it is, beside others that do the same
    Bench(Box<bench::BenchOptions>),
    /// A great deal at once, held against floors: a million inputs, thousands of connections, claims during bulk submissions
    Load {
        /// How many inputs the large action has
        #[arg(long, default_value_t = 1_000_000)]
        inputs: usize,
    },
}

fn main() -> ExitCode {
    let done = match Xtask::parse() {
        Xtask::Test => test::run(),
        Xtask::E2e { filter } => e2e::run(filter.as_deref()),
        Xtask::Tidy => tidy::run(),
        Xtask::CommandTable => command_table::run(),
        Xtask::Demo => demo::run(),
        Xtask::Simulate(seeds) => simulate::seeds(&seeds),
        Xtask::Mutations { filter } => mutations::run(filter.as_deref()),
        Xtask::CrashImages { every_byte } => simulate::crash_images(every_byte),
        Xtask::Chaos { minutes, seed, bin } => chaos::run(minutes, seed, bin),
        Xtask::Dist { out } => dist::run(&out),
        Xtask::Bench(options) => bench::run(&options),
        Xtask::Load { inputs } => load::run(inputs),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
