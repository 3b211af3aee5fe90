//! `cargo xtask bench`: how fast, beside every peer and beside what the machine can do, in one run; and what is made of it: a
//! table, JSON, a chart, the README's table.

mod chart;
mod check;
mod contest;
mod cycle;
mod data;
mod document;
mod environment;
mod limits;
mod machine;
mod measure;
pub(crate) mod page;
mod peers;
mod publish;
mod row;
mod scale;
mod table;
mod tasks;
mod wire;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

pub(crate) use self::{
    check::run as check,
    contest::{Better, Contest},
    measure::Bench,
};
use self::{
    document::{Detail, Document},
    row::Origin,
};
use crate::{binaries, tools, trained};

/// What to measure, and what to make of it.
#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// Only these parts
    #[arg(value_name = "NAME")]
    names: Vec<Section>,
    /// Less of everything, fewer rounds; without `store`, `scale` and `data` where nothing is named: within five minutes
    #[arg(long)]
    quick: bool,
    /// Count the instructions of the hot paths instead, and hold them against what is recorded
    #[arg(long)]
    check: bool,
    /// Record what was counted
    #[arg(long, requires = "check")]
    record: bool,
    /// Write what was measured to this file, too [always: target/bench.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write docs/bench.json, the chart and the tables of README.md and docs/performance.md, for the sections that ran
    #[arg(long)]
    publish: bool,
    /// Publish what an earlier run wrote, and measure nothing
    #[arg(long, value_name = "FILE", requires = "publish", conflicts_with_all = ["names", "json"])]
    from: Option<PathBuf>,
    /// Only the rows of wire, cycle, store and tasks whose titles have this text
    #[arg(long, value_name = "TEXT")]
    rows: Option<String>,
    /// A floor that is not reached is an error
    #[arg(long)]
    strict: bool,
    /// The `hq` of HyperQueue that takes part [default: the one in its Python package]
    #[arg(long, value_name = "PATH", env = "HQ")]
    hq: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    /// What the machine itself can do
    Limits,
    /// Commands on keys, against redis-server
    Wire,
    /// Submit, claim, complete: against those who keep jobs, too
    Cycle,
    /// The same by several agq on one PostgreSQL, against those who keep jobs there
    Nodes,
    /// A PostgreSQL store with much in it or several nodes on it, against a fresh one with one node
    Store,
    /// The Open Job Spec over HTTP, beside RESP
    Http,
    /// Processes, from submission to the last result, against those who start some
    Tasks,
    /// What much of everything costs
    Scale,
    /// A gigabyte through a pipeline, against bash
    Data,
}

/// Where the programs are.
pub(crate) struct Place {
    /// Ours: as they are shipped, or, in a quick run, as cargo builds them.
    pub(crate) bin: PathBuf,
    /// Those of others: `bin/redis-server` and what else was installed.
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
            Self::Scale => "scale",
            Self::Data => "data",
        }
    }

    /// The place of a section among all, for rows to be put in order by.
    fn position(name: &str) -> usize {
        let sections = Self::value_variants();
        sections.iter().position(|section| section.name() == name).unwrap_or(sections.len())
    }

    /// Whether peers take part that have to be installed.
    fn has_peers(self) -> bool {
        matches!(self, Self::Wire | Self::Cycle | Self::Nodes | Self::Tasks)
    }

    /// Whether it takes minutes also in a quick run.
    fn is_long(self) -> bool {
        matches!(self, Self::Store | Self::Scale | Self::Data)
    }

    fn run(self, bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
        match self {
            Self::Limits => limits::run(bench, place),
            Self::Wire => wire::run(bench, place),
            Self::Cycle => cycle::run(bench, place),
            Self::Nodes => cycle::nodes::run(bench, place),
            Self::Store => cycle::store::run(bench, place),
            Self::Http => cycle::http::run(bench, place),
            Self::Tasks => tasks::run(bench, place),
            Self::Scale => scale::run(bench, place),
            Self::Data => data::run(bench, place),
        }
    }
}

/// Runs what was asked for.
pub(crate) fn run(options: &BenchOptions) -> anyhow::Result<()> {
    if options.check {
        return check::alone(options.record);
    }
    if let Some(file) = &options.from {
        return publish::publish(Document::read(file)?);
    }
    environment::leave_cargo()?;
    machine::refuse_memory()?;
    // What was asked for twice is measured once, and in the order in which one part makes sense of the next.
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
    let place = prepare(&mut bench, &sections, options.quick)?;
    let mut failed = Vec::new();
    for section in sections {
        let started = Instant::now();
        println!("\n=== {}", section.name());
        // What is measured already is kept, whatever comes next.
        if let Err(error) = section.run(&mut bench, &place) {
            println!("FAILED {}: {error:#}", section.name());
            failed.push(section.name());
        }
        println!("\n{} took {:.0} s", section.name(), started.elapsed().as_secs_f64());
        write(&bench, &place, options)?;
    }
    conclude(&bench, options.strict)?;
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    if options.publish { publish::publish(document(&bench, &place)) } else { Ok(()) }
}

/// What the programs do while they count what they do (ADR 16): some of everything that is measured here.
pub(crate) fn train(bin: &Path) -> anyhow::Result<()> {
    cycle::training::work(bin)?;
    tasks::train(bin)
}

/// Builds ours, installs theirs. A quick run does not wait until ours are trained.
fn prepare(bench: &mut Bench, sections: &[Section], is_quick: bool) -> anyhow::Result<Place> {
    let trained = if is_quick { None } else { trained::build(&mut bench.report, None, train)? };
    let bin = match trained {
        Some(bin) => bin,
        None => {
            bench.note_untrained();
            binaries::build()?
        }
    };
    let tools = if sections.iter().any(|section| section.has_peers()) {
        tools::real_clients(&mut bench.report)?
    } else {
        binaries::target()?.join("tools")
    };
    Ok(Place { bin, tools })
}

fn document(bench: &Bench, place: &Place) -> Document {
    let Origin { date, commit, is_quick, .. } = bench.origin().clone();
    Document {
        date,
        commit,
        machine: machine::facts(),
        versions: machine::versions(&place.tools, bench.hq.as_deref()),
        is_quick,
        rows: bench.rows().to_vec(),
    }
}

/// What was measured so far, as JSON and as a chart.
fn write(bench: &Bench, place: &Place, options: &BenchOptions) -> anyhow::Result<()> {
    let (document, target) = (document(bench, place), binaries::target()?);
    document.write(&target.join("bench.json"), Detail::Rounds)?;
    if let Some(file) = &options.json {
        document.write(file, Detail::Rounds)?;
    }
    if let Some(svg) = chart::svg(&document.rows) {
        fs::write(target.join("bench.svg"), svg).context("cannot write the chart")?;
    }
    Ok(())
}

/// The whole table, what was installed and skipped, what is owed.
fn conclude(bench: &Bench, is_strict: bool) -> anyhow::Result<()> {
    println!("\n=== everything");
    for row in bench.rows() {
        println!("\n{}", table::block(row));
    }
    bench.report.print();
    let missed: Vec<String> = bench.rows().iter().flat_map(row::Row::missed).collect();
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
