//! Entry point of `cargo xtask`: the commands for developers and CI.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the output of the commands goes to stdout")]

mod attacks;
mod command_table;
mod demo;
mod dist;
mod e2e;
mod module_graph;
mod mutations;
mod simulate;
mod test;
mod tidy;
mod tour;
mod vm;

use std::{ffi::OsString, os::unix::process::CommandExt, path::PathBuf, process::ExitCode};

use agenix_harness::report::{self, tool};
use anyhow::Context;
use clap::{Args, Parser, Subcommand};

/// The commands of this repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Option<XtaskCommand>,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Run everything that CI runs
    Test,
    /// Run the end-to-end tests on the real binaries, on redb and on PostgreSQL
    E2e {
        /// Only the tests whose names contain this
        filter: Option<String>,
    },
    /// Try the attacks of the threat model on sandboxes of this machine, and show what stops each
    Attacks,
    /// Run end-to-end tests in a virtual machine, by default those that need control groups
    Vm {
        /// Only the tests whose names contain this
        filter: Option<String>,
    },
    /// Check the rules that no other tool checks: module graph, paths, links, lengths
    Tidy,
    /// Write the table of commands into docs/protocol/README.md
    CommandTable,
    /// Count the words of 2,000 files with two workers, kill agq half-way, and compare with a shell
    Demo,
    /// Run seeds of the deterministic simulation: agq with simulated clock, disk and clients
    Simulate(simulate::Seeds),
    /// Mutate agq in one place at a time, and check that the simulation or chaos notices
    Mutations {
        /// Only those whose names contain this
        filter: Option<String>,
    },
    /// Open files as crashes and damage leave them, and compare with what was acknowledged
    CrashImages {
        /// Damage every byte of the file instead of a few: this takes some minutes
        #[arg(long)]
        every_byte: bool,
    },
    /// Kill, suspend, disconnect and starve the real binaries at random, and check that nothing is
    /// lost
    #[command(disable_help_flag = true)]
    Chaos(Arguments),
    /// Make a release: static programs, Debian package, source, Homebrew formula, Grafana dashboard
    Dist {
        /// Directory of the files
        #[arg(long, value_name = "DIR", default_value = "target/dist")]
        out: PathBuf,
    },
    /// Measure AGEniX beside tools that do the same
    #[command(disable_help_flag = true)]
    Bench(Arguments),
    /// Check bounds under load: a million inputs, thousands of connections, claims during bulk
    /// submissions
    #[command(disable_help_flag = true)]
    Load(Arguments),
}

/// Arguments that a program of tools/ parses.
#[derive(Args)]
struct Arguments {
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by a program of tools/. Returns only if the program cannot be started.
fn exec(package: &str, command: Option<&str>, Arguments { arguments }: Arguments) -> anyhow::Result<()> {
    let arguments: Vec<OsString> = command.into_iter().map(OsString::from).chain(arguments).collect();
    Err(tool(package, &arguments).exec()).with_context(|| format!("cannot start {package}"))
}

fn main() -> ExitCode {
    let Some(command) = Cli::parse().command else {
        print!("{}", tour::TEXT);
        return ExitCode::SUCCESS;
    };
    let done = match command {
        XtaskCommand::Test => test::run(),
        XtaskCommand::E2e { filter } => e2e::run(filter.as_deref()),
        XtaskCommand::Attacks => attacks::run(),
        XtaskCommand::Vm { filter } => vm::run(filter.as_deref()),
        XtaskCommand::Tidy => tidy::run(),
        XtaskCommand::CommandTable => command_table::run(),
        XtaskCommand::Demo => demo::run(),
        XtaskCommand::Simulate(seeds) => simulate::seeds(&seeds),
        XtaskCommand::Mutations { filter } => mutations::run(filter.as_deref()),
        XtaskCommand::CrashImages { every_byte } => simulate::crash_images(every_byte),
        XtaskCommand::Chaos(arguments) => exec("agenix-chaos", None, arguments),
        XtaskCommand::Dist { out } => dist::run(&out),
        XtaskCommand::Bench(arguments) => exec("agenix-bench", Some("bench"), arguments),
        XtaskCommand::Load(arguments) => exec("agenix-bench", Some("load"), arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Arguments, Cli, XtaskCommand, tour};

    #[test]
    fn tour_names_every_command() {
        for command in Cli::command().get_subcommands() {
            let line = format!("  {}", command.get_name());
            assert!(tour::TEXT.lines().any(|shown| shown.starts_with(&line)), "{line}");
        }
    }

    #[test]
    fn options_after_bench_belong_to_the_benchmark() {
        let cli = Cli::try_parse_from(["xtask", "bench", "wire", "--quick", "--help"]).unwrap();
        let Some(XtaskCommand::Bench(Arguments { arguments })) = cli.command else {
            panic!("another command")
        };
        assert_eq!(arguments, ["wire", "--quick", "--help"]);
    }
}
