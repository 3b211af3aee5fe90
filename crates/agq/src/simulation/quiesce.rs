//! End of a simulation: faults stop, workers do their work, and every job must end.

use agenix_protocol::documents::Status;
use agenix_rules::cron::Schedule;

use super::{
    ledger::CheckResult,
    world::{PendingRequest, World},
};

use crate::store::{DocumentKind, DocumentStore};

/// Maximum number of rounds. Little time passes in the first rounds, and much in the later ones.
const ROUNDS: u64 = 80;

impl World {
    /// Runs the world until every job has ended, and checks the result.
    pub(super) fn finish(&mut self, chance: fastrand::Rng) -> CheckResult {
        self.rng = chance;
        self.tell(|| "nothing goes wrong any more".into());
        self.is_calm = true;
        self.disk.repair();
        self.run_until_idle()?;
        self.lift_budget()?;
        self.check_quiet()?;
        for queue in ["ready", "other"] {
            self.ledger.paused.insert(queue.to_owned(), None);
            self.order(&["QUEUE.RESUME", queue])?;
        }
        for worker in ["w0", "w1", "w2"] {
            self.order(&["WORKER.RESUME", worker])?;
        }
        // All actors reconnect. One worker and the connection without a worker send nothing any
        // more.
        for at in 0..self.actors.len() {
            self.actors[at].holds.clear();
            self.part(at)?;
        }
        self.is_regular = true;
        for round in 0..ROUNDS {
            self.check_quiet()?;
            if self.all_jobs()?.iter().all(agenix_rules::job::Job::is_ended) {
                self.check_shares()?;
                return self.check_end();
            }
            for at in [0, 1] {
                self.work_reliably(at, round)?;
            }
            if self.operations.is_some() {
                self.finish_ojs_jobs()?;
            }
            self.write_all()?;
            // Report at once, because much time may pass before the next round.
            for at in [0, 1] {
                self.complete_all(at)?;
            }
            self.write_all()?;
            let ms = if round < 20 { 700 } else { 5000 };
            self.pass(ms)?;
        }
        let left: Vec<_> = self.all_jobs()?.into_iter().filter(|job| !job.is_ended()).collect();
        Err(format!("{} jobs never end, the first is {:?}", left.len(), left.first()))
    }

    fn order(&mut self, words: &[&str]) -> CheckResult {
        self.user_asks(PendingRequest::Anything, words)?;
        self.write_all()
    }

    /// Lets a worker register, report its jobs, and claim.
    fn work_reliably(&mut self, at: usize, round: u64) -> CheckResult {
        self.actors[at].unconfirmed.clear();
        if !self.actors[at].registered {
            self.actors[at].holds.clear();
            self.register(at)?;
            self.write_all()?;
        }
        if round.is_multiple_of(3) {
            self.beat(at)?;
        }
        self.complete_all(at)?;
        self.claim(at)
    }

    fn complete_all(&mut self, at: usize) -> CheckResult {
        for held in std::mem::take(&mut self.actors[at].holds) {
            let json = format!(r#"{{"status":"completed","attempt":{}}}"#, held.attempt);
            let asked = self.asks_to_report(at, &held.job_id, Some(Status::Completed), &json);
            self.actor_asks(at, asked, &["JOB.UPDATE", &held.job_id, &json])?;
        }
        Ok(())
    }

    /// Checks that all acknowledged data exists, also after a restart of agq.
    fn check_end(&mut self) -> CheckResult {
        self.check_store()?;
        self.check_actions()?;
        self.write_all()?;
        self.check_schedules()?;
        if self.operations.is_some() {
            self.request_all()?;
            return if self.ledger.forgets { self.prune_ojs_jobs() } else { Ok(()) };
        }
        self.end_process();
        self.start()?;
        self.check_store()?;
        self.check_quiet()
    }

    /// Checks that a schedule of every minute waits a minute at most, wherever the clock has been.
    fn check_schedules(&mut self) -> CheckResult {
        for _round in 0..5 {
            self.pass(700)?;
            self.write_all()?;
        }
        let now = self.time.wall();
        let Some(process) = &self.process else { return Ok(()) };
        for (name, note) in super::process::now(process.store.documents(DocumentKind::Cron))? {
            let schedule: Schedule = serde_json::from_str(&note).map_err(|error| error.to_string())?;
            if let Some(next) = schedule.next_run_at.filter(|next| next.ms_since(now) > 60_000) {
                return Err(format!(
                    "the schedule {name} of every minute waits until {next}, and it is {now}"
                ));
            }
        }
        Ok(())
    }

    fn request_all(&mut self) -> CheckResult {
        let jobs: Vec<String> = self.all_jobs()?.iter().map(|job| job.job_id.to_string()).collect();
        let actions: Vec<String> = self.ledger.actions.keys().cloned().collect();
        let plans: Vec<String> = self.ledger.plans.iter().cloned().collect();
        for (word, ids) in
            [("JOB.STATUS", &jobs), ("ACTION.STATUS", &actions), ("JOB.LIST", &actions), ("PLAN.GET", &plans)]
        {
            for id in ids {
                self.order(&[word, id])?;
            }
        }
        for words in
            [&["PLAN.LIST"][..], &["ACTION.LIST"], &["QUEUE.STATS"], &["WORKER.LIST"], &["KEYS", "*"]]
        {
            self.order(words)?;
        }
        Ok(())
    }
}
