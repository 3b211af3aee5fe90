//! Our own cycle: `ACTION.SUBMIT` of one input, `RPOP queue:ready`, `JOB.UPDATE` with `completed` and a task's result.

use std::{fmt::Write, io, sync::Arc};

use super::{
    agq::Agq,
    crew::{Client, Crew},
    setting::Setting,
    texts::Texts,
    wire::{Wire, nothing_ready, unexpected},
};

/// Inputs of one command while a queue is filled.
const PIECE_BYTES: usize = 2_000_000;

/// An agq, or several that share what they remember, with so many jobs that wait, and its clients, each at the next of them.
pub(super) fn crew(nodes: Vec<Agq>, setting: Setting) -> anyhow::Result<Crew<Ours, Vec<Agq>>> {
    let texts = Texts::new(setting.input_bytes);
    fill(&mut nodes[0].connect()?, &texts, "old", setting.queued)?;
    let clients =
        (0..setting.clients).map(|number| Ours::connect(&nodes[number % nodes.len()], number, &texts));
    Ok(Crew::new(clients.collect::<io::Result<_>>()?, nodes))
}

/// Submits so many more jobs, which wait, to an agq and its clients.
pub(super) fn grow(crew: &Crew<Ours, Vec<Agq>>, setting: Setting, jobs: usize) -> io::Result<()> {
    fill(&mut crew.server()[0].connect()?, &Texts::new(setting.input_bytes), "more", jobs)
}

/// Lets so many jobs of an action wait.
fn fill(wire: &mut Wire, texts: &Texts, action: &str, queued: usize) -> io::Result<()> {
    let piece = PIECE_BYTES / texts.input(0).len();
    wire.done(&["ACTION.SUBMIT", &format!(r#"{{"action_id":"{action}","plan_id":"cycle","open":true}}"#)])?;
    for first in (0..queued).step_by(piece) {
        let numbers = first..(first + piece).min(queued);
        let inputs: Vec<_> =
            numbers.map(|number| format!(r#"{{"data":"{}"}}"#, texts.input(number))).collect();
        wire.done(&["ACTION.ADD", action, &format!("[{}]", inputs.join(","))])?;
    }
    wire.done(&["ACTION.CLOSE", action])
}

/// One client: who submits and the worker in one, as the peers' are.
pub(super) struct Ours {
    wire: Wire,
    texts: Arc<Texts>,
    // Of the job that is under way.
    job_id: String,
    json: String,
}

impl Ours {
    fn connect(agq: &Agq, number: usize, texts: &Arc<Texts>) -> io::Result<Self> {
        let wire = agq.connect_worker(number)?;
        Ok(Self { wire, texts: Arc::clone(texts), job_id: String::new(), json: String::new() })
    }
}

impl Client for Ours {
    fn cycle(&mut self, number: usize) -> io::Result<()> {
        submission(&mut self.json, self.texts.input(number));
        self.wire.done(&["ACTION.SUBMIT", &self.json])?;
        self.wire.command(&["RPOP", "queue:ready"])?;
        self.wire.send()?;
        let job = self.wire.bulk()?.ok_or_else(nothing_ready)?;
        completion(&mut self.job_id, &mut self.json, job, self.texts.result(number))?;
        self.wire.done(&["JOB.UPDATE", &self.job_id, &self.json])
    }
}

/// Writes the action of one job.
pub(super) fn submission(json: &mut String, input: &str) {
    json.clear();
    let _infallible = write!(json, r#"{{"plan_id":"cycle","inputs":[{{"data":"{input}"}}]}}"#);
}

/// Writes the report that a job is done, with what its task has written; and the job's id beside it.
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

/// What a report needs of a job, found without reading the whole document: the id is first in it, the attempt is last.
fn id_and_attempt(job: &str) -> Option<(&str, &str)> {
    let (id, _) = job.split_once(r#""job_id":""#)?.1.split_once('"')?;
    let (_, attempt) = job.rsplit_once(r#""attempt":"#)?;
    Some((id, attempt.trim_end_matches('}')))
}

#[cfg(test)]
mod tests {
    use super::{completion, submission};

    #[test]
    fn a_job_is_reported_under_its_id_and_attempt() {
        let (mut job_id, mut json) = (String::new(), String::new());
        let job = r#"{"job_id":"job-1","action_id":"a","inputs":{"data":"x"},"attempt":12}"#;
        completion(&mut job_id, &mut json, job, "out").unwrap();
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((job_id.as_str(), &report["attempt"]), ("job-1", &12.into()));
        assert_eq!(report["task_results"][0]["stdout"], "out");
        assert!(completion(&mut job_id, &mut json, "{}", "out").is_err());
    }

    #[test]
    fn a_submission_is_json() {
        let mut json = "of the job before".to_owned();
        submission(&mut json, "abc");
        let action: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(action["inputs"][0]["data"], "abc");
    }
}
