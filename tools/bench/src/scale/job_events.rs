//! A subscription to the state changes of jobs, so that nothing has to poll while it is measured.

use std::{
    io,
    time::{Duration, Instant},
};

use agenix_harness::resp::{Resp, RespReply, unexpected};
use anyhow::{Context, bail};
use serde_json::Value;

/// Time without an event that is an error.
const TIMEOUT: Duration = Duration::from_secs(600);

pub(crate) struct JobEvents {
    resp: Resp,
}

impl JobEvents {
    pub(crate) fn open(address: &str, key: &str) -> io::Result<Self> {
        let mut resp = Resp::open(address, key)?;
        match resp.ask(&["SUBSCRIBE", "job:updates"])? {
            RespReply::Array(_subscribed) => Ok(Self { resp }),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until `count` jobs of an action have completed, and returns their ids. A job that ends
    /// in another state is an error.
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
                Ok(RespReply::Array(message)) => match message.as_slice() {
                    [_, _, RespReply::Bulk(event)] => return Ok(serde_json::from_str(event)?),
                    other => bail!("agq sent {other:?} instead of an event"),
                },
                Ok(other) => return Err(unexpected(&other).into()),
                // The read timed out, because no job changed.
                Err(error) if is_timeout(&error) && started.elapsed() < TIMEOUT => {}
                Err(error) => return Err(error).context("no event arrived"),
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Returns the stdout of the last task of a job.
pub(crate) fn stdout(resp: &mut Resp, job_id: &str) -> anyhow::Result<String> {
    let status: Value = match resp.ask(&["JOB.STATUS", job_id])? {
        RespReply::Bulk(status) => serde_json::from_str(&status)?,
        other => return Err(unexpected(&other).into()),
    };
    Ok(status["stdout"].as_str().with_context(|| format!("job {job_id} has no stdout: {status}"))?.to_owned())
}
