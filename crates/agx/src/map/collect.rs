//! Brings results as their jobs end, until all have.

use std::collections::{BTreeSet, HashSet};

use agenix_protocol::{
    documents::{ActionStatus, JobStatus, Status},
    ids::{ActionId, JobId},
};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use super::{deliver::Delivery, feed::Input, halt::Halt};
use crate::{
    failure::Failure,
    patient::Patient,
    progress::{FIRST_LOOK, Line, next_look, not_found},
};

/// How many jobs are asked for at least and at most in one go.
const FEWEST_AT_ONCE: usize = 64;
const MOST_AT_ONCE: usize = 1024;

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Collected {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    /// `--halt` has ended it early.
    pub(crate) is_halted: bool,
}

impl Collected {
    fn taken(&self) -> u64 {
        self.completed + self.failed + self.cancelled
    }
}

/// What is asked for, and how far it is.
struct Collector<'c> {
    agq: &'c mut Patient,
    action_id: &'c ActionId,
    /// The jobs in the order of their inputs, and those inputs.
    jobs: Vec<JobId>,
    inputs: Vec<Input>,
    sent: mpsc::UnboundedReceiver<Input>,
    /// Jobs whose result was not taken yet, by their place.
    left: BTreeSet<usize>,
    /// Results are wanted in the order of the inputs.
    is_ordered: bool,
    collected: Collected,
}

/// Takes the results of an action that agq has, until its last job has ended. With `halt`, `stop` becomes true when it is time.
pub(crate) async fn collect(
    agq: &mut Patient,
    action_id: &ActionId,
    sent: mpsc::UnboundedReceiver<Input>,
    (is_ordered, halt): (bool, Option<Halt>),
    stop: &watch::Sender<bool>,
    (delivery, line): (&mut Delivery, &mut Line),
) -> Result<Collected, Failure> {
    let (jobs, inputs, left) = (Vec::new(), Vec::new(), BTreeSet::new());
    let collected = Collected::default();
    let mut own = Collector { agq, action_id, jobs, inputs, sent, left, is_ordered, collected };
    let mut look = FIRST_LOOK;
    loop {
        let status = own.agq.action(action_id).await?.ok_or_else(|| not_found(action_id))?;
        line.show(&status);
        own.learn(&status).await?;
        let before = own.collected.taken();
        own.take(&status, delivery, line).await?;
        let Collected { completed, failed, .. } = own.collected;
        own.collected.is_halted |= halt.is_some_and(|halt| halt.is_due(completed, failed, status.total_jobs));
        if let Some(halt) = halt.filter(|_| own.collected.is_halted) {
            stop.send_replace(true);
            own.halt(halt, &status).await?;
        }
        if !status.open && own.left.is_empty() && own.jobs.len() as u64 == status.total_jobs {
            line.finish(&status);
            return Ok(own.collected);
        }
        line.explain_if_stuck(own.agq, &status).await;
        let taken = own.collected.taken() - before;
        look = next_look(look, taken, own.left.len() as u64);
        sleep(look).await;
    }
}

impl Collector<'_> {
    /// Learns of the jobs that are new.
    async fn learn(&mut self, status: &ActionStatus) -> Result<(), Failure> {
        while (self.jobs.len() as u64) < status.total_jobs {
            let more = self.agq.jobs_from(self.action_id, self.jobs.len()).await?;
            if more.is_empty() {
                break;
            }
            self.left.extend(self.jobs.len()..self.jobs.len() + more.len());
            self.jobs.extend(more);
        }
        while let Ok(input) = self.sent.try_recv() {
            self.inputs.push(input);
        }
        Ok(())
    }

    /// Takes the results that are there.
    async fn take(
        &mut self,
        status: &ActionStatus,
        delivery: &mut Delivery,
        line: &Line,
    ) -> Result<(), Failure> {
        while status.ended() > self.collected.taken() {
            let running = usize::try_from(status.running).unwrap_or(MOST_AT_ONCE);
            let width = (running * 2).clamp(FEWEST_AT_ONCE, MOST_AT_ONCE);
            let window: Vec<usize> = self.left.iter().copied().take(width).collect();
            let mut taken = self.take_of(&window, delivery, line).await?;
            if taken == 0 && !self.is_ordered {
                let ended = self.ended(status).await?;
                for window in ended.chunks(MOST_AT_ONCE) {
                    taken += self.take_of(window, delivery, line).await?;
                }
            }
            if taken == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Takes those of the jobs that have ended; how many they were.
    async fn take_of(
        &mut self,
        window: &[usize],
        delivery: &mut Delivery,
        line: &Line,
    ) -> Result<usize, Failure> {
        let ids: Vec<JobId> = window.iter().map(|&at| self.jobs[at].clone()).collect();
        let mut taken = 0;
        for (&at, job) in window.iter().zip(self.agq.jobs(&ids).await?) {
            let ended = job.filter(|job| job.status.is_ended());
            match (ended, self.inputs.get(at)) {
                (Some(job), Some(input)) => {
                    let went_well = delivery.deliver(&job, input, line)?;
                    self.count(&job, went_well);
                    self.left.remove(&at);
                    taken += 1;
                }
                _ if self.is_ordered => break,
                _ => {}
            }
        }
        Ok(taken)
    }

    fn count(&mut self, job: &JobStatus, went_well: bool) {
        let of = &mut self.collected;
        match job.status {
            Status::Cancelled => of.cancelled += 1,
            _ if went_well => of.completed += 1,
            _ => of.failed += 1,
        }
    }

    /// The places of all that have ended and were not taken: for where those in front take their time.
    async fn ended(&mut self, status: &ActionStatus) -> Result<Vec<usize>, Failure> {
        let mut ended: HashSet<JobId> = HashSet::new();
        for of in [Status::Completed, Status::Failed, Status::Dead, Status::Cancelled] {
            ended.extend(self.agq.jobs_of(status, of).await?);
        }
        Ok(self.left.iter().copied().filter(|&at| ended.contains(&self.jobs[at])).collect())
    }

    /// Cancels what shall not run any more.
    async fn halt(&mut self, halt: Halt, status: &ActionStatus) -> Result<(), Failure> {
        if halt.is_now {
            self.agq.cancel_action(self.action_id).await?;
            return Ok(());
        }
        for job_id in self.agq.jobs_of(status, Status::Pending).await? {
            self.agq.cancel_job(&job_id).await?;
        }
        Ok(())
    }
}
