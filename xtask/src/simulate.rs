//! agq below the socket, played from seeds, and the images that a crash could leave behind: `agq-simulate`, built with the
//! checks of a debug build and the speed of a release.

use std::{fs::File, path::Path, process::Command};

use agenix_harness::{
    binaries,
    report::{Report, must},
    tools,
};
use anyhow::Context;
use clap::Args;

/// Of so many seeds that are played on both stores one is also played on two nodes.
const SEEDS_FOR_NODES: u64 = 25;

/// Which seeds.
#[derive(Debug, Args)]
pub(crate) struct Seeds {
    /// How many seeds
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only this one, and tell its story
    #[arg(long)]
    seed: Option<u64>,
    /// How many steps each has
    #[arg(long, default_value_t = 60)]
    steps: u64,
    /// Only these steps of it, as a failure prints them
    #[arg(long, requires = "seed")]
    only: Option<String>,
    /// Run each seed twice, and compare
    #[arg(long)]
    twice: bool,
    /// Let nothing go wrong, and play each seed on redb and on a PostgreSQL: both have to answer alike
    #[arg(long, conflicts_with_all = ["seed", "twice"])]
    twins: bool,
}

/// Plays seeds.
pub(crate) fn seeds(seeds: &Seeds) -> anyhow::Result<()> {
    if seeds.twins {
        let mut report = Report::default();
        twins(&mut report, seeds.first, seeds.seeds, seeds.steps)?;
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

/// What `cargo xtask test` plays: ten thousand seeds, and some of them twice.
pub(crate) fn test() -> anyhow::Result<()> {
    let steps = "--steps=60".to_owned();
    simulate("seeds", &["--seeds=300".to_owned(), "--twice".to_owned(), steps.clone()])?;
    simulate("seeds", &["--seeds=10000".to_owned(), steps])
}

/// What `cargo xtask test` plays on both stores.
pub(crate) fn test_twins(report: &mut Report) -> anyhow::Result<()> {
    twins(report, 0, 200, 60)
}

/// Plays seeds on redb and on a PostgreSQL of their own.
fn twins(report: &mut Report, first: u64, seeds: u64, steps: u64) -> anyhow::Result<()> {
    let Some(cluster) = tools::postgres(report) else { return Ok(()) };
    let args = [format!("--store={}", cluster.url()), format!("--first={first}")];
    let counts = [format!("--seeds={seeds}"), format!("--steps={steps}")];
    simulate("twins", &[args.clone(), counts].concat())?;
    simulate("nodes", &[&args[..], &[format!("--seeds={}", seeds.div_ceil(SEEDS_FOR_NODES))]].concat())
}

/// Opens what a crash could leave behind, and what is left of a file that was damaged.
pub(crate) fn crash_images(every_byte: bool) -> anyhow::Result<()> {
    let args = if every_byte { vec!["--every-byte".to_owned()] } else { Vec::new() };
    simulate("images", &args)
}

fn simulate(what: &str, args: &[String]) -> anyhow::Result<()> {
    must(command(&binaries::build_simulation("agq-simulate")?)?.arg(what).args(args))
}

/// Returns the command that runs a simulation. All that the simulation says goes to its stdout. Its
/// stderr is a full device, because the log of agq fails, and a report of that has to fail, too.
pub(crate) fn command(program: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(program);
    command.stderr(File::options().write(true).open("/dev/full").context("there is no /dev/full")?);
    Ok(command)
}
