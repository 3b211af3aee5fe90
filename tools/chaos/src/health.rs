//! Whether agq does what it says that it can: `/ready` beside a job that is submitted, claimed and
//! reported.

use std::{io, time::Duration};

use e2e::within;
use serde_json::json;

use super::{
    PLAN, Place, http,
    resp::{Reply, Resp, unexpected},
    watch::document,
};

const QUEUE: &str = "chaos-health";
/// Maximum time for the reaper to do what is due.
const SOON: Duration = Duration::from_secs(20);

/// Returns what is wrong, if `/ready` and the job differ, or agq can do neither.
pub(super) fn check(place: &Place, name: &str) -> Option<String> {
    let ready = http::ask(&place.http(), ("GET", "/ready"), "", "");
    let is_ready = ready.is_ok_and(|answer| answer.status == 200);
    match (is_ready, cycle(place, name)) {
        (true, Ok(())) => None,
        (false, Ok(())) => Some("agq says that it is not ready, and did what it was asked".into()),
        (is_ready, Err(error)) => {
            Some(format!("agq, which says ready: {is_ready}, did not run a job: {error}"))
        }
    }
}

/// Lets a worker fall silent and a job wait for a time, which the reaper of agq has to notice; then
/// claims the job and reports it.
fn cycle(place: &Place, name: &str) -> io::Result<()> {
    let mut resp = Resp::open(&place.agq, &place.key)?;
    let is_dead = within(SOON, || {
        let worker = resp.ask(&["WORKER.GET", &silent(name)]).and_then(document);
        worker.is_ok_and(|worker| worker.is_some_and(|worker| worker["state"] == "dead")).then_some(())
    });
    is_dead.ok_or_else(|| io::Error::other("a worker that fell silent is not dead"))?;
    let action = json!({"action_id": name, "plan_id": PLAN, "queue": QUEUE, "inputs": [{"n": name}], "delay_secs": 0.2});
    expect_line(resp.ask(&["ACTION.SUBMIT", &action.to_string()])?)?;
    let claimed = resp.ask(&["BRPOP", &format!("queue:{QUEUE}"), "10"])?;
    let Some(job) = document(claimed)? else {
        return Err(io::Error::other("a job whose time has come was not handed out"));
    };
    let report = json!({"status": "completed", "attempt": job["attempt"]}).to_string();
    expect_line(resp.ask(&["JOB.UPDATE", job["job_id"].as_str().unwrap_or_default(), &report])?)?;
    match document(resp.ask(&["ACTION.STATUS", name])?)? {
        Some(status) if status["completed"] == 1 => Ok(()),
        other => Err(io::Error::other(format!("the job was reported, and its action is {other:?}"))),
    }
}

/// Registers the worker that is to fall silent before `check` of the same name.
pub(super) fn register_silent(place: &Place, name: &str) -> io::Result<()> {
    let registration = json!({"worker_id": silent(name), "capabilities": ["nothing"]}).to_string();
    let mut resp = Resp::open(&place.agq, &place.key)?;
    match resp.ask(&["WORKER.REGISTER", &registration])? {
        Reply::Line(_) | Reply::Bulk(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn silent(name: &str) -> String {
    format!("silent-{name}")
}

fn expect_line(reply: Reply) -> io::Result<()> {
    match reply {
        Reply::Line(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}
