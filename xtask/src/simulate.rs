//! Runs `agq-simulate`: the deterministic simulation of agq, and its crash images. The program is
//! optimised, and has the checks of a debug build.

use std::{fs::File, path::Path, process::Command, thread};

use agenix_harness::{
    binaries,
    report::{RunReport, must},
    tools,
};
use anyhow::{Context, anyhow};
use clap::Args;
use e2e::Postgres;

/// One of this many seeds that run on both stores also runs on two nodes.
const SEEDS_FOR_NODES: u64 = 25;

/// Seeds to run.
#[derive(Debug, Args)]
pub(crate) struct Seeds {
    /// Number of seeds
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run only this seed, and print what happens
    #[arg(long)]
    seed: Option<u64>,
    /// Steps of each seed
    #[arg(long, default_value_t = 60)]
    steps: u64,
    /// Run only these steps of the seed, in the form that a failure prints
    #[arg(long, requires = "seed")]
    only: Option<String>,
    /// Run each seed twice, and compare the runs
    #[arg(long)]
    twice: bool,
    /// Run each seed on redb and on PostgreSQL without faults, and compare the answers
    #[arg(long, conflicts_with_all = ["seed", "twice"])]
    differential: bool,
}

/// Runs the seeds.
pub(crate) fn seeds(seeds: &Seeds) -> anyhow::Result<()> {
    if seeds.differential {
        let mut report = RunReport::default();
        both_stores(&mut report, seeds.first, seeds.seeds, seeds.steps)?;
        report.print();
        return Ok(());
    }
    let mut args = vec![format!("--steps={}", seeds.steps)];
    match seeds.seed {
        Some(seed) => args.push(format!("--seed={seed}")),
        None => args.extend([format!("--seeds={}", seeds.seeds), format!("--first={}", seeds.first)]),
    }
    args.extend(seeds.only.as_ref().map(|only| format!("--only={only}")));
    args.extend(seeds.twice.then(|| "--twice".to_owned()));
    simulate("seeds", &args)
}

/// Runs the seeds of `cargo xtask test`: some of them twice, then all of them once.
pub(crate) fn test() -> anyhow::Result<()> {
    let steps = "--steps=60".to_owned();
    simulate("seeds", &["--seeds=100".to_owned(), "--twice".to_owned(), steps.clone()])?;
    simulate("seeds", &["--seeds=3000".to_owned(), steps])
}

/// Runs the seeds of `cargo xtask test` on both stores. The halves run at the same time, each with
/// a PostgreSQL of its own, because agq and PostgreSQL wait for each other in a seed.
pub(crate) fn test_both_stores(report: &mut RunReport) -> anyhow::Result<()> {
    let halves = (tools::postgres(report), tools::postgres(report));
    let (Some(first), Some(second)) = halves else { return Ok(()) };
    thread::scope(|scope| {
        let second = scope.spawn(|| on_cluster(&second, 40, 40, 60));
        let first = on_cluster(&first, 0, 40, 60);
        let second = second.join().map_err(|_| anyhow!("the second half of the seeds has panicked"))?;
        first.and(second)
    })
}

/// Runs seeds on redb and on a private PostgreSQL, and some of them on two nodes.
fn both_stores(report: &mut RunReport, first: u64, seeds: u64, steps: u64) -> anyhow::Result<()> {
    let Some(cluster) = tools::postgres(report) else { return Ok(()) };
    on_cluster(&cluster, first, seeds, steps)
}

fn on_cluster(cluster: &Postgres, first: u64, seeds: u64, steps: u64) -> anyhow::Result<()> {
    let args = [format!("--store={}", cluster.url()), format!("--first={first}")];
    let counts = [format!("--seeds={seeds}"), format!("--steps={steps}")];
    simulate("differential", &[args.clone(), counts].concat())?;
    simulate("nodes", &[&args[..], &[format!("--seeds={}", seeds.div_ceil(SEEDS_FOR_NODES))]].concat())
}

/// Opens the files that a crash could leave behind, and damaged ones.
pub(crate) fn crash_images(every_byte: bool) -> anyhow::Result<()> {
    let args = if every_byte { vec!["--every-byte".to_owned()] } else { Vec::new() };
    simulate("images", &args)
}

/// Opens the files of the scenarios of `cargo xtask test`. The nightly run has all scenarios.
pub(crate) fn test_crash_images() -> anyhow::Result<()> {
    simulate("images", &["--seeds=2".to_owned()])
}

fn simulate(command_name: &str, args: &[String]) -> anyhow::Result<()> {
    let program = binaries::build_checked(&["agq-simulate"])?.join("agq-simulate");
    must(command(&program)?.arg(command_name).args(args))
}

/// Returns the command that runs a simulation. The output of the simulation goes to stdout. The
/// stderr of the simulation is a full device, because the log of agq has to fail, and so has the
/// report of that failure.
pub(crate) fn command(program: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(program);
    command.stderr(File::options().write(true).open("/dev/full").context("there is no /dev/full")?);
    Ok(command)
}
