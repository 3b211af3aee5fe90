//! agq over RESP as a contender. A cycle is `ACTION.SUBMIT` of one input, `RPOP queue:ready`, and
//! `JOB.UPDATE` with `completed` and the result of a task. With several nodes, `BRPOP` claims the
//! job.

use std::{fmt::Write, io, sync::Arc};

use super::{
    agq::AgqServer,
    clients::{Clients, CycleClient},
    payloads::Payloads,
    setting::Setting,
    wire::{BufferedConnection, nothing_ready, unexpected},
};

/// Bytes of inputs in one command that fills a queue.
const BATCH_BYTES: usize = 2_000_000;

/// Queues `setting.queued` jobs on nodes of one store, and connects the clients to the nodes in
/// turn.
pub(super) fn clients(
    nodes: Vec<AgqServer>,
    setting: Setting,
) -> anyhow::Result<Clients<RespClient, Vec<AgqServer>>> {
    let payloads = Payloads::new(setting.input_bytes);
    fill(&mut nodes[0].connect()?, &payloads, "old", setting.queued)?;
    let waits = nodes.len() > 1;
    let clients = (0..setting.clients)
        .map(|number| RespClient::connect(&nodes[number % nodes.len()], number, &payloads, waits));
    Ok(Clients::new(clients.collect::<io::Result<_>>()?, nodes))
}

/// Queues more jobs on the first node.
pub(super) fn grow(
    clients: &Clients<RespClient, Vec<AgqServer>>,
    setting: Setting,
    jobs: usize,
) -> io::Result<()> {
    fill(&mut clients.server()[0].connect()?, &Payloads::new(setting.input_bytes), "more", jobs)
}

/// Queues jobs of a new action.
fn fill(wire: &mut BufferedConnection, payloads: &Payloads, action: &str, queued: usize) -> io::Result<()> {
    let batch = BATCH_BYTES / payloads.input(0).len();
    wire.call(&["ACTION.SUBMIT", &format!(r#"{{"action_id":"{action}","plan_id":"cycle","open":true}}"#)])?;
    for first in (0..queued).step_by(batch) {
        let numbers = first..(first + batch).min(queued);
        let inputs: Vec<_> =
            numbers.map(|number| format!(r#"{{"data":"{}"}}"#, payloads.input(number))).collect();
        wire.call(&["ACTION.ADD", action, &format!("[{}]", inputs.join(","))])?;
    }
    wire.call(&["ACTION.CLOSE", action])
}

/// A client that submits and works, as those of the peers do.
pub(super) struct RespClient {
    wire: BufferedConnection,
    /// True if a claim waits for a job. Another node may have locked all ready jobs for a moment.
    waits: bool,
    payloads: Arc<Payloads>,
    // Id and report of the claimed job.
    job_id: String,
    json: String,
}

impl RespClient {
    fn connect(agq: &AgqServer, number: usize, payloads: &Arc<Payloads>, waits: bool) -> io::Result<Self> {
        let (wire, payloads) = (agq.connect_worker(number)?, Arc::clone(payloads));
        Ok(Self { wire, waits, payloads, job_id: String::new(), json: String::new() })
    }
}

impl CycleClient for RespClient {
    fn cycle(&mut self, number: usize) -> io::Result<()> {
        submission(&mut self.json, self.payloads.input(number));
        self.wire.call(&["ACTION.SUBMIT", &self.json])?;
        let job = claim(&mut self.wire, self.waits)?;
        completion(&mut self.job_id, &mut self.json, job, self.payloads.result(number))?;
        self.wire.call(&["JOB.UPDATE", &self.job_id, &self.json])
    }
}

/// Claims a job, and returns its document.
fn claim(wire: &mut BufferedConnection, waits: bool) -> io::Result<&str> {
    // Both commands answer with the job alone, because the client has not sent HELLO.
    if waits {
        wire.write_command(&["BRPOP", "queue:ready", "10"])?;
    } else {
        wire.write_command(&["RPOP", "queue:ready"])?;
    }
    wire.send()?;
    wire.bulk()?.ok_or_else(nothing_ready)
}

/// Writes the submission of an action with one job.
pub(super) fn submission(json: &mut String, input: &str) {
    json.clear();
    let _infallible = write!(json, r#"{{"plan_id":"cycle","inputs":[{{"data":"{input}"}}]}}"#);
}

/// Writes the report of a completed job with the result of its task, and the id of the job.
pub(super) fn completion(job_id: &mut String, json: &mut String, job: &str, result: &str) -> io::Result<()> {
    let (id, attempt) = id_and_attempt(job).ok_or_else(|| unexpected(job))?;
    job_id.clear();
    job_id.push_str(id);
    json.clear();
    let bytes = result.len();
    let _infallible = write!(
        json,
        r#"{{"status":"completed","attempt":{attempt},"task_results":[{{"task_number":1,"command":"true","exit_code":0,"#
    );
    let _infallible = write!(
        json,
        r#""stdout":"{result}","stdout_bytes":{bytes},"stderr":"","stderr_bytes":0,"duration_ms":1}}]}}"#
    );
    Ok(())
}

/// Finds id and attempt without parsing the document, in which the id is first and the attempt is
/// last.
fn id_and_attempt(job: &str) -> Option<(&str, &str)> {
    let (id, _) = job.split_once(r#""job_id":""#)?.1.split_once('"')?;
    let (_, attempt) = job.rsplit_once(r#""attempt":"#)?;
    Some((id, attempt.trim_end_matches('}')))
}

#[cfg(test)]
mod tests {
    use super::{completion, submission};

    #[test]
    fn completion_has_the_id_and_the_attempt_of_the_job() {
        let (mut job_id, mut json) = (String::new(), String::new());
        let job = r#"{"job_id":"job-1","action_id":"a","inputs":{"data":"x"},"attempt":12}"#;
        completion(&mut job_id, &mut json, job, "out").unwrap();
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((job_id.as_str(), &report["attempt"]), ("job-1", &12.into()));
        assert_eq!(report["task_results"][0]["stdout"], "out");
        assert!(completion(&mut job_id, &mut json, "{}", "out").is_err());
    }

    #[test]
    fn submission_is_json() {
        let mut json = "the submission before".to_owned();
        submission(&mut json, "abc");
        let action: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(action["inputs"][0]["data"], "abc");
    }
}
