//! Measures a claim with thousands of lanes: jobs that each need other labels, and jobs that each
//! have another limit.

use std::{cell::Cell, collections::BTreeSet};

use agenix_harness::resp::Resp;

use super::{
    SECTION, cycles,
    fixture::{ScaleFixture, register, submit_all},
};
use crate::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    cycle::{has_postgres, postgres},
    measure::Bench,
    table::grouped,
};

const LANES: usize = 10_000;
const FEWER_LANES: usize = 1000;
/// Number of lanes that a worker with few labels covers.
const COVERED: usize = 10;
/// Number of lanes that share their first label.
const COLUMNS: usize = 100;
/// Number of waiting jobs in each lane, if there are many lanes.
const DEPTH: usize = 3;
const ONE_LANE: &str = "1 lane";
/// Floor and aim of the ratio to one lane: at most 1.3 and 1.1 times its cost.
const ALL_COVERED: (f64, f64) = (0.77, 0.9);
/// Floor and aim of the ratio to one lane: at most 2 and 1.3 times its cost.
const OTHERS: (f64, f64) = (0.5, 0.77);
const NOTE: &str = "the single lane has as many jobs as the 10,000 lanes together; a worker claims on one \
    connection, one command at a time; claims are not durable, completions are";

/// An agq with jobs in many lanes.
struct LanesFixture {
    /// Actions of one job, one for each lane that gets further jobs.
    actions: Vec<String>,
    /// Number of jobs submitted so far, which go to the lanes in turn.
    jobs: usize,
    resp: Resp,
    // The fixture is dropped last.
    _fixture: ScaleFixture,
}

pub(super) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    measure(bench, "", &|| ScaleFixture::new(&programs.bin))
}

/// Measures the same with stores in databases of one PostgreSQL.
pub(super) fn run_on_postgres(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    if !has_postgres(bench) {
        bench.skip("lanes on PostgreSQL", "there is no PostgreSQL");
        return Ok(());
    }
    let (cluster, databases) = (postgres::cluster(None), Cell::new(0));
    measure(bench, ", on PostgreSQL", &|| {
        databases.set(databases.get() + 1);
        ScaleFixture::on_postgres(&programs.bin, &cluster.create(&format!("lanes_{}", databases.get())))
    })
}

/// Measures all rows, each with a title that ends with `on`, and with stores that `new` opens.
fn measure(bench: &mut Bench, on: &str, new: &dyn Fn() -> ScaleFixture) -> anyhow::Result<()> {
    let mut one = LanesFixture::with_labels(new(), 1, 1)?;
    let lanes = grouped(LANES);
    let (mut all, mut fewer) = (
        LanesFixture::with_labels(new(), LANES, LANES)?,
        LanesFixture::with_labels(new(), FEWER_LANES, FEWER_LANES)?,
    );
    compare(
        bench,
        &format!("{lanes} lanes{on}"),
        ALL_COVERED,
        &mut [
            (&format!("{lanes} lanes"), &mut all),
            (&format!("{} lanes", grouped(FEWER_LANES)), &mut fewer),
        ],
        &mut one,
    )?;
    drop((all, fewer));
    let name = format!("{lanes} lanes, {COVERED} covered");
    let title = format!("{name}{on}");
    let mut few = LanesFixture::with_labels(new(), LANES, COVERED)?;
    compare(bench, &title, OTHERS, &mut [(&name, &mut few)], &mut one)?;
    drop(few);
    let name = format!("{lanes} limits");
    let title = format!("{name}{on}");
    compare(bench, &title, OTHERS, &mut [(&name, &mut LanesFixture::with_limits(new())?)], &mut one)?;
    let name = format!("1 lane beside {lanes} saturated limits");
    let title = format!("{name}{on}");
    compare(bench, &title, OTHERS, &mut [(&name, &mut LanesFixture::with_saturated_limits(new())?)], &mut one)
}

fn compare(
    bench: &mut Bench,
    setup: &str,
    (floor, aim): (f64, f64),
    fixtures: &mut [(&str, &mut LanesFixture)],
    one: &mut LanesFixture,
) -> anyhow::Result<()> {
    let cycles = bench.scaled(1000, 300);
    let title = format!("claim and complete a job of {setup}");
    let mut comparison =
        ContenderComparison::new(title, "µs", Better::Less).with_goal(ONE_LANE, floor, aim).with_note(NOTE);
    for (name, fixture) in fixtures {
        comparison = comparison.with(*name, || fixture.cycles(cycles));
    }
    bench.compare(SECTION, comparison.with(ONE_LANE, || one.cycles(cycles)))
}

impl LanesFixture {
    /// Fills `lanes` lanes, each of which needs two labels. The worker has the labels of the first
    /// `covered` lanes.
    fn with_labels(fixture: ScaleFixture, lanes: usize, covered: usize) -> anyhow::Result<Self> {
        let mut fixture = Self::new(fixture, covered)?;
        let plans: Vec<_> = (0..lanes).map(plan).collect();
        submit_all(&mut fixture.resp, "PLAN.SUBMIT", &plans)?;
        fixture.actions = (0..lanes).map(|lane| action(lane, "")).collect();
        fixture.add(LANES * DEPTH)?;
        fixture.actions.truncate(covered);
        Ok(fixture)
    }

    /// Fills lanes each of which has a limit of one running job.
    fn with_limits(fixture: ScaleFixture) -> anyhow::Result<Self> {
        let mut fixture = Self::new(fixture, 1)?;
        submit_all(&mut fixture.resp, "PLAN.SUBMIT", &[plan(0)])?;
        fixture.actions = vec![action(0, r#","max_running":1"#)];
        fixture.add(LANES)?;
        Ok(fixture)
    }

    /// Fills lanes whose limits let no further job start. The jobs of cycles have no limit.
    fn with_saturated_limits(fixture: ScaleFixture) -> anyhow::Result<Self> {
        let mut fixture = Self::new(fixture, 1)?;
        submit_all(&mut fixture.resp, "PLAN.SUBMIT", &[plan(0)])?;
        let limited = r#"{"plan_id":"lane-0","inputs":[{},{}],"max_running":1}"#;
        submit_all(&mut fixture.resp, "ACTION.SUBMIT", &vec![limited.to_owned(); LANES])?;
        for _lane in 0..LANES {
            cycles::claim(&mut fixture.resp)?;
        }
        fixture.actions = vec![action(0, "")];
        Ok(fixture)
    }

    fn new(fixture: ScaleFixture, labels: usize) -> anyhow::Result<Self> {
        let mut resp = fixture.connect()?;
        let tags: BTreeSet<String> = (0..labels).flat_map(labels_of).collect();
        let tags: Vec<String> = tags.iter().map(|label| format!(r#""{label}":"yes""#)).collect();
        register(&mut resp, "worker", "true", &tags.join(","))?;
        Ok(Self { actions: Vec::new(), jobs: 0, resp, _fixture: fixture })
    }

    fn add(&mut self, jobs: usize) -> anyhow::Result<()> {
        let lane = |job: usize| self.actions[job % self.actions.len()].clone();
        let actions: Vec<_> = (self.jobs..self.jobs + jobs).map(lane).collect();
        self.jobs += jobs;
        Ok(submit_all(&mut self.resp, "ACTION.SUBMIT", &actions)?)
    }

    /// Adds and completes the same number of jobs, and returns microseconds per cycle.
    fn cycles(&mut self, cycles: usize) -> anyhow::Result<f64> {
        self.add(cycles)?;
        cycles::claim_and_complete(&mut self.resp, cycles)
    }
}

/// Returns the two labels of a lane. A worker with the labels of the first 10, 1,000 or 10,000
/// lanes covers these and no others, with at most 200 labels.
fn labels_of(lane: usize) -> [String; 2] {
    [format!("row-{}", lane / COLUMNS), format!("column-{}", lane % COLUMNS)]
}

fn plan(lane: usize) -> String {
    let [row, column] = labels_of(lane);
    let requires = format!(r#"{{"labels":{{"{row}":"yes","{column}":"yes"}}}}"#);
    format!(
        r#"{{"plan_id":"lane-{lane}","requires":{requires},"tasks":[{{"task_number":1,"command":"true"}}]}}"#
    )
}

/// Returns an action of one job, with further options.
fn action(lane: usize, options: &str) -> String {
    format!(r#"{{"plan_id":"lane-{lane}","inputs":[{{}}]{options}}}"#)
}
