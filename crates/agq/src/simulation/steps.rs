//! Steps of a world: a client acts, the writer writes, time passes, or a fault happens.

use std::sync::Arc;

use agenix_protocol::request::Request;
use bytes::Bytes;
use fastrand::Rng;

use crate::{
    resp::dispatch::{self, QueuedCommand},
    simulation::{
        disk::DiskFault,
        keys::KeyOperation,
        ledger::{CheckResult, ExpectedAction},
        limit_terms,
        operations::Operation,
        share_terms,
        workers::{CONTENTS, hash_of},
        world::{InFlightRequest, PendingRequest, World},
    },
};

const QUEUES: [&str; 2] = ["ready", "other"];

impl World {
    /// Executes a step by `chance` alone, so that it is the same whichever steps are left out.
    pub(super) fn step(&mut self, chance: Rng) -> CheckResult {
        self.rng = chance;
        self.counts.steps += 1;
        match self.rng.u8(..100) {
            0..22 => self.user_acts()?,
            22..62 => self.worker_acts()?,
            62..82 => {
                let most = [1, 1, 2, 3, 64][self.rng.usize(..5)];
                self.write(most)?;
            }
            82..92 => self.time_passes()?,
            92..95 => self.check_quiet()?,
            _ if self.is_calm => self.use_ojs_jobs()?,
            _ => self.something_goes_wrong()?,
        }
        self.run_until_idle()
    }

    fn time_passes(&mut self) -> CheckResult {
        let next = self.time.next_ms().unwrap_or(0);
        let ms = match self.rng.u8(..10) {
            0..5 => next,
            5..8 => self.rng.u64(1..600),
            8 => self.rng.u64(600..4000),
            _ => self.rng.u64(4000..60_000),
        };
        self.tell(|| format!("{ms} ms pass"));
        self.pass(ms)
    }

    fn something_goes_wrong(&mut self) -> CheckResult {
        self.counts.faults += 1;
        let after = if self.rng.bool() { self.rng.u64(..4) } else { self.rng.u64(..40) };
        let which = self.rng.u8(..13);
        match which {
            0 | 1 => {
                self.tell(|| "agq is killed".into());
                self.disk.kill();
            }
            2 => {
                self.tell(|| "the power fails".into());
                let disk = self.disk.clone();
                disk.cut_power(&mut self.rng);
            }
            3..6 => {
                self.tell(|| format!("agq will be dead after {after} more changes of its file"));
                self.disk.plan(DiskFault::Death { after, power: self.rng.bool().then(|| self.rng.u64(..)) });
            }
            6 => {
                self.tell(|| format!("the disk will fail once, after {after} more changes"));
                self.disk
                    .plan(DiskFault::Error { after, forgets: self.rng.bool().then(|| self.rng.u64(..)) });
            }
            7 => {
                self.tell(|| "the disk is full".into());
                self.disk.plan(DiskFault::Full);
            }
            8 => return self.stop(),
            9 => {
                self.tell(|| format!("the storage of blobs will fail once, after {after} more changes"));
                self.blobs.plan_failure(after);
            }
            _ => {
                let span = [2_000, 100_000, 90_000_000][self.rng.usize(..3)];
                let by = self.rng.i64(-span..span);
                self.tell(|| format!("the clock is set by {by} ms"));
                self.time.set_wall(by);
                self.model.starts.clock_was_set();
            }
        }
        Ok(())
    }

    /// Stops agq as on a signal: pending writes are finished first.
    fn stop(&mut self) -> CheckResult {
        self.tell(|| "agq is stopped".into());
        self.write_all()?;
        if self.process.is_some() {
            self.end_process();
            self.start()?;
        }
        Ok(())
    }

    fn user_acts(&mut self) -> CheckResult {
        let fresh = self.number().to_string();
        match self.rng.u8(..31) {
            0..3 => self.submit_plan(&fresh),
            3..8 => self.submit_action(&fresh),
            8 => self.submit_again(),
            9 | 10 => self.add_inputs(&fresh),
            11 | 12 => self.ask_of_a_job(),
            13 => self.ask_of_an_action(),
            14 => self.pause(),
            15 => self.tell_a_worker(),
            16..22 => self.use_keys(&fresh),
            22..25 => self.use_elements(&fresh),
            25 => self.delete_a_plan(),
            28 => self.set_a_schedule(),
            29 | 30 => self.submit_large_input(&fresh),
            _ => self.read_something(),
        }
    }

    pub(super) fn user_asks(&mut self, asked: PendingRequest, words: &[&str]) -> CheckResult {
        if let PendingRequest::Plan(plan_id) = &asked {
            self.ledger.plan_documents.insert(plan_id.clone(), words[1].to_owned());
        }
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        self.people_ask_words(asked, &words)
    }

    fn people_ask_words(&mut self, asked: PendingRequest, words: &[String]) -> CheckResult {
        let user = Arc::clone(&self.user);
        self.ask(asked, &user, words).map(drop)
    }

    fn submit_plan(&mut self, fresh: &str) -> CheckResult {
        let plan_id = format!("p{fresh}");
        let retries = self.rng.u8(..4);
        let timeout = ["", r#","timeout_secs":3"#, r#","timeout_secs":0"#][self.rng.usize(..3)];
        let sandbox = if self.ledger.has_sandboxes { r#","sandbox":{"profile":"reader"}"# } else { "" };
        let needs = [
            "",
            sandbox,
            r#","requires":{"labels":{"zone":"eu"}}"#,
            r#","requires":{"resources":{"cpus":1}}"#,
            r#","requires":{"resources":{"cpus":3}}"#,
        ];
        let (number, which) = (number_of(fresh), self.rng.usize(..5));
        let (needs, limit) = match which {
            3 | 4 if self.ledger.has_limits => {
                (limit_terms::quantities(number, which == 4), limit_terms::of_plan(number))
            }
            _ if self.ledger.has_limits => (needs[which], limit_terms::of_plan(number)),
            _ => (needs[which], ""),
        };
        let tasks = r#"[{"task_number":1,"command":"sort"}]"#;
        let json = format!(
            r#"{{"plan_id":"{plan_id}","tasks":{tasks},"max_retries":{retries}{timeout}{needs}{limit}}}"#
        );
        self.user_asks(PendingRequest::Plan(plan_id), &["PLAN.SUBMIT", &json])
    }

    fn submit_action(&mut self, fresh: &str) -> CheckResult {
        let Some(plan_id) = self.any_plan() else { return self.submit_plan(fresh) };
        let action_id = format!("a{fresh}");
        let count = self.rng.usize(1..4);
        let has_limits = self.ledger.has_limits;
        let input = |n| limit_terms::input(has_limits, &format!("{fresh}-{n}"), n);
        let inputs: Vec<String> = (0..count).map(input).collect();
        let queue = QUEUES[usize::from(self.rng.u8(..4) == 0)];
        let wishes = match self.rng.u8(..6) {
            0 => format!(r#","delay_secs":{}"#, self.rng.u8(..20)),
            1 => format!(r#","priority":{}"#, self.rng.i8(-3..4)),
            2 | 3 => r#","open":true"#.to_owned(),
            _ => String::new(),
        };
        let (all, share) = (inputs.join(","), share_terms::field(fresh));
        let plan = self.ledger.plan_documents.get(&plan_id);
        let may_limit = has_limits && plan.is_some_and(|plan| !limit_terms::is_limited(plan));
        let limit = if may_limit { limit_terms::of_action(number_of(fresh)) } else { "" };
        let json = format!(
            r#"{{"action_id":"{action_id}","plan_id":"{plan_id}","queue":"{queue}","inputs":[{all}]{wishes}{share}{limit}}}"#
        );
        self.counts.jobs += count as u64;
        let submitted = ExpectedAction { plan_id, inputs, json: json.clone(), ..ExpectedAction::default() };
        self.ledger.actions.insert(action_id.clone(), submitted);
        self.user_asks(PendingRequest::Inputs { action_id, count }, &["ACTION.SUBMIT", &json])
    }

    /// Stores an input as a blob, and submits an action that reads it. Sometimes the blob is not
    /// there.
    pub(super) fn submit_large_input(&mut self, fresh: &str) -> CheckResult {
        let plan_id = format!("p{fresh}");
        let tasks = r#"[{"task_number":1,"command":"sort","stdin_blob":"{{input.stdin}}"}]"#;
        let plan = format!(r#"{{"plan_id":"{plan_id}","tasks":{tasks}}}"#);
        self.user_asks(PendingRequest::Plan(plan_id.clone()), &["PLAN.SUBMIT", &plan])?;
        // The action is rejected before its plan and its blob are stored. In a world about blobs,
        // the action is submitted later.
        let writes = self.ledger.uploads.is_some();
        if writes {
            self.write_all()?;
        }
        let (content, upload) = (CONTENTS[self.rng.usize(..CONTENTS.len())].repeat(3), format!("u{fresh}"));
        let (hash, length) = (hash_of(&content).to_string(), content.len().to_string());
        if self.rng.u8(..8) > 0 || writes {
            self.user_asks(PendingRequest::Anything, &["INPUT.WRITE", &upload, "0", &content])?;
            self.user_asks(PendingRequest::Anything, &["INPUT.COMMIT", &upload, &length, &hash])?;
        }
        if writes {
            self.write_all()?;
        }
        let (action_id, inputs) = (format!("a{fresh}"), vec![format!(r#"{{"stdin":"{hash}"}}"#)]);
        let json = format!(r#"{{"action_id":"{action_id}","plan_id":"{plan_id}","inputs":[{}]}}"#, inputs[0]);
        self.counts.jobs += 1;
        let submitted = ExpectedAction { plan_id, inputs, json: json.clone(), ..ExpectedAction::default() };
        self.ledger.actions.insert(action_id.clone(), submitted);
        self.user_asks(PendingRequest::Inputs { action_id, count: 1 }, &["ACTION.SUBMIT", &json])
    }

    /// Repeats a submission, as a client does if the reply was lost.
    fn submit_again(&mut self) -> CheckResult {
        let Some(action_id) = self.any_action() else { return Ok(()) };
        let json = self.ledger.actions[&action_id].json.clone();
        self.user_asks(PendingRequest::Anything, &["ACTION.SUBMIT", &json])
    }

    fn add_inputs(&mut self, fresh: &str) -> CheckResult {
        let Some(action_id) = self.any_action() else { return Ok(()) };
        let Some(submitted) = self.ledger.actions.get_mut(&action_id) else { return Ok(()) };
        if !submitted.json.contains(r#""open":true"#) {
            return Ok(());
        }
        // agx does the same: it sends the unacknowledged inputs again, from their position.
        let at = submitted.acknowledged;
        if submitted.inputs.len() == at {
            submitted.inputs.push(limit_terms::input(self.ledger.has_limits, fresh, at));
            self.counts.jobs += 1;
        }
        let count = submitted.inputs.len();
        let inputs = format!("[{}]", submitted.inputs[at..].join(","));
        let place = at.to_string();
        let asked = PendingRequest::Inputs { action_id: action_id.clone(), count };
        self.user_asks(asked, &["ACTION.ADD", &action_id, &inputs, "AT", &place])
    }

    pub(super) fn ask_of_a_job(&mut self) -> CheckResult {
        let Some(job_id) = self.any_of(&self.ledger.jobs.keys().cloned().collect::<Vec<_>>()) else {
            return Ok(());
        };
        if self.rng.bool() {
            self.user_asks(PendingRequest::Cancel(job_id.clone()), &["JOB.CANCEL", &job_id])
        } else {
            self.ledger.retry(&job_id);
            self.user_asks(PendingRequest::Anything, &["JOB.RETRY", &job_id, "FORCE"])
        }
    }

    fn ask_of_an_action(&mut self) -> CheckResult {
        let Some(action_id) = self.any_action() else { return Ok(()) };
        match self.rng.u8(..3) {
            0 => self.user_asks(PendingRequest::Anything, &["ACTION.CANCEL", &action_id]),
            1 => {
                self.ledger.retry(&action_id);
                self.user_asks(PendingRequest::Anything, &["ACTION.RETRY", &action_id])
            }
            _ => self.user_asks(PendingRequest::Closed(action_id.clone()), &["ACTION.CLOSE", &action_id]),
        }
    }

    fn pause(&mut self) -> CheckResult {
        let queue = QUEUES[self.rng.usize(..2)].to_owned();
        let paused = self.rng.u8(..3) == 0;
        self.ledger.paused.insert(queue.clone(), None);
        let word = if paused { "QUEUE.PAUSE" } else { "QUEUE.RESUME" };
        self.user_asks(PendingRequest::Pause { queue: queue.clone(), paused }, &[word, &queue])?;
        // Finish the write, so that at most one reply for the queue is outstanding.
        self.write_all()
    }

    fn tell_a_worker(&mut self) -> CheckResult {
        let at = self.rng.usize(..3);
        let worker_id = format!("w{at}");
        let word = if self.rng.u8(..3) == 0 { "WORKER.DRAIN" } else { "WORKER.RESUME" };
        self.user_asks(PendingRequest::Told(at), &[word, &worker_id])
    }

    fn delete_a_plan(&mut self) -> CheckResult {
        let Some(plan_id) = self.any_plan() else { return Ok(()) };
        self.ledger.unwanted_plans.insert(plan_id.clone());
        self.user_asks(PendingRequest::Deleted(plan_id.clone()), &["PLAN.DELETE", &plan_id])
    }

    fn use_keys(&mut self, fresh: &str) -> CheckResult {
        let count = if self.rng.u8(..4) == 0 { 2 } else { 1 };
        let works: Vec<KeyOperation> =
            (0..count).map(|n| KeyOperation::any(&mut self.rng, format!("{fresh}-{n}"))).collect();
        let (version, expected) = self.keys.ask(&works);
        let asked = PendingRequest::Keys { version, expected };
        if let [work] = works.as_slice() {
            return self.people_ask_words(asked, &work.words());
        }
        let queued = works.iter().map(|work| key_command(&work.words())).collect::<Result<_, _>>()?;
        let number = self.number();
        self.tell(|| format!("{number}: MULTI {works:?} EXEC"));
        let Some(process) = &mut self.process else { return Ok(()) };
        let app = Arc::clone(&process.app);
        let abort = process.spawn(number, dispatch::exec(app, queued));
        self.ops.insert(number, InFlightRequest { asked, abort });
        self.note(|| Operation::Transact {
            number,
            commands: works.iter().map(KeyOperation::words).collect(),
        });
        self.rest_between()
    }

    fn use_elements(&mut self, fresh: &str) -> CheckResult {
        match self.rng.u8(..4) {
            0 | 1 => {
                self.elements.sent.insert(fresh.to_owned());
                self.user_asks(PendingRequest::Pushed(fresh.to_owned()), &["RPUSH", "w", fresh])?;
            }
            2 => {
                let wait = ["0", "0.5"][self.rng.usize(..2)];
                self.user_asks(PendingRequest::Taken, &["BLPOP", "w", wait])?;
            }
            _ => {
                let waiting = self.ops.iter().find(|(_, op)| matches!(op.asked, PendingRequest::Taken));
                if let Some(number) = waiting.map(|(number, _)| *number)
                    && let Some(op) = self.ops.remove(&number)
                {
                    self.tell(|| format!("{number}: whoever waits for an element goes away"));
                    self.elements.gone_waiters += 1;
                    op.abort.abort();
                    self.note(|| Operation::GoAway(number));
                }
            }
        }
        Ok(())
    }

    /// Sets a schedule that submits nothing. The end of the simulation checks the time for which
    /// the schedule waits.
    fn set_a_schedule(&mut self) -> CheckResult {
        let json =
            r#"{"name":"s","expression":"* * * * *","enabled":false,"job_template":{"type":"t","args":[]}}"#;
        self.user_asks(PendingRequest::Anything, &["SCHEDULE.SET", json])
    }

    fn read_something(&mut self) -> CheckResult {
        let action_id = self.any_action().unwrap_or_else(|| "none".to_owned());
        let words: &[&str] = match self.rng.u8(..6) {
            0 => &["ACTION.STATUS", &action_id],
            1 => &["JOB.LIST", &action_id],
            2 => &["QUEUE.STATS"],
            3 => &["WORKER.LIST"],
            4 => &["QUEUE.PEEK", "ready"],
            _ => &["INFO"],
        };
        self.user_asks(PendingRequest::Anything, words)
    }

    fn any_plan(&mut self) -> Option<String> {
        let known: Vec<String> = self.ledger.plans.iter().cloned().collect();
        self.any_of(&known)
    }

    fn any_action(&mut self) -> Option<String> {
        let known: Vec<String> = self.ledger.actions.keys().cloned().collect();
        self.any_of(&known)
    }

    pub(super) fn any_of(&mut self, all: &[String]) -> Option<String> {
        (!all.is_empty()).then(|| all[self.rng.usize(..all.len())].clone())
    }
}

/// Returns the number that the names of a step end with.
fn number_of(fresh: &str) -> usize {
    fresh.parse().unwrap_or_default()
}

pub(super) fn key_command(words: &[String]) -> Result<QueuedCommand, String> {
    let words: Vec<Bytes> = words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    match Request::parse(&words).map_err(|error| error.line())? {
        (_, Request::Key(command)) => Ok(QueuedCommand::Key(command)),
        (_, other) => Err(format!("{other:?} is no command on keys")),
    }
}
