//! Steps of a world without faults that is about blobs: jobs upload outputs of the same contents,
//! are removed by retention or by a user, and sweeps remove the blobs that no job names.

use std::collections::BTreeMap;

use agenix_protocol::documents::Status;
use fastrand::Rng;

use super::{
    ledger::{CheckResult, ExpectedAction},
    world::{PendingRequest, World},
};

/// Plan of the jobs whose input is no blob.
const PLAN: &str = "p";

impl World {
    /// Returns a world in which jobs are removed soon: by time, or by their count and the bytes of
    /// their blobs.
    pub(super) fn of_blobs(seed: u64, image: &[u8]) -> Result<Self, String> {
        let mut world = Self::new(seed, image, false)?;
        world.end_process();
        let settings = &mut world.settings;
        // Workers may be silent until the next sweep, and keep their jobs.
        (settings.heartbeat_interval_ms, settings.start_timeout_ms, settings.job_timeout_ms) = (60_000, 0, 0);
        if (seed / 2).is_multiple_of(2) {
            (settings.keep_ended_ms, settings.keep_dead_ms) = (3000, 6000);
        } else {
            (settings.keep_ended_ms, settings.keep_dead_ms) = (0, 0);
            // The longest content exceeds the bytes together with any other.
            (settings.keep_ended_count, settings.keep_blob_bytes) = (3, 80);
        }
        (world.ledger.forgets, world.ledger.uploads) = (true, Some(BTreeMap::new()));
        world.is_calm = true;
        world.start()?;
        let plan = format!(r#"{{"plan_id":"{PLAN}","tasks":[{{"task_number":1,"command":"sort"}}]}}"#);
        world.user_asks(PendingRequest::Plan(PLAN.into()), &["PLAN.SUBMIT", &plan])?;
        world.register(0)?;
        world.write_all()?;
        Ok(world)
    }

    /// Executes a step by `chance` alone, and writes some of what waits then.
    pub(super) fn blob_step(&mut self, chance: Rng) -> CheckResult {
        self.rng = chance;
        self.counts.steps += 1;
        match self.rng.u8(..100) {
            0..12 => self.submit_job()?,
            12..60 => self.go_on_with_a_job()?,
            60..70 => self.forget_a_job()?,
            70..73 => self.ask_of_a_job()?,
            _ => {
                // A sweep comes every five seconds.
                let ms = [500, 5000, 5000][self.rng.usize(..3)];
                self.tell(|| format!("{ms} ms pass"));
                self.pass(ms)?;
            }
        }
        for _batch in 0..self.rng.u8(..4) {
            let most = [1, 1, 2][self.rng.usize(..3)];
            self.write(most)?;
        }
        self.run_until_idle()
    }

    fn submit_job(&mut self) -> CheckResult {
        let fresh = self.number().to_string();
        if self.rng.u8(..4) == 0 {
            return self.submit_large_input(&fresh);
        }
        let (action_id, count) = (format!("a{fresh}"), self.rng.usize(1..3));
        let inputs: Vec<String> = (0..count).map(|n| format!(r#"{{"n":"{fresh}-{n}"}}"#)).collect();
        let all = inputs.join(",");
        let json = format!(r#"{{"action_id":"{action_id}","plan_id":"{PLAN}","inputs":[{all}]}}"#);
        let plan_id = PLAN.to_owned();
        let submitted = ExpectedAction { plan_id, inputs, json: json.clone(), ..ExpectedAction::default() };
        self.ledger.actions.insert(action_id.clone(), submitted);
        self.user_asks(PendingRequest::Inputs { action_id, count }, &["ACTION.SUBMIT", &json])
    }

    /// Lets an actor take its next step: claim a job, upload an output, or report the output.
    fn go_on_with_a_job(&mut self) -> CheckResult {
        // A worker, and the connection without one.
        let at = [0, 3][self.rng.usize(..2)];
        self.actors[at].unconfirmed.clear();
        let ledger = &self.ledger;
        let is_active = |id: &str| ledger.jobs.get(id).is_some_and(|job| job.state == "active");
        self.actors[at].holds.retain(|held| is_active(&held.job_id));
        let Some(held) = self.actors[at].holds.first().cloned() else { return self.claim(at) };
        let is_its = |job_id: &str, attempt| (job_id, attempt) == (held.job_id.as_str(), held.attempt);
        if self.actors[at].committed.iter().any(|blob| is_its(&blob.job_id, blob.attempt)) {
            self.actors[at].holds.remove(0);
            let (json, end) = (self.completion(at, &held), Some(Status::Completed));
            let asked = self.asks_to_report(at, &held.job_id, end, &json);
            return self.actor_asks(at, asked, &["JOB.UPDATE", &held.job_id, &json]).map(drop);
        }
        let is_under_way = self.ops.values().any(
            |op| matches!(&op.asked, PendingRequest::Committed(_, blob) if is_its(&blob.job_id, blob.attempt)),
        );
        if is_under_way { self.write(1).map(drop) } else { self.upload(at, &held) }
    }

    fn forget_a_job(&mut self) -> CheckResult {
        let is_ended = |state: &str| matches!(state, "completed" | "discarded" | "cancelled");
        let jobs = self.ledger.jobs.values().filter(|job| is_ended(&job.state));
        let jobs: Vec<String> = jobs.map(|job| job.job_id.clone()).collect();
        let Some(job_id) = self.any_of(&jobs) else { return Ok(()) };
        self.user_asks(PendingRequest::Forgotten(job_id.clone()), &["JOB.FORGET", &job_id])
    }
}
