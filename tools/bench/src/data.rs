//! Section `data`: sends a gigabyte, as one file and as ten, through a pipeline of three tasks. The
//! tasks stream, or run one after the other. The peer is the same pipeline in bash. A third row
//! returns the gigabyte to the caller, beside xargs.

mod agenix;
mod files;
mod outputs;

use std::{cell::RefCell, fs::File, process::Command, time::Instant};

use anyhow::{Context, ensure};
use e2e::Lab;

use self::{
    agenix::{AgenixPipeline, PipelinePlan},
    files::WordFiles,
};
use super::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    measure::{Bench, per_second},
};

const SECTION: &str = "data";
const BASH: &str = "bash";
const XARGS: &str = "xargs -P2 bash -c";
/// The pipeline in a shell.
const SHELL: &str = r#"set -o pipefail; cat "$0" | tr a-z A-Z | wc -c"#;
const XARGS_FILES: &str = "xargs -P2 to files, then cat";
const OUTPUTS_NOTE: &str = "cat FILE, whose output goes to a file through agx; agq, a worker and agx start and end \
    with each round; neither syncs the outputs, because an agq that ends with its map has --durability interval";
const NOTE: &str = "cat FILE | tr a-z A-Z | wc -c; the files are in the page cache, and the streams are \
    not synced; AGEniX: from the submission to the event of the last completion, with durable results; in \
    sequence: a task starts after the previous one has ended, and a file holds the data between them";

pub(crate) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    // The lab is dropped last, because all contenders work in its directory.
    let lab = Lab::with_binaries(programs.bin.clone());
    let files = WordFiles::make(&lab, bench.scaled(100, 20))?;
    let agenix = RefCell::new(AgenixPipeline::start(&lab)?);
    let list = lab.file("list", &(files.parts.join("\n") + "\n"));

    let whole = std::slice::from_ref(&files.whole);
    let comparison = comparison(&format!("{} MB", files.megabytes()), &agenix, whole, files.bytes)
        .with(BASH, || shell(Command::new("bash").args(["-c", SHELL, &files.whole]), files.bytes))
        .with_goal(BASH, 0.9, 1.0);
    bench.compare(SECTION, comparison)?;

    let title = format!("{} × {} MB", files.parts.len(), files.megabytes() / files.parts.len());
    let comparison = self::comparison(&title, &agenix, &files.parts, files.bytes)
        .with(XARGS, || {
            let mut xargs = Command::new("xargs");
            xargs.args(["-P2", "-n1", "bash", "-c", SHELL]).stdin(File::open(&list)?);
            shell(&mut xargs, files.bytes)
        })
        .with_goal(XARGS, 0.9, 1.0);
    bench.compare(SECTION, comparison)?;

    let title = format!("outputs of {title}");
    let comparison = ContenderComparison::new(title, "MB/s", Better::More)
        .with_note(OUTPUTS_NOTE)
        .with("agx map -j2", || outputs::agx(&lab, &files))
        .with(XARGS_FILES, || outputs::xargs(&lab, &files))
        .with_goal(XARGS_FILES, 0.8, 1.0);
    bench.compare(SECTION, comparison)
}

/// Returns a comparison with both of our plans.
fn comparison<'a>(
    volume: &str,
    agenix: &'a RefCell<AgenixPipeline>,
    files: &'a [String],
    bytes: usize,
) -> ContenderComparison<'a> {
    let run = move |plan: PipelinePlan| -> anyhow::Result<f64> {
        let mut agenix = agenix.borrow_mut();
        let started = Instant::now();
        let jobs = agenix.run(plan, files)?;
        let rate = mb_per_sec(bytes, started);
        check(agenix.counted(&jobs)?, bytes)?;
        Ok(rate)
    };
    ContenderComparison::new(format!("{volume} through three tasks"), "MB/s", Better::More)
        .with_note(NOTE)
        .with("agw, streamed", move || run(PipelinePlan::Streamed))
        .with("agw, in sequence", move || run(PipelinePlan::OneByOne))
}

/// Runs the shell command, checks its count, and returns MB per second.
fn shell(command: &mut Command, bytes: usize) -> anyhow::Result<f64> {
    let started = Instant::now();
    let output = command.output().context("it cannot be started")?;
    let rate = mb_per_sec(bytes, started);
    ensure!(output.status.success(), "it ended with {}", output.status);
    let counts = String::from_utf8(output.stdout)?;
    let counted = counts.split_whitespace().map(str::parse::<usize>).sum::<Result<usize, _>>()?;
    check(counted, bytes)?;
    Ok(rate)
}

/// Returns an error if bytes are missing.
fn check(counted: usize, bytes: usize) -> anyhow::Result<()> {
    ensure!(counted == bytes, "{counted} of {bytes} bytes came through");
    Ok(())
}

fn mb_per_sec(bytes: usize, started: Instant) -> f64 {
    per_second(bytes, started.elapsed()) / 1e6
}
