//! A thousand lanes: jobs of a thousand plans that each need a label of their own, and a worker that has all of them.

use std::path::Path;

use agenix_harness::resp::Resp;

use super::{
    SECTION, grouped,
    stand::{Stand, register, submit_all},
    turns,
};
use crate::{
    Place,
    contest::{Better, Contest},
    measure::Bench,
};

const LANES: usize = 1000;
/// How many jobs of each lane wait, where there are many lanes.
const DEPTH: usize = 3;
const NOTE: &str = "as many jobs wait in one lane as in all the many; a worker that has all the labels claims on one \
    connection, one command at a time; claims are on disk soon after, each completion before it is acknowledged";

/// An agq whose jobs stand in so many lanes.
struct Hall {
    lanes: usize,
    /// How many jobs were submitted so far: they go to the lanes in turn.
    jobs: usize,
    resp: Resp,
    // Dropped last.
    _stand: Stand,
}

pub(super) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let turns = bench.scaled(1000, 300);
    let (mut many, mut one) = (Hall::new(&place.bin, LANES)?, Hall::new(&place.bin, 1)?);
    let contest =
        Contest::new(format!("claim and complete a job of {} lanes", grouped(LANES)), "µs", Better::Less)
            .noting(NOTE)
            .with(format!("{} lanes", grouped(LANES)), || many.turns(turns))
            .with("1 lane", || one.turns(turns));
    bench.hold(SECTION, contest)
}

impl Hall {
    fn new(bin: &Path, lanes: usize) -> anyhow::Result<Self> {
        let stand = Stand::new(bin);
        let mut resp = stand.connect()?;
        let tags: Vec<_> = (0..LANES).map(|lane| format!(r#""lane-{lane}":"yes""#)).collect();
        register(&mut resp, "worker", "true", &tags.join(","))?;
        let plans: Vec<_> = (0..lanes).map(plan).collect();
        submit_all(&mut resp, "PLAN.SUBMIT", &plans)?;
        let mut hall = Self { lanes, jobs: 0, resp, _stand: stand };
        hall.add(LANES * DEPTH)?;
        Ok(hall)
    }

    fn add(&mut self, jobs: usize) -> anyhow::Result<()> {
        let actions: Vec<_> = (self.jobs..self.jobs + jobs)
            .map(|job| format!(r#"{{"plan_id":"lane-{}","inputs":[{{}}]}}"#, job % self.lanes))
            .collect();
        self.jobs += jobs;
        Ok(submit_all(&mut self.resp, "ACTION.SUBMIT", &actions)?)
    }

    /// As many jobs come as go.
    fn turns(&mut self, turns: usize) -> anyhow::Result<f64> {
        self.add(turns)?;
        turns::claim_and_complete(&mut self.resp, turns)
    }
}

fn plan(lane: usize) -> String {
    let requires = format!(r#"{{"labels":{{"lane-{lane}":"yes"}}}}"#);
    format!(
        r#"{{"plan_id":"lane-{lane}","requires":{requires},"tasks":[{{"task_number":1,"command":"true"}}]}}"#
    )
}
