//! Command line of `agq-simulate`, which `cargo xtask simulate` runs.

use std::{
    collections::BTreeSet,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use clap::{Parser, Subcommand};

use crate::simulation::{
    corruption, crash_images, differential, log,
    metrics::SimulationMetrics,
    nodes,
    report::say,
    run::{SeedFailure, SeedScript, new_database, on_all_processors},
};

/// Simulates agq deterministically from seeds: clock, disk, workers, users and faults
#[derive(Debug, Parser)]
struct SimulationCli {
    #[command(subcommand)]
    command: SimulationCommand,
}

#[derive(Debug, Subcommand)]
enum SimulationCommand {
    /// Run seeds, and check all invariants after every write
    Seeds(SeedArgs),
    /// Start agq on every state that a crash or damage could leave of its files
    Images(ImageArgs),
    /// Run seeds without faults on redb and on PostgreSQL, and compare the replies
    Differential(DifferentialArgs),
    /// Run two nodes on one PostgreSQL at the same time
    Nodes(NodesArgs),
}

#[derive(Debug, clap::Args)]
struct ImageArgs {
    /// Number of scenarios that are crashed at every change of the disk
    #[arg(long, default_value_t = 12)]
    seeds: u64,
    /// First scenario
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of steps per scenario
    #[arg(long, default_value_t = 50)]
    steps: u64,
    /// Flip every byte of the file, not only a sample
    #[arg(long)]
    every_byte: bool,
    /// Do not damage the files
    #[arg(long, conflicts_with = "every_byte")]
    without_damage: bool,
}

impl ImageArgs {
    fn run(&self) -> anyhow::Result<bool> {
        std::panic::set_hook(Box::new(|_| {}));
        let images = crash_images::run(self.first..self.first + self.seeds, self.steps)?;
        if self.without_damage {
            return Ok(images);
        }
        Ok(corruption::run(self.seeds, self.steps * 4, self.every_byte)? && images)
    }
}

#[derive(Debug, clap::Args)]
struct DifferentialArgs {
    /// URL of a PostgreSQL whose content is deleted
    #[arg(long, value_name = "URL")]
    store: String,
    /// Number of seeds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of steps per seed
    #[arg(long, default_value_t = 60)]
    steps: u64,
}

impl DifferentialArgs {
    fn run(&self) -> anyhow::Result<bool> {
        std::panic::set_hook(Box::new(|_| {}));
        let (image, started) = (new_database()?, Instant::now());
        let (mut compared, mut failed, mut wavered) = (0, 0, 0);
        for seed in self.first..self.first + self.seeds {
            let script = SeedScript { seed, steps: self.steps, only: None };
            let mut event_log = Vec::new();
            let mut compare = || differential::compare(&script, &image, &self.store, &mut event_log);
            // PostgreSQL has threads of its own, so it may execute two requests of the same moment
            // in the other order, which no guarantee excludes. An error in agq happens again.
            let again = compare().or_else(|SeedFailure { message, .. }| {
                wavered += 1;
                say(&format!("seed {seed} differs, and is run again: {message}"));
                compare()
            });
            match again {
                Ok(answers) => compared += answers,
                Err(SeedFailure { message, .. }) => {
                    failed += 1;
                    say(&format!("\nseed {seed} fails: {message}"));
                    event_log.iter().for_each(|line| say(&format!("  {line}")));
                    say(&format!(
                        "run it again with\n  cargo xtask simulate --differential --first {seed} --seeds 1\n"
                    ));
                }
            }
        }
        let (seeds, seconds) = (self.seeds, started.elapsed().as_secs_f64());
        say(&format!(
            "{seeds} seeds on both stores in {seconds:.1} s: {compared} answers were the same; {failed} seeds failed, {wavered} were run again"
        ));
        Ok(failed == 0 && wavered <= self.seeds / 100)
    }
}

#[derive(Debug, clap::Args)]
struct NodesArgs {
    /// URL of a PostgreSQL whose content is deleted
    #[arg(long, value_name = "URL")]
    store: String,
    /// Number of seeds
    #[arg(long, default_value_t = 8)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    first: u64,
}

impl NodesArgs {
    fn run(&self) -> anyhow::Result<bool> {
        let (started, mut done) = (Instant::now(), 0);
        for seed in self.first..self.first + self.seeds {
            match nodes::play(seed, &self.store) {
                Ok(jobs) => done += jobs,
                Err(message) => {
                    say(&format!("seed {seed} fails on two nodes: {message}"));
                    return Ok(false);
                }
            }
        }
        let (seeds, seconds) = (self.seeds, started.elapsed().as_secs_f64());
        say(&format!("{seeds} seeds on two nodes in {seconds:.1} s: {done} jobs; 0 seeds failed"));
        Ok(true)
    }
}

#[derive(Debug, clap::Args)]
struct SeedArgs {
    /// Number of seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run only this seed, and print what happens
    #[arg(long)]
    seed: Option<u64>,
    /// Number of steps per seed
    #[arg(long, default_value_t = 60)]
    steps: u64,
    /// Run only these steps of the seed
    #[arg(long, value_delimiter = ',', requires = "seed")]
    only: Option<Vec<u64>>,
    /// Run each seed twice, and compare
    #[arg(long)]
    twice: bool,
}

/// Runs `agq-simulate` from its command line to its exit code.
pub fn run_program() -> ExitCode {
    let command = SimulationCli::parse().command;
    log::start();
    let outcome = match command {
        SimulationCommand::Seeds(seeds) => seeds.run(),
        SimulationCommand::Images(images) => images.run(),
        SimulationCommand::Differential(differential) => differential.run(),
        SimulationCommand::Nodes(nodes) => nodes.run(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("agq-simulate: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct SeedResults {
    counts: SimulationMetrics,
    failures: Vec<(SeedScript, SeedFailure)>,
}

impl SeedArgs {
    fn run(&self) -> anyhow::Result<bool> {
        // A panic is reported as the failure of its seed.
        std::panic::set_hook(Box::new(|_| {}));
        let image = new_database()?;
        if let Some(seed) = self.seed {
            let only = self.only.as_ref().map(|only| only.iter().copied().collect::<BTreeSet<_>>());
            return Ok(tell(&SeedScript { seed, steps: self.steps, only }, &image));
        }
        let (started, next, found) =
            (Instant::now(), AtomicU64::new(self.first), Mutex::new(SeedResults::default()));
        on_all_processors(|| self.work(&image, &next, &found));
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let SimulationMetrics { steps, commands, writes, faults, restarts, jobs } = found.counts;
        let seconds = started.elapsed().as_secs_f64();
        say(&format!(
            "{} seeds in {seconds:.1} s: {steps} steps, {commands} commands, {writes} batches, {jobs} jobs, {faults} faults, \
             {restarts} starts of agq; {} seeds failed",
            self.seeds,
            found.failures.len()
        ));
        let mut failures = found.failures;
        failures.sort_by_key(|(script, _)| script.seed);
        for (script, failure) in failures.iter().take(3) {
            let short = script.shrunk(&image, failure);
            tell(&short, &image);
        }
        Ok(failures.is_empty())
    }

    fn work(&self, image: &[u8], next: &AtomicU64, found: &Mutex<SeedResults>) {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.first + self.seeds {
                return;
            }
            let script = SeedScript { seed, steps: self.steps, only: None };
            let outcome = script.run(image, false);
            let again = self.twice.then(|| script.run(image, false));
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.counts.add(&outcome.counts);
            if let Some(failure) = outcome.failure {
                found.failures.push((script, failure));
            } else if again.is_some_and(|again| again.trace != outcome.trace) {
                let message = "it went another way when it was run again".to_owned();
                found.failures.push((script, SeedFailure { step: None, message }));
            }
            if found.failures.len() >= 20 {
                return;
            }
        }
    }
}

/// Runs a script, and prints its event log if it fails. Returns true if it passes.
fn tell(script: &SeedScript, image: &[u8]) -> bool {
    let outcome = script.run(image, true);
    let Some(failure) = &outcome.failure else {
        say(&format!("seed {} went well: {:?}", script.seed, outcome.counts));
        return true;
    };
    let place = failure.step.map_or_else(|| "at the end".to_owned(), |step| format!("in step {step}"));
    say(&format!("\nseed {} fails {place}: {}", script.seed, failure.message));
    outcome.event_log.iter().for_each(|line| say(&format!("  {line}")));
    say(&format!("run it again with\n  {}\n", script.command()));
    false
}
