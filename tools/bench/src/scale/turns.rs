//! Turns: a job is claimed and completed, one after the other on one connection, each answer awaited.

use std::{io, time::Instant};

use agenix_harness::resp::{Reply, Resp, unexpected};
use anyhow::{Context, bail};

use super::number;

/// How long a turn takes, in µs.
pub(super) fn claim_and_complete(resp: &mut Resp, turns: usize) -> anyhow::Result<f64> {
    timed(turns, || {
        let job = claim(resp)?;
        complete(resp, &job).map_err(Into::into)
    })
}

/// How long one of so many takes, in µs.
pub(super) fn timed(turns: usize, mut turn: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let started = Instant::now();
    for _ in 0..turns {
        turn()?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / number(turns))
}

/// Claims a job; its id.
pub(super) fn claim(resp: &mut Resp) -> anyhow::Result<String> {
    match resp.ask(&["RPOP", "queue:ready"])? {
        Reply::Bulk(job) => Ok(job_id(&job).context("a job has no id")?.to_owned()),
        Reply::Nil => bail!("there is no job to claim"),
        other => Err(unexpected(&other).into()),
    }
}

pub(super) fn complete(resp: &mut Resp, job_id: &str) -> io::Result<()> {
    match resp.ask(&["JOB.UPDATE", job_id, r#"{"status":"completed"}"#])? {
        Reply::Line(_ok) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Found, not parsed: our own time is measured, too.
fn job_id(job: &str) -> Option<&str> {
    job.split_once(r#""job_id":""#)?.1.split_once('"').map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::job_id;

    #[test]
    fn the_id_of_a_job_is_found() {
        assert_eq!(job_id(r#"{"job_id":"job-1","action_id":"a"}"#), Some("job-1"));
        assert_eq!(job_id("{}"), None);
    }
}
