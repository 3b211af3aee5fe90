//! Compares `/ready` of agq with its work: a job is submitted, claimed and reported.

use std::{io, time::Duration};

use e2e::within;
use serde_json::json;

use super::{
    Endpoints, PLAN, http,
    progress::document,
    resp::{Resp, RespReply, unexpected},
};

const QUEUE: &str = "chaos-health";
/// Time within which the reaper has to notice a silent worker.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns an error message if `/ready` and the result of the job differ, or the job fails.
pub(super) fn check(endpoints: &Endpoints, name: &str) -> Option<String> {
    let ready = http::ask(&endpoints.http(), ("GET", "/ready"), "", "");
    let is_ready = ready.is_ok_and(|answer| answer.status == 200);
    match (is_ready, cycle(endpoints, name)) {
        (true, Ok(())) => None,
        (false, Ok(())) => Some("/ready of agq fails, and agq ran a job".into()),
        (is_ready, Err(error)) => {
            Some(format!("agq, whose /ready is {is_ready}, did not run a job: {error}"))
        }
    }
}

/// Waits until the reaper has noticed a silent worker, submits a job with a delay, and claims and
/// reports that job.
fn cycle(endpoints: &Endpoints, name: &str) -> io::Result<()> {
    let mut resp = Resp::open(&endpoints.agq, &endpoints.key)?;
    let is_dead = within(TIMEOUT, || {
        let worker = resp.ask(&["WORKER.GET", &silent(name)]).and_then(document);
        worker.is_ok_and(|worker| worker.is_some_and(|worker| worker["state"] == "dead")).then_some(())
    });
    is_dead.ok_or_else(|| io::Error::other("a silent worker is not marked as dead"))?;
    let action = json!({"action_id": name, "plan_id": PLAN, "queue": QUEUE, "inputs": [{"n": name}], "delay_secs": 0.2});
    expect_line(resp.ask(&["ACTION.SUBMIT", &action.to_string()])?)?;
    let claimed = resp.ask(&["BRPOP", &format!("queue:{QUEUE}"), "10"])?;
    let Some(job) = document(claimed)? else {
        return Err(io::Error::other("a job was not handed out after its delay"));
    };
    let report = json!({"status": "completed", "attempt": job["attempt"]}).to_string();
    expect_line(resp.ask(&["JOB.UPDATE", job["job_id"].as_str().unwrap_or_default(), &report])?)?;
    match document(resp.ask(&["ACTION.STATUS", name])?)? {
        Some(status) if status["completed"] == 1 => Ok(()),
        other => Err(io::Error::other(format!("the job was reported, and its action is {other:?}"))),
    }
}

/// Registers the silent worker for a `check` of the same name.
pub(super) fn register_silent(endpoints: &Endpoints, name: &str) -> io::Result<()> {
    let registration = json!({"worker_id": silent(name), "capabilities": ["nothing"]}).to_string();
    let mut resp = Resp::open(&endpoints.agq, &endpoints.key)?;
    match resp.ask(&["WORKER.REGISTER", &registration])? {
        RespReply::Line(_) | RespReply::Bulk(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn silent(name: &str) -> String {
    format!("silent-{name}")
}

fn expect_line(reply: RespReply) -> io::Result<()> {
    match reply {
        RespReply::Line(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}
