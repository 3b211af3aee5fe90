//! A connection that hears what becomes of jobs, so that nobody has to ask and ask while something is measured.

use std::{
    io,
    time::{Duration, Instant},
};

use agenix_harness::resp::{Reply, Resp, unexpected};
use anyhow::{Context, bail};
use serde_json::Value;

/// Longer than any job here takes.
const LONGEST: Duration = Duration::from_secs(600);

pub(crate) struct Watch {
    resp: Resp,
}

impl Watch {
    pub(crate) fn open(address: &str, key: &str) -> io::Result<Self> {
        let mut resp = Resp::open(address, key)?;
        match resp.ask(&["SUBSCRIBE", "job:updates"])? {
            Reply::Array(_subscribed) => Ok(Self { resp }),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until so many jobs of an action are completed; their ids. One that ends otherwise is an error.
    pub(crate) fn completed(&mut self, action: &str, count: usize) -> anyhow::Result<Vec<String>> {
        let mut completed = Vec::with_capacity(count);
        while completed.len() < count {
            let event = self.next()?;
            if event["action_id"] != action {
                continue;
            }
            match event["status"].as_str() {
                Some("completed") => {
                    completed.push(event["job_id"].as_str().context("an event names no job")?.to_owned());
                }
                Some("pending" | "running") => {}
                _ => bail!("a job did not complete: {event}"),
            }
        }
        Ok(completed)
    }

    fn next(&mut self) -> anyhow::Result<Value> {
        let started = Instant::now();
        loop {
            match self.resp.receive() {
                Ok(Reply::Array(message)) => match message.as_slice() {
                    [_, _, Reply::Bulk(event)] => return Ok(serde_json::from_str(event)?),
                    other => bail!("agq sent {other:?} and no event"),
                },
                Ok(other) => return Err(unexpected(&other).into()),
                // Nothing has happened for a while.
                Err(error) if is_silence(&error) && started.elapsed() < LONGEST => {}
                Err(error) => return Err(error).context("no event has come"),
            }
        }
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// What the last task of a job wrote.
pub(crate) fn stdout(resp: &mut Resp, job_id: &str) -> anyhow::Result<String> {
    let status: Value = match resp.ask(&["JOB.STATUS", job_id])? {
        Reply::Bulk(status) => serde_json::from_str(&status)?,
        other => return Err(unexpected(&other).into()),
    };
    Ok(status["stdout"].as_str().with_context(|| format!("job {job_id} has no stdout: {status}"))?.to_owned())
}
