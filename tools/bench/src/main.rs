//! `cargo xtask bench` and `cargo xtask load`: measure AGEniX beside other tools and beside the
//! limits of the machine, and write a table, JSON, a chart, and the tables of the documentation.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the figures go to stdout")]

mod chart;
mod check;
mod comparison;
mod cycle;
mod data;
mod document;
mod limits;
mod load;
mod machine;
mod measure;
mod pages;
mod publish;
mod redis_server;
mod row;
mod scale;
mod table;
mod tasks;
mod wire;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use agenix_harness::{binaries, environment, pgo, tools};
use anyhow::{Context, bail};
use clap::{Args, Parser, ValueEnum};

pub(crate) use self::{
    comparison::{Better, ContenderComparison},
    measure::Bench,
};
use self::{
    document::{Detail, ResultsDocument},
    row::Origin,
};

/// The commands that measure.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Cli {
    /// Measure AGEniX beside tools that do the same
    Bench(Box<BenchOptions>),
    /// Check bounds under load: a million inputs, thousands of connections, claims during bulk
    /// submissions
    Load {
        /// Number of inputs of the large action
        #[arg(long, default_value_t = 1_000_000)]
        inputs: usize,
    },
    /// Run the workload during which instrumented programs record their profile
    #[command(hide = true)]
    PgoWorkload {
        /// Directory of the programs
        bin: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse() {
        Cli::Bench(options) => run(&options),
        Cli::Load { inputs } => load::run(inputs),
        Cli::PgoWorkload { bin } => pgo_workload(&bin),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measure AGEniX beside tools that do the same
#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// Only these sections [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<Section>,
    /// Smaller workloads and fewer rounds, in five minutes; without `store`, `scale` and `data`
    /// unless they are named
    #[arg(long)]
    quick: bool,
    /// Count the instructions of the hot paths instead, and compare them with the recorded counts
    #[arg(long)]
    check: bool,
    /// Record the counted instructions
    #[arg(long, requires = "check")]
    record: bool,
    /// Write the results also to this file [always: target/bench.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Replace the measured sections in docs/bench.json, the chart, README.md and
    /// docs/performance.md
    #[arg(long)]
    publish: bool,
    /// Publish the results of an earlier run, and measure nothing
    #[arg(long, value_name = "FILE", requires = "publish", conflicts_with_all = ["names", "json"])]
    from: Option<PathBuf>,
    /// Only rows of wire, cycle, store and tasks whose titles contain this text; of scale, only the
    /// part of this name: queued, million, lanes, waiting, shares, latency, reopen
    #[arg(long, value_name = "TEXT")]
    rows: Option<String>,
    /// Exit with an error if a floor is missed
    #[arg(long)]
    strict: bool,
    /// Path of the `hq` of HyperQueue [default: its Python package]
    #[arg(long, value_name = "PATH", env = "HQ")]
    hq: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Limits of the machine: processes, syncs, round trips
    Limits,
    /// Commands on keys, beside redis-server
    Wire,
    /// Submit, claim and complete a job, beside other durable queues
    Cycle,
    /// The same with several agq on one PostgreSQL, beside other queues there
    Nodes,
    /// A large PostgreSQL store, or one with several nodes, beside a fresh one with one node
    Store,
    /// The Open Job Spec over HTTP, beside RESP
    Http,
    /// Processes from submission to the last result, beside tools that run processes
    Tasks,
    /// Processes in the sandbox, beside plain ones and beside bubblewrap
    Sandbox,
    /// Millions of jobs, ten thousand lanes, hundreds of workers, a large database
    Scale,
    /// A gigabyte through a pipeline, beside bash
    Data,
}

/// Directories of programs.
pub(crate) struct ProgramDirs {
    /// Our programs: PGO-optimised, or plain release builds in a quick run.
    pub(crate) bin: PathBuf,
    /// Installed programs of the peers, such as `bin/redis-server`.
    pub(crate) tools: PathBuf,
}

impl Section {
    fn name(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Wire => "wire",
            Self::Cycle => "cycle",
            Self::Nodes => "nodes",
            Self::Store => "store",
            Self::Http => "http",
            Self::Tasks => "tasks",
            Self::Sandbox => "sandbox",
            Self::Scale => "scale",
            Self::Data => "data",
        }
    }

    /// Returns the position of a section, by which rows are sorted.
    fn position(name: &str) -> usize {
        let sections = Self::value_variants();
        sections.iter().position(|section| section.name() == name).unwrap_or(sections.len())
    }

    /// Returns true if the section has peers that have to be installed.
    fn has_peers(self) -> bool {
        matches!(self, Self::Wire | Self::Cycle | Self::Nodes | Self::Tasks | Self::Sandbox)
    }

    /// Returns true if the section takes minutes even in a quick run.
    fn is_long(self) -> bool {
        matches!(self, Self::Store | Self::Scale | Self::Data)
    }

    fn run(self, bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
        match self {
            Self::Limits => limits::run(bench, programs),
            Self::Wire => wire::run(bench, programs),
            Self::Cycle => cycle::run(bench, programs),
            Self::Nodes => cycle::nodes::run(bench, programs),
            Self::Store => cycle::store::run(bench, programs),
            Self::Http => cycle::http::run(bench, programs),
            Self::Tasks => tasks::run(bench, programs),
            Self::Sandbox => tasks::sandbox::run(bench, programs),
            Self::Scale => scale::run(bench, programs),
            Self::Data => data::run(bench, programs),
        }
    }
}

fn run(options: &BenchOptions) -> anyhow::Result<()> {
    if options.check {
        return check::run(options.record);
    }
    if let Some(file) = &options.from {
        return publish::publish(ResultsDocument::read(file)?);
    }
    environment::leave_cargo()?;
    machine::refuse_memory()?;
    // Each section runs once, in the order of the enum, whatever the order of the arguments.
    let is_wanted = |section: &&Section| match options.names.as_slice() {
        [] => !options.quick || !section.is_long(),
        names => names.contains(section),
    };
    let sections: Vec<Section> = Section::value_variants().iter().filter(is_wanted).copied().collect();
    let origin = Origin {
        date: machine::date()?,
        commit: machine::commit()?,
        kernel: machine::kernel(),
        is_quick: options.quick,
    };
    let mut bench = Bench::new(options.hq.clone(), origin);
    bench.only.clone_from(&options.rows);
    let programs = prepare(&mut bench, &sections, options.quick)?;
    let mut failed = Vec::new();
    for section in sections {
        let started = Instant::now();
        println!("\n=== {}", section.name());
        // A failed section does not end the run, because the figures of the others are still good.
        if let Err(error) = section.run(&mut bench, &programs) {
            println!("FAILED {}: {error:#}", section.name());
            failed.push(section.name());
        }
        println!("\n{} took {:.0} s", section.name(), started.elapsed().as_secs_f64());
        write(&bench, &programs, options)?;
    }
    conclude(&bench, options.strict)?;
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    if options.publish { publish::publish(document(&bench, &programs)) } else { Ok(()) }
}

/// Runs some of each workload that the benchmark has, so that instrumented programs record their
/// profile (ADR 16).
fn pgo_workload(bin: &Path) -> anyhow::Result<()> {
    cycle::pgo_workload::run(bin)?;
    tasks::pgo_workload(bin)
}

/// Builds our programs, and installs those of the peers. A quick run skips the PGO.
fn prepare(bench: &mut Bench, sections: &[Section], is_quick: bool) -> anyhow::Result<ProgramDirs> {
    let optimised = if is_quick { None } else { pgo::build(&mut bench.report, None, pgo_workload)? };
    let bin = match optimised {
        Some(bin) => bin,
        None => {
            bench.note_without_pgo();
            binaries::build()?
        }
    };
    let tools = if sections.iter().any(|section| section.has_peers()) {
        tools::real_clients(&mut bench.report)?
    } else {
        binaries::target()?.join("tools")
    };
    Ok(ProgramDirs { bin, tools })
}

fn document(bench: &Bench, programs: &ProgramDirs) -> ResultsDocument {
    let Origin { date, commit, is_quick, .. } = bench.origin().clone();
    ResultsDocument {
        date,
        commit,
        machine: machine::facts(),
        versions: machine::versions(&programs.tools, bench.hq.as_deref()),
        is_quick,
        rows: bench.rows().to_vec(),
    }
}

/// Writes the results so far as JSON and as a chart.
fn write(bench: &Bench, programs: &ProgramDirs, options: &BenchOptions) -> anyhow::Result<()> {
    let (document, target) = (document(bench, programs), binaries::target()?);
    document.write(&target.join("bench.json"), Detail::Rounds)?;
    if let Some(file) = &options.json {
        document.write(file, Detail::Rounds)?;
    }
    if let Some(svg) = chart::svg(&document.rows) {
        fs::write(target.join("bench.svg"), svg).context("cannot write the chart")?;
    }
    Ok(())
}

/// Prints the whole table, the report, and the missed floors.
fn conclude(bench: &Bench, is_strict: bool) -> anyhow::Result<()> {
    println!("\n=== all rows");
    for row in bench.rows() {
        println!("\n{}", table::block(row));
    }
    bench.report.print();
    let missed: Vec<String> = bench.rows().iter().flat_map(row::ResultRow::missed).collect();
    if missed.is_empty() {
        println!("no floor was missed");
        return Ok(());
    }
    println!("floors that were missed:\n  {}", missed.join("\n  "));
    if is_strict {
        bail!("{} floors were missed", missed.len());
    }
    Ok(())
}
