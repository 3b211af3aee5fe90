//! Claims and completes jobs one after the other on one connection.

use std::{io, time::Instant};

use agenix_harness::resp::{Resp, RespReply, unexpected};
use anyhow::{Context, bail};

use super::number;

/// Returns microseconds per cycle of a claim and its completion.
pub(super) fn claim_and_complete(resp: &mut Resp, cycles: usize) -> anyhow::Result<f64> {
    timed(cycles, || {
        let job = claim(resp)?;
        complete(resp, &job).map_err(Into::into)
    })
}

/// Runs `cycle` `cycles` times, and returns microseconds per cycle.
pub(super) fn timed(cycles: usize, mut cycle: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let started = Instant::now();
    for _ in 0..cycles {
        cycle()?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / number(cycles))
}

/// Claims a job, and returns its id.
pub(super) fn claim(resp: &mut Resp) -> anyhow::Result<String> {
    match resp.ask(&["RPOP", "queue:ready"])? {
        RespReply::Bulk(job) => Ok(job_id(&job).context("a job has no id")?.to_owned()),
        RespReply::Nil => bail!("there is no job to claim"),
        other => Err(unexpected(&other).into()),
    }
}

pub(super) fn complete(resp: &mut Resp, job_id: &str) -> io::Result<()> {
    match resp.ask(&["JOB.UPDATE", job_id, r#"{"status":"completed"}"#])? {
        RespReply::Line(_ok) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Finds the id without parsing the document, because the time of the client counts as well.
fn job_id(job: &str) -> Option<&str> {
    job.split_once(r#""job_id":""#)?.1.split_once('"').map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::job_id;

    #[test]
    fn job_id_is_found_without_parsing() {
        assert_eq!(job_id(r#"{"job_id":"job-1","action_id":"a"}"#), Some("job-1"));
        assert_eq!(job_id("{}"), None);
    }
}
