//! Fills a store with ended jobs. Each job has its own action, and is submitted, claimed and
//! reported in pipelines.

use std::{io, thread};

use anyhow::anyhow;

use super::{
    agenix::{completion, submission},
    agq::AgqServer,
    payloads::Payloads,
    wire::{BufferedConnection, nothing_ready},
};

/// Number of connections that fill in parallel, so that their writes share transactions.
const CONNECTIONS: usize = 8;
/// Number of jobs in a pipeline, which has two commands for each job. agq reads up to 256 commands
/// at once.
const BATCH: usize = 120;
const INPUT_BYTES: usize = 100;

/// Runs `count` jobs to their end, each with a result of 1 KB.
pub(super) fn fill(agq: &AgqServer, count: usize) -> anyhow::Result<()> {
    let payloads = &Payloads::new(INPUT_BYTES);
    let connect = |_| agq.connect();
    let mut wires = (0..CONNECTIONS).map(connect).collect::<io::Result<Vec<_>>>()?;
    let ends: Vec<_> = thread::scope(|scope| {
        let each = wires.iter_mut().enumerate();
        let threads: Vec<_> =
            each.map(|(at, wire)| scope.spawn(move || share(wire, payloads, at, count))).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    for end in ends {
        end.map_err(|_| anyhow!("a filling thread panicked"))??;
    }
    Ok(())
}

/// Runs every `CONNECTIONS`th batch, beginning with number `at`.
fn share(wire: &mut BufferedConnection, payloads: &Payloads, at: usize, count: usize) -> io::Result<()> {
    for first in (at * BATCH..count).step_by(CONNECTIONS * BATCH) {
        batch(wire, payloads, first, BATCH.min(count - first))?;
    }
    Ok(())
}

fn batch(wire: &mut BufferedConnection, payloads: &Payloads, first: usize, jobs: usize) -> io::Result<()> {
    let (mut job_id, mut json) = (String::new(), String::new());
    for number in first..first + jobs {
        submission(&mut json, payloads.input(number));
        wire.write_command(&["ACTION.SUBMIT", &json])?;
    }
    for _ in 0..jobs {
        wire.write_command(&["RPOP", "queue:ready"])?;
    }
    wire.send()?;
    (0..jobs).try_for_each(|_| wire.read_ok())?;
    let mut reports = Vec::with_capacity(jobs);
    for number in first..first + jobs {
        let job = wire.bulk()?.ok_or_else(nothing_ready)?;
        completion(&mut job_id, &mut json, job, payloads.result(number))?;
        reports.push((job_id.clone(), json.clone()));
    }
    for (job_id, report) in &reports {
        wire.write_command(&["JOB.UPDATE", job_id, report])?;
    }
    wire.send()?;
    (0..jobs).try_for_each(|_| wire.read_ok())
}
