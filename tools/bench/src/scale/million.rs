//! An action of a million inputs through agx: how long until it is accepted, and what memory agq needs for it.

use std::{cell::RefCell, fmt::Write, path::Path, time::Instant};

use anyhow::{Context, ensure};
use e2e::Lab;

use super::{
    SECTION, again, grouped, number,
    stand::{Stand, expect_ready},
};
use crate::{
    Place,
    contest::{Better, Contest},
    load::gauge,
    measure::Bench,
};

const MILLION: usize = 1_000_000;
const QUICK: usize = 100_000;

/// What one run came to.
struct Accepted {
    secs: f64,
    bytes_per_job: Option<f64>,
    peak_mb: Option<f64>,
}

pub(super) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let inputs = bench.scaled(MILLION, QUICK);
    let mut lines = String::new();
    for n in 0..inputs {
        writeln!(lines, "{n}")?;
    }
    let shelf = Lab::with_binaries(place.bin.clone());
    let lines = shelf.file("lines", &lines);
    // Fewer inputs have less time, in proportion.
    let share = number(inputs) / number(MILLION);
    let title = format!("action of {} inputs", grouped(inputs));
    let runs = RefCell::new(Vec::new());
    let contest = Contest::new(format!("{title} accepted"), "s", Better::Less)
        .bounded(30.0 * share, 10.0 * share)
        .noting("from the start of agx to its end, an empty agq each time; each piece is on disk before it is acknowledged")
        .with("agx, agq", || {
            let accepted = accept(&place.bin, &lines, inputs)?;
            let secs = accepted.secs;
            runs.borrow_mut().push(accepted);
            Ok(secs)
        });
    bench.hold(SECTION, contest)?;
    memory(bench, &title, &runs.into_inner())
}

fn memory(bench: &mut Bench, title: &str, runs: &[Accepted]) -> anyhow::Result<()> {
    let per_job: Option<Vec<f64>> = runs.iter().map(|run| run.bytes_per_job).collect();
    let peaks: Option<Vec<f64>> = runs.iter().map(|run| run.peak_mb).collect();
    let Some((per_job, peaks)) = per_job.zip(peaks) else {
        bench.skip(&format!("{title}, memory"), "only Linux says how much memory a process has");
        return Ok(());
    };
    let contest = Contest::new(format!("{title}, memory of agq for a job"), "bytes", Better::Less)
        .bounded(1000.0, 200.0)
        .noting("of the same runs: what its memory had grown by when all were queued, its caches included")
        .with("agq", again(&per_job));
    bench.hold(SECTION, contest)?;
    let contest = Contest::new(format!("{title}, most memory that agq had"), "MB", Better::Less)
        .bounded(1000.0, 1000.0)
        .noting("of the same runs")
        .with("agq", again(&peaks));
    bench.hold(SECTION, contest)
}

fn accept(bin: &Path, lines: &Path, inputs: usize) -> anyhow::Result<Accepted> {
    let stand = Stand::new(bin);
    let pid = stand.agq.pid();
    let before = gauge::resident_mb(pid);
    let lines = lines.to_str().context("the temporary directory's name is not text")?;
    let started = Instant::now();
    let ran = stand.lab.agx(&stand.agq, &["action", "submit", "nothing", "--lines", lines]);
    let secs = started.elapsed().as_secs_f64();
    ensure!(ran.code == 0, "agx: {}", ran.err.trim());
    let grown = gauge::resident_mb(pid).zip(before).map(|(after, before)| (after - before) * 1e6);
    expect_ready(&mut stand.connect()?, inputs)?;
    let bytes_per_job = grown.map(|bytes| bytes / number(inputs));
    Ok(Accepted { secs, bytes_per_job, peak_mb: gauge::peak_mb(pid) })
}
