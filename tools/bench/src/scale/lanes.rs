//! Measures a claim with a thousand lanes: each of a thousand plans needs its own label, and one
//! worker has all labels.

use std::path::Path;

use agenix_harness::resp::Resp;

use super::{
    SECTION, cycles,
    fixture::{Fixture, register, submit_all},
    grouped,
};
use crate::{
    Programs,
    comparison::{Better, Comparison},
    measure::Bench,
};

const LANES: usize = 1000;
/// Number of waiting jobs in each lane, if there are many lanes.
const DEPTH: usize = 3;
const NOTE: &str = "the single lane has as many jobs as the 1,000 lanes together; a worker with all labels \
    claims on one connection, one command at a time; claims are not durable, completions are";

/// An agq with jobs in `lanes` lanes.
struct LanesFixture {
    lanes: usize,
    /// Number of jobs submitted so far. They go to the lanes in turn.
    jobs: usize,
    resp: Resp,
    // Dropped last.
    _fixture: Fixture,
}

pub(super) fn run(bench: &mut Bench, programs: &Programs) -> anyhow::Result<()> {
    let cycles = bench.scaled(1000, 300);
    let (mut many, mut one) =
        (LanesFixture::new(&programs.bin, LANES)?, LanesFixture::new(&programs.bin, 1)?);
    let comparison =
        Comparison::new(format!("claim and complete a job of {} lanes", grouped(LANES)), "µs", Better::Less)
            .with_note(NOTE)
            .with(format!("{} lanes", grouped(LANES)), || many.cycles(cycles))
            .with("1 lane", || one.cycles(cycles));
    bench.compare(SECTION, comparison)
}

impl LanesFixture {
    fn new(bin: &Path, lanes: usize) -> anyhow::Result<Self> {
        let fixture = Fixture::new(bin);
        let mut resp = fixture.connect()?;
        let tags: Vec<_> = (0..LANES).map(|lane| format!(r#""lane-{lane}":"yes""#)).collect();
        register(&mut resp, "worker", "true", &tags.join(","))?;
        let plans: Vec<_> = (0..lanes).map(plan).collect();
        submit_all(&mut resp, "PLAN.SUBMIT", &plans)?;
        let mut lanes_fixture = Self { lanes, jobs: 0, resp, _fixture: fixture };
        lanes_fixture.add(LANES * DEPTH)?;
        Ok(lanes_fixture)
    }

    fn add(&mut self, jobs: usize) -> anyhow::Result<()> {
        let actions: Vec<_> = (self.jobs..self.jobs + jobs)
            .map(|job| format!(r#"{{"plan_id":"lane-{}","inputs":[{{}}]}}"#, job % self.lanes))
            .collect();
        self.jobs += jobs;
        Ok(submit_all(&mut self.resp, "ACTION.SUBMIT", &actions)?)
    }

    /// Adds as many jobs as it completes, and returns microseconds per cycle.
    fn cycles(&mut self, cycles: usize) -> anyhow::Result<f64> {
        self.add(cycles)?;
        cycles::claim_and_complete(&mut self.resp, cycles)
    }
}

fn plan(lane: usize) -> String {
    let requires = format!(r#"{{"labels":{{"lane-{lane}":"yes"}}}}"#);
    format!(
        r#"{{"plan_id":"lane-{lane}","requires":{requires},"tasks":[{{"task_number":1,"command":"true"}}]}}"#
    )
}
