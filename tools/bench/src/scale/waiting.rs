//! Measures a job while five hundred workers wait for jobs that need another tool.

use std::{io, path::Path};

use agenix_harness::resp::Resp;

use super::{
    SECTION, cycles,
    fixture::{ScaleFixture, expect_ok, register},
};
use crate::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    measure::Bench,
    table::grouped,
};

const WAITING: usize = 500;
const JOB: &str = r#"{"plan_id":"nothing","inputs":[{}]}"#;
const NOTE: &str = "the waiting workers lack the tool that the jobs need; one connection submits, claims \
    and completes, one command at a time; claims are not durable, the rest is";

/// An agq with waiting workers.
struct WaitingFixture {
    resp: Resp,
    _waiting: Vec<Resp>,
    // The fixture is dropped last.
    _fixture: ScaleFixture,
}

pub(super) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let cycles = bench.scaled(1000, 300);
    let (mut full, mut empty) =
        (WaitingFixture::new(&programs.bin, WAITING)?, WaitingFixture::new(&programs.bin, 0)?);
    let waiting = format!("{} workers wait", grouped(WAITING));
    let comparison = ContenderComparison::new(
        format!("submit, claim and complete a job while {waiting}"),
        "µs",
        Better::Less,
    )
    .with_note(NOTE)
    .with(waiting, || full.cycles(cycles))
    .with("no waiting workers", || empty.cycles(cycles));
    bench.compare(SECTION, comparison)
}

impl WaitingFixture {
    fn new(bin: &Path, waiting: usize) -> anyhow::Result<Self> {
        let fixture = ScaleFixture::new(bin);
        let mut resp = fixture.connect()?;
        let waiting = (0..waiting).map(|n| wait(&fixture, n)).collect::<io::Result<_>>()?;
        register(&mut resp, "worker", "true", "")?;
        Ok(Self { resp, _waiting: waiting, _fixture: fixture })
    }

    fn cycles(&mut self, cycles: usize) -> anyhow::Result<f64> {
        let resp = &mut self.resp;
        cycles::timed(cycles, || {
            expect_ok(resp, &["ACTION.SUBMIT", JOB])?;
            let job = cycles::claim(resp)?;
            cycles::complete(resp, &job).map_err(Into::into)
        })
    }
}

/// Connects a worker that waits for a job, and never gets one.
fn wait(fixture: &ScaleFixture, n: usize) -> io::Result<Resp> {
    let mut resp = fixture.connect()?;
    register(&mut resp, &format!("waiting-{n}"), "other", "")?;
    resp.send(&["BRPOP", "queue:ready", "0"])?;
    Ok(resp)
}
