//! Behaviour of workers, and of connections that claim jobs without a worker: they claim, report,
//! fall silent, return, and repeat reports.

use std::sync::Arc;

use agenix_protocol::{
    blob::BlobHash,
    documents::{JobUpdate, Status},
};

use super::{
    actors::{CommittedBlob, HeldJob},
    job_terms::{OFFERED, ZONES},
    ledger::CheckResult,
    world::{PendingRequest, World},
};

/// Contents of outputs, before they are repeated. The hashes of the contents begin with the bytes
/// 0, 1 and 2, because the first sweeps of a process search for files in these parts of the
/// storage.
pub(super) const CONTENTS: [&str; 3] = ["few-495", "more-bytes-63", "the-most-bytes-of-all-524"];

pub(super) fn hash_of(content: &str) -> BlobHash {
    BlobHash::of(content.as_bytes())
}

/// Worker that can run jobs in the sandbox profile of some plans.
pub(super) const IN_SANDBOX: &str = "w0";

/// Results with figures for a budget.
const FIGURES: &str = r#","task_results":[{"task_number":1,"command":"sort","exit_code":0,"user_ms":200,"system_ms":70,"stdout_bytes":9}]"#;

impl World {
    pub(super) fn worker_acts(&mut self) -> CheckResult {
        let at = self.rng.usize(..self.actors.len());
        if self.actors[at].silent_until_ms > self.time.passed_ms() {
            return Ok(());
        }
        self.actors[at].unconfirmed.clear();
        let is_worker = self.actors[at].worker_id.is_some();
        if is_worker && !self.actors[at].registered {
            return self.register(at);
        }
        match self.rng.u8(..32) {
            0..10 => self.claim(at),
            10..22 => self.report(at),
            22..24 => self.report_again(at),
            24..28 if is_worker => self.beat(at),
            28 => {
                self.tell(|| format!("actor {at} loses its connection"));
                self.part(at)
            }
            29 => {
                let ms = self.rng.u64(500..8000);
                self.tell(|| format!("actor {at} is silent for {ms} ms"));
                self.actors[at].silent_until_ms = self.time.passed_ms() + ms;
                Ok(())
            }
            30 if is_worker => self.leave(at),
            31 => {
                self.tell(|| format!("actor {at} forgets what it has: it was started again"));
                self.actors[at].holds.clear();
                self.part(at)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn actor_asks(
        &mut self,
        at: usize,
        asked: PendingRequest,
        words: &[&str],
    ) -> Result<u64, String> {
        let caller = Arc::clone(&self.actors[at].caller);
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        self.ask(asked, &caller, &words)
    }

    pub(super) fn register(&mut self, at: usize) -> CheckResult {
        let zone = ZONES[at];
        let sandbox = match at {
            0 if self.ledger.has_sandboxes => r#","sandbox":{"profiles":{"reader":[]}}"#,
            1 if self.ledger.has_sandboxes => r#","sandbox":{"profiles":{"reader":["no Landlock"]}}"#,
            _ => "",
        };
        let resources = match OFFERED[at] {
            [0, 0] => String::new(),
            [hundredths, gpus] => {
                format!(r#","resources":{{"cpus":{},"gpus":{gpus}}}"#, hundredths / 100)
            }
        };
        let active = if self.rng.bool() {
            format!(r#","active_job_ids":[{}]"#, self.actors[at].held_ids())
        } else {
            self.actors[at].holds.clear();
            r#","active_job_ids":[]"#.to_owned()
        };
        let json = format!(
            r#"{{"worker_id":"w{at}","capabilities":["sort"],"tags":{{"zone":"{zone}"}}{sandbox}{resources}{active}}}"#
        );
        self.actor_asks(at, PendingRequest::Registered(at), &["WORKER.REGISTER", &json]).map(drop)
    }

    pub(super) fn claim(&mut self, at: usize) -> CheckResult {
        if self.actors[at].waits.is_some() || self.actors[at].holds.len() > 1 {
            return Ok(());
        }
        let wait = ["0", "0", "0.2"][self.rng.usize(..3)];
        let words: &[&str] = match self.rng.u8(..4) {
            0 => &["BRPOP", "queue:other", "queue:ready", wait],
            1 => &["RPOP", "queue:ready"],
            2 => &["JOB.CLAIM", wait, "COUNT", "3", "ready", "other"],
            _ => &["BRPOP", "queue:ready", "queue:other", wait],
        };
        let sent = self.sent_claim(at, words)?;
        let number = self.actor_asks(at, PendingRequest::Claimed(sent), words)?;
        // In a recorded world the reply has arrived before this line.
        self.actors[at].waits = self.ops.contains_key(&number).then_some(number);
        Ok(())
    }

    fn report(&mut self, at: usize) -> CheckResult {
        if self.actors[at].holds.is_empty() {
            return Ok(());
        }
        let which = self.rng.usize(..self.actors[at].holds.len());
        let held = self.actors[at].holds[which].clone();
        let attempt = held.attempt;
        let (end, json) = match self.rng.u8(..8) {
            0 | 1 => (Some(Status::Running), format!(r#"{{"status":"running","attempt":{attempt}}}"#)),
            2 => (None, format!(r#"{{"progress_percent":50,"attempt":{attempt}}}"#)),
            3 => {
                let code = [1, 1, 65, 75][self.rng.usize(..4)];
                let results = format!(r#"[{{"task_number":1,"command":"sort","exit_code":{code}}}]"#);
                let json = format!(r#"{{"status":"failed","attempt":{attempt},"task_results":{results}}}"#);
                (Some(Status::Failed), json)
            }
            4 => return self.upload(at, &held),
            _ => (Some(Status::Completed), self.completion(at, &held)),
        };
        // Some workers do not name the attempt in their reports.
        let says_attempt = self.rng.u8(..4) > 0;
        let json = if says_attempt {
            json
        } else {
            json.replace(&format!(r#""attempt":{attempt}"#), r#""current_task":1"#)
        };
        if end.is_some_and(Status::is_ended) && self.rng.u8(..8) > 0 {
            // Otherwise the worker still has the job in its list.
            self.actors[at].holds.remove(which);
        }
        self.actors[at].sent.push((held.job_id.clone(), json.clone()));
        let asked = self.asks_to_report(at, &held.job_id, end, &json);
        self.actor_asks(at, asked, &["JOB.UPDATE", &held.job_id, &json]).map(drop)
    }

    /// Uploads the output of a job in two chunks. The contents are few, so that jobs share blobs.
    pub(super) fn upload(&mut self, at: usize, held: &HeldJob) -> CheckResult {
        let content = CONTENTS[self.rng.usize(..CONTENTS.len())].repeat(3);
        let (hash, attempt) = (hash_of(&content), held.attempt.to_string());
        let (first, second) = content.split_at(self.rng.usize(1..content.len()));
        let (job_id, offset) = (&held.job_id, first.len().to_string());
        let write = |offset, data| ["OUTPUT.WRITE", job_id, &attempt, "1", "stdout", offset, data];
        self.actor_asks(at, PendingRequest::Anything, &write("0", first))?;
        self.actor_asks(at, PendingRequest::Anything, &write(&offset, second))?;
        let length = content.len().to_string();
        let words = ["OUTPUT.COMMIT", job_id, &attempt, "1", "stdout", &length, &hash.to_string()];
        let (job_id, attempt) = (held.job_id.clone(), held.attempt);
        let committed = CommittedBlob { job_id, attempt, content: content.clone() };
        self.actor_asks(at, PendingRequest::Committed(at, committed), &words).map(drop)
    }

    /// Returns the report of the completion of a job, which names the blob that was committed for
    /// it. Some reports name a blob that agq may not have.
    pub(super) fn completion(&mut self, at: usize, held: &HeldJob) -> String {
        let attempt = held.attempt;
        let is_its = |blob: &CommittedBlob| (&blob.job_id, blob.attempt) == (&held.job_id, attempt);
        let committed = &mut self.actors[at].committed;
        let named = match committed.iter().position(is_its) {
            Some(place) => {
                let blob = committed.swap_remove(place);
                self.ledger.named(&blob);
                Some(blob.content)
            }
            None if self.ledger.uploads.is_some() => None,
            None => (self.rng.u8(..16) == 0).then(|| CONTENTS[0].repeat(3)),
        };
        let Some(content) = named else {
            let figures = if self.budgets.is_empty() { "" } else { FIGURES };
            return format!(r#"{{"status":"completed","attempt":{attempt}{figures}}}"#);
        };
        let (hash, length) = (hash_of(&content), content.len());
        format!(
            r#"{{"status":"completed","attempt":{attempt},"task_results":[{{"task_number":1,"command":"sort","exit_code":0,"stdout_bytes":{length},"stdout_blob":"{hash}"}}]}}"#
        )
    }

    pub(super) fn asks_to_report(
        &mut self,
        at: usize,
        job_id: &str,
        end: Option<Status>,
        json: &str,
    ) -> PendingRequest {
        let attempt = serde_json::from_str(json).map_or(None, |update: JobUpdate| update.attempt);
        if end == Some(Status::Completed) && !json.contains(FIGURES) {
            self.model.charges.reported_without_figures(job_id);
        }
        PendingRequest::Reported {
            actor: at,
            holder: self.actors[at].holder(),
            job_id: job_id.to_owned(),
            end,
            attempt,
        }
    }

    /// Sends a report a second time, or late.
    fn report_again(&mut self, at: usize) -> CheckResult {
        if self.actors[at].sent.is_empty() {
            return Ok(());
        }
        let which = self.rng.usize(..self.actors[at].sent.len());
        let (job_id, json) = self.actors[at].sent[which].clone();
        let end = json.contains("completed").then_some(Status::Completed);
        let asked = self.asks_to_report(at, &job_id, end, &json);
        self.actor_asks(at, asked, &["JOB.UPDATE", &job_id, &json]).map(drop)
    }

    pub(super) fn beat(&mut self, at: usize) -> CheckResult {
        let json = format!(r#"{{"active_job_ids":[{}]}}"#, self.actors[at].held_ids());
        self.actor_asks(at, PendingRequest::Beat(at), &["WORKER.HEARTBEAT", &format!("w{at}"), &json])
            .map(drop)
    }

    fn leave(&mut self, at: usize) -> CheckResult {
        self.actors[at].holds.clear();
        self.actor_asks(at, PendingRequest::Left(at), &["WORKER.UNREGISTER", &format!("w{at}")]).map(drop)
    }
}
