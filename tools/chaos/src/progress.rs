//! Polls the jobs of pending actions, and records completed ones in the ledger.

use std::{io, time::Duration};

use serde_json::Value;

use super::{
    Endpoints,
    ledger::ChaosLedger,
    pause,
    resp::{Resp, RespReply, unexpected},
};

const POLL_EVERY: Duration = Duration::from_millis(200);

/// Polls until the load ends.
pub(super) fn watch(endpoints: &Endpoints, ledger: &ChaosLedger) {
    while !ledger.is_over() {
        let connected = Resp::open(&endpoints.agq, &endpoints.key);
        // A lost connection is expected, and the next one polls the rest.
        let _away = connected.and_then(|mut resp| {
            while !ledger.is_over() {
                check_actions(&mut resp, ledger)?;
                pause(POLL_EVERY);
            }
            Ok(())
        });
        pause(POLL_EVERY);
    }
}

/// Polls all pending actions once.
pub(super) fn check_actions(resp: &mut Resp, ledger: &ChaosLedger) -> io::Result<()> {
    ledger.pending_actions().iter().try_for_each(|id| check_action_progress(resp, ledger, id))
}

fn check_action_progress(resp: &mut Resp, ledger: &ChaosLedger, id: &str) -> io::Result<()> {
    let jobs = jobs(resp, id)?;
    let Some(mut action) = ledger.content().actions.get(id).cloned() else { return Ok(()) };
    if jobs.len() != action.inputs.len() {
        ledger.lost(format!("action {id} has {} jobs instead of {}", jobs.len(), action.inputs.len()));
        action.is_final = true;
    }
    for job in &jobs {
        if action.completed.contains_key(job) {
            continue;
        }
        let Some(seen) = status(resp, job)? else {
            ledger.lost(format!("job {job} of action {id} is listed and not there"));
            action.is_final = true;
            continue;
        };
        match seen["status"].as_str() {
            Some("completed") => drop(action.completed.insert(job.clone(), seen)),
            Some("pending" | "running") => {}
            // agq marks a job as dead after three lost workers, as documented.
            Some("dead") if seen["error"].as_str().is_some_and(|error| error.contains("was lost")) => {
                resp.ask(&["JOB.RETRY", job, "FORCE"])?;
                ledger.note("jobs that lost three workers, and were retried");
            }
            _ => {
                ledger.lost(format!("job {job} of action {id} did not complete: {seen}"));
                action.is_final = true;
            }
        }
    }
    action.is_final |= action.completed.len() == jobs.len();
    ledger.content().actions.insert(id.to_owned(), action);
    Ok(())
}

/// Returns the ids of the jobs of an action, in the order of its inputs.
pub(super) fn jobs(resp: &mut Resp, action: &str) -> io::Result<Vec<String>> {
    let RespReply::Array(replies) = resp.ask(&["JOB.LIST", action])? else {
        return Err(io::Error::other(format!("agq does not list the jobs of {action}")));
    };
    let id = |reply| match reply {
        RespReply::Bulk(id) => Ok(id),
        other => Err(unexpected(&other)),
    };
    replies.into_iter().map(id).collect()
}

pub(super) fn status(resp: &mut Resp, job: &str) -> io::Result<Option<Value>> {
    document(resp.ask(&["JOB.STATUS", job])?)
}

/// Parses the document in a reply. Returns `None` for nil.
pub(super) fn document(reply: RespReply) -> io::Result<Option<Value>> {
    match reply {
        RespReply::Bulk(text) => serde_json::from_str(&text).map(Some).map_err(io::Error::other),
        RespReply::Nil => Ok(None),
        other => Err(unexpected(&other)),
    }
}
