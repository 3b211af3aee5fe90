//! Submits an action of a million inputs with agx, and measures the time until agq has accepted it,
//! and the memory of agq.

use std::{cell::RefCell, fmt::Write, path::Path, time::Instant};

use anyhow::{Context, ensure};
use e2e::Lab;

use super::{
    SECTION,
    fixture::{ScaleFixture, expect_ready},
    number, replay,
};
use crate::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    load::process_stats,
    measure::Bench,
    table::grouped,
};

const MILLION: usize = 1_000_000;
const QUICK: usize = 100_000;

/// Result of one run.
struct Accepted {
    secs: f64,
    bytes_per_job: Option<f64>,
    peak_mb: Option<f64>,
}

pub(super) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let inputs = bench.scaled(MILLION, QUICK);
    let mut lines = String::new();
    for n in 0..inputs {
        writeln!(lines, "{n}")?;
    }
    let lab = Lab::with_binaries(programs.bin.clone());
    let lines = lab.file("lines", &lines);
    // The bounds are proportional to the number of inputs.
    let share = number(inputs) / number(MILLION);
    let title = format!("action of {} inputs", grouped(inputs));
    let runs = RefCell::new(Vec::new());
    let comparison = ContenderComparison::new(format!("{title} accepted"), "s", Better::Less)
        .with_bound(30.0 * share, 10.0 * share)
        .with_note("from the start of agx to its exit, on an empty agq; each chunk is durable")
        .with("agx, agq", || {
            let accepted = accept(&programs.bin, &lines, inputs)?;
            let secs = accepted.secs;
            runs.borrow_mut().push(accepted);
            Ok(secs)
        });
    bench.compare(SECTION, comparison)?;
    memory(bench, &title, &runs.into_inner())
}

fn memory(bench: &mut Bench, title: &str, runs: &[Accepted]) -> anyhow::Result<()> {
    let per_job: Option<Vec<f64>> = runs.iter().map(|run| run.bytes_per_job).collect();
    let peaks: Option<Vec<f64>> = runs.iter().map(|run| run.peak_mb).collect();
    let Some((per_job, peaks)) = per_job.zip(peaks) else {
        bench.skip(&format!("{title}, memory"), "only Linux shows the memory of a process");
        return Ok(());
    };
    let comparison =
        ContenderComparison::new(format!("{title}, memory of agq for a job"), "bytes", Better::Less)
            .with_bound(1000.0, 200.0)
            .with_note("of the same runs: growth of agq's memory with all jobs queued, including caches")
            .with("agq", replay(&per_job));
    bench.compare(SECTION, comparison)?;
    let comparison = ContenderComparison::new(format!("{title}, peak memory of agq"), "MB", Better::Less)
        .with_bound(1000.0, 1000.0)
        .with_note("of the same runs")
        .with("agq", replay(&peaks));
    bench.compare(SECTION, comparison)
}

fn accept(bin: &Path, lines: &Path, inputs: usize) -> anyhow::Result<Accepted> {
    let fixture = ScaleFixture::new(bin);
    let pid = fixture.agq.pid();
    let before = process_stats::resident_mb(pid);
    let lines = lines.to_str().context("the name of the temporary directory is not UTF-8")?;
    let started = Instant::now();
    let ran = fixture.lab.agx(&fixture.agq, &["action", "submit", "nothing", "--lines", lines]);
    let secs = started.elapsed().as_secs_f64();
    ensure!(ran.code == 0, "agx: {}", ran.err.trim());
    let grown = process_stats::resident_mb(pid).zip(before).map(|(after, before)| (after - before) * 1e6);
    expect_ready(&mut fixture.connect()?, inputs)?;
    let bytes_per_job = grown.map(|bytes| bytes / number(inputs));
    Ok(Accepted { secs, bytes_per_job, peak_mb: process_stats::peak_mb(pid) })
}
