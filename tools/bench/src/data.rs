//! Much data: a gigabyte, and ten times a tenth of it, through a pipeline of three tasks; streamed, and one task after the
//! other; against the same in bash.

mod files;
mod ours;

use std::{cell::RefCell, fs::File, process::Command, time::Instant};

use anyhow::{Context, ensure};
use e2e::Lab;

use self::{
    files::Files,
    ours::{Ours, Plan},
};
use super::{
    Place,
    contest::{Better, Contest},
    measure::{Bench, per_second},
};

const SECTION: &str = "data";
const BASH: &str = "bash";
const XARGS: &str = "xargs -P2 bash -c";
/// What everybody does, as a shell has it.
const SHELL: &str = r#"set -o pipefail; cat "$0" | tr a-z A-Z | wc -c"#;
const NOTE: &str = "cat FILE | tr a-z A-Z | wc -c; the files are in the page cache, and nothing that passes is synced; ours: \
    from the submission to the event that the last job has completed, its result on disk; one by one: a task begins when \
    the one before it has ended, and what passes between them is in a file";

pub(crate) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    // Dropped last: everybody works in its directory.
    let lab = Lab::with_binaries(place.bin.clone());
    let files = Files::make(&lab, bench.scaled(100, 20))?;
    let ours = RefCell::new(Ours::start(&lab)?);
    let list = lab.file("list", &(files.parts.join("\n") + "\n"));

    let whole = std::slice::from_ref(&files.whole);
    let contest = contest(&format!("{} MB", files.megabytes()), &ours, whole, files.bytes)
        .with(BASH, || shell(Command::new("bash").args(["-c", SHELL, &files.whole]), files.bytes))
        .against(BASH, 0.9, 1.0);
    bench.hold(SECTION, contest)?;

    let title = format!("{} × {} MB", files.parts.len(), files.megabytes() / files.parts.len());
    let contest = self::contest(&title, &ours, &files.parts, files.bytes)
        .with(XARGS, || {
            let mut xargs = Command::new("xargs");
            xargs.args(["-P2", "-n1", "bash", "-c", SHELL]).stdin(File::open(&list)?);
            shell(&mut xargs, files.bytes)
        })
        .against(XARGS, 0.9, 1.0);
    bench.hold(SECTION, contest)
}

/// A contest with both of ours in it.
fn contest<'a>(what: &str, ours: &'a RefCell<Ours>, files: &'a [String], bytes: usize) -> Contest<'a> {
    let run = move |plan: Plan| -> anyhow::Result<f64> {
        let mut ours = ours.borrow_mut();
        let started = Instant::now();
        let jobs = ours.run(plan, files)?;
        let rate = mb_per_sec(bytes, started);
        check(ours.counted(&jobs)?, bytes)?;
        Ok(rate)
    };
    Contest::new(format!("{what} through three tasks"), "MB/s", Better::More)
        .noting(NOTE)
        .with("agw, streamed", move || run(Plan::Streamed))
        .with("agw, one by one", move || run(Plan::OneByOne))
}

/// The same in a shell.
fn shell(command: &mut Command, bytes: usize) -> anyhow::Result<f64> {
    let started = Instant::now();
    let output = command.output().context("it cannot be started")?;
    let rate = mb_per_sec(bytes, started);
    ensure!(output.status.success(), "it ended with {}", output.status);
    let said = String::from_utf8(output.stdout)?;
    let counted = said.split_whitespace().map(str::parse::<usize>).sum::<Result<usize, _>>()?;
    check(counted, bytes)?;
    Ok(rate)
}

/// Whoever is fast because bytes are missing is not fast.
fn check(counted: usize, bytes: usize) -> anyhow::Result<()> {
    ensure!(counted == bytes, "{counted} of {bytes} bytes came through");
    Ok(())
}

fn mb_per_sec(bytes: usize, started: Instant) -> f64 {
    per_second(bytes, started.elapsed()) / 1e6
}
