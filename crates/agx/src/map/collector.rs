//! Takes results as their jobs end, until all jobs have ended or the map ends early.

mod early_end;
mod state;

use std::{collections::HashMap, time::Duration};

use agenix_protocol::{
    documents::{ActionStatus, Halt, JobStatus, Status},
    ids::{ActionId, JobId},
};
use agenix_rules::action::halt::is_met;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep},
};

use self::state::PendingJob;
pub(crate) use self::state::{CollectorState, MapCounts};
use crate::{
    error::Result,
    map::{
        delivery::Delivery, live::LiveJobs, read_ahead::ReadAhead, reorder_buffer::MAX_BYTES,
        stop_level::StopLevel, submitter::SubmittedInput,
    },
    remote::retrying_client::RetryingClient,
    watch::progress::{FIRST_POLL_INTERVAL, ProgressLine, next_poll_interval},
};

/// Minimum and maximum number of jobs per request.
const MIN_AT_ONCE: usize = 64;
const MAX_AT_ONCE: usize = 1024;
/// Number of jobs whose output is followed at least, because failed ones wait for their retries.
const MIN_FOLLOWED: usize = 16;
/// Maximum bytes of results that agx asks for together, estimated from earlier results, and the
/// number of jobs that agx asks for even if their results are larger.
const MAX_BYTES_AT_ONCE: usize = 32 * 1024 * 1024;
const MIN_OF_LARGE: usize = 4;
/// Maximum interval of polls while the map may end at any moment, or prints live output.
const SHORT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Takes the results of one action and delivers them.
pub(crate) struct Collector<'c> {
    pub(crate) agq: &'c mut RetryingClient,
    pub(crate) action_id: &'c ActionId,
    pub(crate) begun: oneshot::Receiver<()>,
    pub(crate) sent: mpsc::UnboundedReceiver<SubmittedInput>,
    pub(crate) ahead: ReadAhead,
    /// Number of results that agx takes while an output waits at agq. Then agx takes this output,
    /// too, because agq could remove its job.
    pub(crate) most_waited: u64,
    pub(crate) halt: Option<Halt>,
    pub(crate) stop_level: watch::Sender<StopLevel>,
    pub(crate) delivery: Delivery,
    /// `None` if output is printed when its job ends.
    pub(crate) live: Option<LiveJobs>,
    pub(crate) line: &'c mut ProgressLine,
    pub(crate) state: CollectorState,
}

impl Collector<'_> {
    /// Takes the results of an action until its last job has ended or the map ends early.
    pub(crate) async fn run(mut self) -> Result<(MapCounts, Delivery)> {
        let collected = self.collect_all().await;
        // The jobs of waiting outputs have ended, so agx prints and logs them after a failure, too.
        let finished = self.delivery.printer.finish(self.line);
        let finished = finished.and(self.live.as_mut().map_or(Ok(()), LiveJobs::end));
        collected.and(finished)?;
        Ok((self.state.collected, self.delivery))
    }

    async fn collect_all(&mut self) -> Result<()> {
        self.state.collected.has_begun = self.wait_until_begun().await?;
        if self.state.collected.has_begun { self.collect().await } else { Ok(()) }
    }

    /// Waits until agq has the action. Returns false if agq never gets an action, as without
    /// inputs.
    async fn wait_until_begun(&mut self) -> Result<bool> {
        loop {
            tokio::select! {
                begun = &mut self.begun => {
                    self.handle_sent()?;
                    return Ok(begun.is_ok());
                }
                Some(sent) = self.sent.recv() => self.note(sent),
            }
            self.halt_if_met(0);
        }
    }

    async fn collect(&mut self) -> Result<()> {
        let (mut interval, mut stop_levels) = (FIRST_POLL_INTERVAL, self.stop_level.subscribe());
        loop {
            let (begun, before) = (Instant::now(), self.state.collected.taken());
            let stop_level = *stop_levels.borrow_and_update();
            let Some(status) = self.agq.action(self.action_id).await? else {
                // agq has removed the ended action with all of its jobs.
                self.handle_sent()?;
                return self.lose_all();
            };
            self.line.show(&status);
            self.ahead.running(status.running);
            if status.halted.is_some() {
                // agq has withdrawn the jobs, and cancels the started ones if the policy demands
                // that.
                self.state.collected.is_halted = true;
                self.request(StopLevel::StartNone);
            }
            self.fetch_ids().await?;
            self.take(&status).await?;
            self.follow(&status).await?;
            self.ahead.hold(self.delivery.printer.is_full() || self.state.waiting.bytes > MAX_BYTES);
            self.halt_if_met(status.total_jobs);
            if self.delivery.printer.is_broken() {
                self.request(StopLevel::End);
            }
            match stop_level {
                StopLevel::Leave => return Ok(()),
                StopLevel::All => {}
                StopLevel::EndWithServer if self.end_with_server(&status).await? => return Ok(()),
                StopLevel::EndWithServer => {}
                _ => self.end_early(&status, stop_level).await?,
            }
            if self.state.is_all_sent && self.state.left.is_empty() {
                self.line.finish(&status);
                return Ok(());
            }
            self.line.explain_if_stuck(self.agq, &status).await;
            let taken = self.state.collected.taken() - before;
            interval = next_poll_interval(interval, taken, self.state.left.len() as u64);
            if stop_level != StopLevel::All || self.halt.is_some() || self.live.is_some() {
                interval = interval.min(SHORT_POLL_INTERVAL);
            }
            // Polls of many running jobs take long, and are repeated less often.
            let pause = match self.live {
                Some(_) => interval.max(begun.elapsed()),
                // Jobs may have ended while large outputs were printed.
                None if taken > 0 => interval.saturating_sub(begun.elapsed()),
                None => interval,
            };
            tokio::select! {
                () = sleep(pause) => {}
                _ = stop_levels.changed() => {}
            }
        }
    }

    /// Lowers the stop level to `less`, unless it is lower already.
    fn request(&self, less: StopLevel) {
        self.stop_level.send_if_modified(|stop_level| {
            let is_less = less > *stop_level;
            *stop_level = (*stop_level).max(less);
            is_less
        });
    }

    /// Ends the map if the results meet the halt policy: agq does not know of all failures.
    fn halt_if_met(&mut self, total: u64) {
        let MapCounts { completed, failed, lost, unfit, is_halted, .. } = self.state.collected;
        let met = |halt: &Halt| is_met(*halt, completed, failed + lost + unfit, total + unfit);
        let Some(halt) = self.halt.filter(|halt| !is_halted && met(halt)) else { return };
        self.state.collected.is_halted = true;
        self.request(if halt.is_now { StopLevel::End } else { StopLevel::StartNone });
    }

    /// Receives the messages about sent inputs.
    fn handle_sent(&mut self) -> Result<()> {
        loop {
            match self.sent.try_recv() {
                Ok(sent) => self.note(sent),
                Err(mpsc::error::TryRecvError::Empty) => return Ok(()),
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    self.state.is_all_sent = true;
                    return Ok(());
                }
            }
        }
    }

    fn note(&mut self, sent: SubmittedInput) {
        match sent {
            SubmittedInput::Job(input, bytes) => {
                self.state
                    .left
                    .insert(self.state.known, PendingJob { job_id: None, input, bytes, waiting: None });
                self.state.known += 1;
            }
            SubmittedInput::Unfit(unfit) => {
                self.state.collected.unfit += 1;
                self.ahead.taken(1, 0);
                self.delivery.unfit(&unfit, self.line);
            }
        }
    }

    /// Fetches the ids of the new jobs.
    async fn fetch_ids(&mut self) -> Result<()> {
        self.handle_sent()?;
        while self.state.learned < self.state.known {
            let (from, most) = (self.state.learned, self.state.known - self.state.learned);
            let most = usize::try_from(most).unwrap_or(usize::MAX).min(MAX_AT_ONCE);
            let place = usize::try_from(from).unwrap_or(usize::MAX);
            let ids =
                self.agq.with_retry(async |agq| agq.jobs_from(self.action_id, place, most).await).await?;
            let mut known: HashMap<u64, JobId> = HashMap::new();
            if ids.len() == most {
                known.extend((from..).zip(ids));
            } else {
                // agq has removed jobs, so the index of each other one comes from its status.
                let jobs = self.agq.jobs(&ids).await?;
                known.extend(jobs.into_iter().flatten().map(|job| (job.index, job.job_id)));
            }
            for at in from..from + most as u64 {
                match known.remove(&at) {
                    Some(job_id) => {
                        if let Some(left) = self.state.left.get_mut(&at) {
                            left.job_id = Some(job_id);
                        }
                    }
                    None => self.lose(at)?,
                }
            }
            self.state.learned += most as u64;
        }
        Ok(())
    }

    /// Takes the results of ended jobs by input, because jobs end in about this order.
    async fn take(&mut self, status: &ActionStatus) -> Result<()> {
        // Once every job has ended, all are asked for: counts differ if a job was lost.
        let are_all_ended = status.pending + status.running == 0;
        let mut from = 0;
        self.take_waiting().await?;
        while are_all_ended || status.ended() > self.state.collected.taken() + self.state.waiting.jobs {
            let width = width(status.running, self.state.result_bytes);
            let asked = self.state.left.range(from..).filter(|(_, left)| left.waiting.is_none()).take(width);
            let asked: Vec<(u64, JobId)> =
                asked.filter_map(|(&at, left)| Some((at, left.job_id.clone()?))).collect();
            let Some((last, _)) = asked.last() else { break };
            from = last + 1;
            self.take_of(&asked).await?;
            self.take_waiting().await?;
        }
        Ok(())
    }

    /// Takes the outputs that have waited at agq, and whose turn has come or that have waited long.
    async fn take_waiting(&mut self) -> Result<()> {
        if !self.delivery.printer.is_full() {
            for long in self.state.waiting_long(self.most_waited).chunks(MIN_AT_ONCE) {
                self.take_of(long).await?;
            }
        }
        while let Some(mut first) = self.state.left.first_entry()
            && first.get().waiting.is_some()
            && self.delivery.printer.is_turn_of(*first.key())
        {
            let (at, job_id) = (*first.key(), first.get().job_id.clone());
            self.state.waiting.remove(first.get_mut());
            self.take_of(&job_id.map(|job_id| (at, job_id)).into_iter().collect::<Vec<_>>()).await?;
        }
        Ok(())
    }

    /// Prints new output of running jobs, and of jobs that wait for a retry. Such jobs are among
    /// the first that have not ended.
    async fn follow(&mut self, status: &ActionStatus) -> Result<()> {
        if self.live.is_none() || status.running + status.pending == 0 {
            return Ok(());
        }
        let running = usize::try_from(status.running).unwrap_or(MAX_AT_ONCE);
        let asked = self.state.left.iter().take(running.saturating_mul(2).clamp(MIN_FOLLOWED, MAX_AT_ONCE));
        let asked: Vec<(u64, JobId)> =
            asked.filter_map(|(&at, left)| Some((at, left.job_id.clone()?))).collect();
        self.take_of(&asked).await
    }

    /// Takes the results of those jobs among `asked` that have ended, and prints live output.
    async fn take_of(&mut self, asked: &[(u64, JobId)]) -> Result<()> {
        let ids: Vec<JobId> = asked.iter().map(|(_, job_id)| job_id.clone()).collect();
        for (&(at, _), job) in asked.iter().zip(self.agq.jobs(&ids).await?) {
            match job {
                None => self.lose(at)?,
                Some(job) if job.status == Status::Running => {
                    self.print_live(at, &job).await?;
                }
                Some(job) if job.status.is_ended() => {
                    let has_waited = self.state.has_waited_long(at, self.most_waited);
                    match self.delivery.bytes_that_wait(at, &job, has_waited) {
                        Some(bytes) if !self.state.is_drained => self.state.wait(at, bytes),
                        _ => self.deliver(at, &job).await?,
                    }
                }
                // agq removes the results of a failed attempt when the next one begins.
                Some(job) if job.task_results.is_some() => {
                    self.print_live(at, &job).await?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Prints new live output of a job. Returns the reason if the output of an ended job could not
    /// be fetched.
    async fn print_live(&mut self, at: u64, job: &JobStatus) -> Result<Option<String>> {
        match (&mut self.live, self.state.left.get(&at)) {
            (Some(live), Some(left)) => live.print(at, job, &left.input, self.agq).await,
            _ => Ok(None),
        }
    }

    async fn deliver(&mut self, at: u64, job: &JobStatus) -> Result<()> {
        let unread = self.print_live(at, job).await?;
        let Some(mut left) = self.state.left.remove(&at) else { return Ok(()) };
        self.state.waiting.remove(&mut left);
        self.ahead.taken(1, left.bytes);
        let bytes = job.task_results.as_ref().map_or(0, |results| results.get().len());
        self.state.result_bytes = (self.state.result_bytes / 2).max(bytes);
        let went_well = self.delivery.deliver(at, (job, unread), &left.input, self.line, self.agq).await?;
        let of = &mut self.state.collected;
        match job.status {
            Status::Cancelled => of.cancelled += 1,
            _ if went_well => of.completed += 1,
            _ => of.failed += 1,
        }
        Ok(())
    }

    /// Counts a job that agq has removed as lost.
    fn lose(&mut self, at: u64) -> Result<()> {
        let Some(mut left) = self.state.left.remove(&at) else { return Ok(()) };
        self.state.waiting.remove(&mut left);
        self.ahead.taken(1, left.bytes);
        self.state.collected.lost += 1;
        self.delivery.lost(at, &left.input, self.line)
    }

    fn lose_all(&mut self) -> Result<()> {
        let all: Vec<u64> = self.state.left.keys().copied().collect();
        all.into_iter().try_for_each(|at| self.lose(at))
    }
}

/// Returns the number of jobs to ask for together; a result has about `result_bytes` bytes.
fn width(running: u64, result_bytes: usize) -> usize {
    let running = usize::try_from(running).unwrap_or(MAX_AT_ONCE);
    let by_bytes = MAX_BYTES_AT_ONCE / result_bytes.max(1);
    running.saturating_mul(2).clamp(MIN_AT_ONCE, MAX_AT_ONCE).min(by_bytes.max(MIN_OF_LARGE))
}

#[cfg(test)]
mod tests {
    use super::width;

    #[test]
    fn collector_fetches_many_small_or_few_large_results_at_once() {
        assert_eq!([width(0, 0), width(100, 500), width(u64::MAX, 500)], [64, 200, 1024]);
        assert_eq!([width(100, 1024 * 1024), width(100, 100 * 1024 * 1024)], [32, 4]);
    }
}
