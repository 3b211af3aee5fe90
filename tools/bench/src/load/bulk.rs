//! A large action: submits it with agx, lists its jobs by pages, drains them over several
//! connections, and checks the memory of agq.

use std::{collections::HashSet, fmt::Write, io, thread};

use agenix_harness::resp::{Resp, RespReply, unexpected};
use anyhow::{anyhow, ensure};
use serde_json::Value;

use super::{LoadFigures, LoadFixture, process_stats};

const ACTION: &str = "million";
/// Number of jobs in a page.
const PAGE: usize = 10_000;
/// Number of connections that drain, and of jobs that each claims at once.
const CONNECTIONS: usize = 8;
const PIPELINE: usize = 64;
const PEAK_MB: f64 = 1000.0;

pub(super) fn run(fixture: &LoadFixture, inputs: usize, figures: &mut LoadFigures) -> anyhow::Result<()> {
    println!("\nAn action of {inputs} inputs");
    let mut lines = String::new();
    for n in 0..inputs {
        writeln!(lines, "{n}")?;
    }
    fixture.lab.file("lines", &lines);
    figures.time("inputs accepted in chunks", inputs, || {
        let args = ["action", "submit", "load", "--id", ACTION, "--lines", "lines"];
        fixture.lab.agx(&fixture.agq, &args).expect(0);
        Ok(())
    })?;
    let mut resp = fixture.connect()?;
    ensure!(count(&mut resp, "total_jobs")? == inputs, "not every input became a job");
    figures.time("jobs listed by pages", inputs, || list(&mut resp, inputs))?;
    let drained = figures.time("jobs claimed and completed", inputs, || drain(fixture))?;
    ensure!(drained == inputs, "{drained} jobs were drained of {inputs}");
    ensure!(count(&mut resp, "completed")? == inputs, "not every job is completed");
    figures.check_if_known("peak memory of agq", process_stats::peak_mb(fixture.agq.pid()), PEAK_MB, "MB");
    Ok(())
}

/// Returns a number of the status of the action.
fn count(resp: &mut Resp, field: &str) -> anyhow::Result<usize> {
    let status = match resp.ask(&["ACTION.STATUS", ACTION])? {
        RespReply::Bulk(status) => serde_json::from_str::<Value>(&status)?,
        other => return Err(unexpected(&other).into()),
    };
    let count = status[field].as_u64().ok_or_else(|| anyhow!("the action has no {field}: {status}"))?;
    Ok(usize::try_from(count)?)
}

/// Reads all pages, and checks that each job is on exactly one.
fn list(resp: &mut Resp, inputs: usize) -> anyhow::Result<()> {
    let mut seen = HashSet::with_capacity(inputs);
    for start in (0..inputs).step_by(PAGE) {
        let (limit, offset) = (PAGE.to_string(), start.to_string());
        let page = match resp.ask(&["JOB.LIST", ACTION, "LIMIT", &limit, "OFFSET", &offset])? {
            RespReply::Array(page) => page,
            other => return Err(unexpected(&other).into()),
        };
        ensure!(page.len() == PAGE.min(inputs - start), "the page at {start} has {} jobs", page.len());
        for job_id in page {
            match job_id {
                RespReply::Bulk(job_id) => seen.insert(job_id),
                other => return Err(unexpected(&other).into()),
            };
        }
    }
    ensure!(seen.len() == inputs, "{} jobs are listed of {inputs}", seen.len());
    Ok(())
}

/// Claims and completes all jobs, and returns their number.
fn drain(fixture: &LoadFixture) -> anyhow::Result<usize> {
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..CONNECTIONS).map(|_| scope.spawn(|| drain_connection(fixture.connect()?))).collect();
        let mut drained = 0;
        for thread in threads {
            drained += thread.join().map_err(|_| anyhow!("a connection's thread panicked"))??;
        }
        Ok(drained)
    })
}

fn drain_connection(mut resp: Resp) -> io::Result<usize> {
    let mut done = 0;
    loop {
        for _ in 0..PIPELINE {
            resp.send(&["RPOP", "queue:ready"])?;
        }
        let mut jobs = Vec::with_capacity(PIPELINE);
        for _ in 0..PIPELINE {
            match resp.receive()? {
                RespReply::Bulk(job) => jobs.push(job),
                RespReply::Nil => {}
                other => return Err(unexpected(&other)),
            }
        }
        if jobs.is_empty() {
            return Ok(done);
        }
        for job in &jobs {
            let job: Value = serde_json::from_str(job)?;
            let job_id = job["job_id"].as_str().ok_or_else(|| io::Error::other("a job has no id"))?;
            resp.send(&["JOB.UPDATE", job_id, r#"{"status":"completed"}"#])?;
        }
        for _ in &jobs {
            match resp.receive()? {
                RespReply::Line(_ok) => done += 1,
                other => return Err(unexpected(&other)),
            }
        }
    }
}
