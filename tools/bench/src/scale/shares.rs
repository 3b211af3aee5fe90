//! Measures how long a few jobs of one key wait behind a million of another.

use std::path::Path;

use agenix_harness::resp::{Resp, RespReply, unexpected};
use anyhow::Context;
use e2e::{Agq, Lab};

use super::{
    SECTION, cycles,
    fixture::{expect_ok, register},
};
use crate::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    measure::Bench,
    table::grouped,
};

const BACKLOG: usize = 1_000_000;
const QUICK: usize = 100_000;
/// Number of inputs in a command.
const BATCH: usize = 5000;
/// Number of jobs of the second key, the 95th of which gives the 95th percentile.
const FEW: usize = 100;
const PERCENTILE: usize = 95;
/// Number of jobs of the backlog that run before the few jobs.
const BUSY: usize = 5;
const PLAN: &str = r#"{"plan_id":"nothing","tasks":[{"task_number":1,"command":"true"}]}"#;
const OPEN: &str = r#"{"action_id":"bulk","plan_id":"nothing","open":true}"#;
const NOTE: &str = "time from the first claim to the claim of the 95th job of the second key; one worker \
    claims one job at a time, and completes the jobs later; claims are not durable";

/// An agq with two clients, the first of which has a backlog.
struct SharesFixture {
    second: Resp,
    worker: Resp,
    has_backlog: bool,
    runs: usize,
    // agq is dropped last.
    _agq: Agq,
    _lab: Lab,
}

pub(super) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let backlog = bench.scaled(BACKLOG, QUICK);
    let mut behind = SharesFixture::new(&programs.bin, backlog)?;
    let mut alone = SharesFixture::new(&programs.bin, 0)?;
    let title = format!("95th of {FEW} jobs of a key behind {} of another", grouped(backlog));
    let comparison = ContenderComparison::new(title, "ms", Better::Less)
        .with_goal("no other jobs", 0.4, 0.5)
        .with_note(NOTE)
        .with("fair shares", || behind.wait())
        .with("no other jobs", || alone.wait());
    bench.compare(SECTION, comparison)
}

fn key(letter: &str) -> String {
    letter.repeat(64)
}

impl SharesFixture {
    fn new(bin: &Path, backlog: usize) -> anyhow::Result<Self> {
        let lab = Lab::with_binaries(bin.to_owned());
        let text = format!("[clients]\nfirst = '{}'\nsecond = '{}'\n", key("a"), key("b"));
        let config = lab.file("agq.toml", &text);
        let config = config.to_str().context("the name of the temporary directory is not UTF-8")?;
        let agq = lab.agq(&[
            "--config",
            config,
            "--max-connections-per-ip",
            "0",
            "--max-commands-per-second",
            "0",
            "--heartbeat-interval",
            "3600",
        ]);
        lab.submit_plan(&agq, PLAN);
        let connect = |key: &str| Resp::open(&agq.address(), key);
        let mut first = connect(&key("a"))?;
        expect_ok(&mut first, &["ACTION.SUBMIT", OPEN])?;
        for start in (0..backlog).step_by(BATCH) {
            let inputs = vec!["{}"; BATCH.min(backlog - start)].join(",");
            expect_ok(&mut first, &["ACTION.ADD", "bulk", &format!("[{inputs}]")])?;
        }
        let (second, mut worker) = (connect(&key("b"))?, connect(lab.key())?);
        register(&mut worker, "worker", "true", "")?;
        Ok(Self { second, worker, has_backlog: backlog > 0, runs: 0, _agq: agq, _lab: lab })
    }

    /// Submits the few jobs, and returns the milliseconds until the 95th of them is claimed. Claims
    /// the others, too.
    fn wait(&mut self) -> anyhow::Result<f64> {
        self.runs += 1;
        // The workers are busy with the backlog when the few jobs arrive.
        for _claim in 0..if self.has_backlog { BUSY } else { 0 } {
            let job = cycles::claim(&mut self.worker)?;
            cycles::complete(&mut self.worker, &job)?;
        }
        let (action, inputs) = (format!("few-{}", self.runs), vec!["{}"; FEW].join(","));
        let document = format!(r#"{{"action_id":"{action}","plan_id":"nothing","inputs":[{inputs}]}}"#);
        expect_ok(&mut self.second, &["ACTION.SUBMIT", &document])?;
        let (started, mut served, mut waited) = (std::time::Instant::now(), 0, 0.0);
        let mut claimed = Vec::new();
        while served < FEW {
            let (job, is_of_second) = self.claim(&action)?;
            served += usize::from(is_of_second);
            if is_of_second && served == PERCENTILE {
                waited = started.elapsed().as_secs_f64() * 1000.0;
            }
            claimed.push(job);
        }
        for job in &claimed {
            cycles::complete(&mut self.worker, job)?;
        }
        Ok(waited)
    }

    /// Claims a job. Returns the id of the job, and true if the job belongs to `action`.
    fn claim(&mut self, action: &str) -> anyhow::Result<(String, bool)> {
        let job = match self.worker.ask(&["BRPOP", "queue:ready", "10"])? {
            RespReply::Bulk(job) => job,
            other => return Err(unexpected(&other).into()),
        };
        let job: serde_json::Value = serde_json::from_str(&job)?;
        let id = job["job_id"].as_str().context("a claimed job has no id")?;
        Ok((id.to_owned(), job["action_id"] == action))
    }
}
