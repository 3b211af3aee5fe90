//! Progress line of an action: updated in place on a terminal, otherwise printed at intervals.

use std::time::Duration;

use agenix_client::Connection;
use agenix_protocol::{
    documents::{ActionStatus, Demand, JobStatus, QueueStats, StartRate, Status, WaitsFor, WorkerStatus},
    ids::ActionId,
};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{Instant, sleep};

use crate::{
    error::{CliError, Result},
    output::{OutputFormat, jobs},
    remote::retrying_client::RetryingClient,
    util::{printable::one_line, signals::interrupted},
    watch::{failures::FailureNotices, unmet_needs},
};

pub(crate) const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(5);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Interval of lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Maximum number of waiting jobs that agx asks about to explain why no job runs.
const MAX_EXPLAINED: usize = 64;
/// Exit code of a task that asks for another try later (EX_TEMPFAIL of sysexits.h).
pub(crate) const TRY_LATER: i32 = 75;
/// Time without a running job after which agx explains the reason.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// Watches an action until it has ended or the user interrupts.
pub(crate) async fn watch(
    agq: &mut RetryingClient,
    id: &ActionId,
    output: OutputFormat,
) -> Result<ActionStatus> {
    let mut line = ProgressLine::new(output);
    let watched = tokio::select! {
        watched = follow(agq, id, &mut line) => watched,
        () = interrupted() => Err(CliError::Detached(id.clone())),
    };
    if watched.is_err() {
        line.clear();
    }
    watched
}

async fn follow(agq: &mut RetryingClient, id: &ActionId, line: &mut ProgressLine) -> Result<ActionStatus> {
    let (mut interval, mut ended, mut failures) = (FIRST_POLL_INTERVAL, None, FailureNotices::default());
    loop {
        let status = agq.action(id).await?.ok_or_else(|| not_found(id))?;
        line.show(&status);
        if !line.is_quiet {
            for notice in failures.new_failures(agq, &status).await? {
                line.aside(|| line.output.notes(&notice));
            }
        }
        if status.ended() == status.total_jobs && !status.open {
            line.finish(&status);
            return Ok(status);
        }
        line.explain_if_stuck(agq, &status).await;
        if let Some(before) = ended {
            let left = status.total_jobs.saturating_sub(status.ended());
            interval = next_poll_interval(interval, status.ended().saturating_sub(before), left);
        }
        sleep(interval).await;
        ended = Some(status.ended());
    }
}

/// Returns the time until the next poll: the estimated time for the `left` jobs at the present
/// rate, or, without progress, a growing pause.
pub(crate) fn next_poll_interval(last: Duration, ended_since: u64, left: u64) -> Duration {
    let Some(left) = left.checked_div(ended_since) else { return (last * 2).min(MAX_POLL_INTERVAL) };
    let left = u32::try_from(left).unwrap_or(u32::MAX);
    last.saturating_mul(left).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

pub(crate) fn not_found(action_id: &ActionId) -> CliError {
    CliError::not_found("action", action_id, "see the actions with `agx history`")
}

/// Explains why the jobs of an action do not run. `needs` are the needs of the first waiting job,
/// because the needs of other jobs in its queue do not matter.
fn why_stuck(
    stats: &QueueStats,
    workers: &[WorkerStatus],
    queue: &str,
    needs: Option<&WaitsFor>,
) -> Option<String> {
    if stats.workers.active == 0 {
        return Some("there is no worker: start one with `agw`, or on this machine with `agx up`".into());
    }
    let own = stats.ready_of(queue)?;
    if own.paused {
        return Some(format!("the queue {queue} is paused; `agx queue resume {queue}` resumes it"));
    }
    let is_own = |demand: &&Demand| {
        needs.is_some_and(|needs| {
            (&demand.tools, &demand.tags, &demand.labels, &demand.sandbox, &demand.resources)
                == (&needs.tools, &needs.tags, &needs.labels, &needs.sandbox, &needs.resources)
        })
    };
    let unmet = own.needs.iter().filter(is_own).find(|demand| demand.workers == 0)?;
    Some(unmet_needs::describe(unmet, workers))
}

/// Explains, if possible, why no job of an action runs.
async fn explain_job(agq: &mut RetryingClient, action: &ActionStatus) -> Option<String> {
    let (action_id, most) = (&action.action_id, MAX_EXPLAINED);
    let stats = agq.with_retry(async |agq| agq.queue_stats().await).await.ok()?;
    let workers = agq.with_retry(async |agq| agq.workers().await).await.ok()?;
    let pending = async |agq: &mut Connection| agq.first_jobs(action_id, Status::Pending, most).await;
    let waiting = agq.with_retry(pending).await.ok()?;
    let first = match waiting.first() {
        Some(job_id) => Some(agq.with_retry(async |agq| agq.explain_job(job_id).await).await.ok()?),
        None => None,
    };
    let needs = first.as_ref().and_then(|first| first.waits_for.as_ref());
    if let Some(why) = why_stuck(&stats, &workers, &action.queue, needs) {
        return Some(why);
    }
    let waiting: Vec<JobStatus> = agq.jobs(&waiting).await.ok()?.into_iter().flatten().collect();
    why_later(&waiting).or_else(|| why_ready(&first?.reason, &action.queue, action.rate))
}

/// Returns what agq explains about a ready job, if waiting alone will not help or takes long. Jobs
/// with a rate start a moment after the rate permits them, and lack no worker then.
fn why_ready(reason: &str, queue: &str, rate: Option<StartRate>) -> Option<String> {
    if let Some(rate) = rate {
        let is_limited = reason.starts_with("Its limit");
        return is_limited.then(|| format!("agx: nothing runs: the rate of this action is {rate}. {reason}"));
    }
    if ["It waits because", "Its limit 'plan:"].iter().any(|shared| reason.starts_with(shared)) {
        return Some(format!("agx: no job of this action runs. The first one: {reason}"));
    }
    if reason.contains("a worker must ask for jobs") {
        return Some(format!(
            "agx: nothing runs: no worker asks for jobs of the queue '{queue}'; start one with `agw --queues {queue}`"
        ));
    }
    let has_no_worker = ["No worker", "There is no worker"].iter().any(|no| reason.starts_with(no));
    (has_no_worker || reason.contains("for a larger job"))
        .then(|| format!("agx: nothing runs in the queue '{queue}'. {reason}"))
}

/// Returns the time until which all `waiting` jobs wait.
fn why_later(waiting: &[JobStatus]) -> Option<String> {
    let first = waiting.iter().min_by_key(|job| job.run_at)?;
    let (run_at, jobs) = (first.run_at?, jobs(waiting.len() as u64));
    let more = if waiting.len() == MAX_EXPLAINED { " or more" } else { "" };
    let why = match (first.state.as_str(), first.exit_code) {
        ("scheduled", Some(code @ TRY_LATER)) => {
            format!("input {} exited with code {code}, which asks for a later retry", first.index)
        }
        ("retryable", _) => format!("input {} failed and will be retried", first.index),
        _ => format!("input {} is not to run before", first.index),
    };
    Some(format!("agx: nothing runs: {jobs}{more} of this action wait for a time. {why}: at {run_at}"))
}

pub(crate) struct ProgressLine {
    bar: Option<ProgressBar>,
    output: OutputFormat,
    started: Instant,
    /// Jobs that had ended before the watch began, which do not count for the rate.
    ended_before: Option<u64>,
    last_line: Instant,
    /// True if agx prints no progress, because there is no terminal.
    is_quiet: bool,
    idle_since: Option<Instant>,
    explained: Option<String>,
    /// Maximum number of jobs at once, if known. agq also counts prefetched jobs as running.
    slots: Option<u64>,
}

impl ProgressLine {
    pub(crate) fn new(output: OutputFormat) -> Self {
        let style = ProgressStyle::with_template("{bar:24} {msg}").expect("the template is well formed");
        let bar = (OutputFormat::is_stderr_a_terminal() && !output.is_json)
            .then(|| ProgressBar::new(0).with_style(style));
        let now = Instant::now();
        Self {
            bar,
            output,
            started: now,
            ended_before: None,
            last_line: now,
            is_quiet: output.is_json,
            idle_since: None,
            explained: None,
            slots: None,
        }
    }

    /// Creates a line for a filter, hidden without a terminal, with the `slots` if known.
    pub(crate) fn for_a_filter(output: OutputFormat, slots: Option<u64>) -> Self {
        Self { is_quiet: true, slots, ..Self::new(output) }
    }

    /// Creates a line that is never shown.
    pub(crate) fn hidden(output: OutputFormat) -> Self {
        Self { bar: None, is_quiet: true, ..Self::new(output) }
    }

    fn text(&mut self, status: &ActionStatus) -> String {
        let before = *self.ended_before.get_or_insert(status.ended());
        let seconds = self.started.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = status.ended().saturating_sub(before) as f64 / seconds.max(0.001);
        let left = status.total_jobs.saturating_sub(status.ended());
        #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
        let eta =
            if left > 0 && rate > 0.0 { format!(", ETA {:.0} s", left as f64 / rate) } else { String::new() };
        let (done, total, failed) = (status.completed, status.total_jobs, status.unsuccessful());
        let running = match self.slots {
            Some(slots) => format!("{} running", slots.min(status.running)),
            // Workers claim jobs ahead, so that most claimed jobs may only wait in another place.
            None => match status.running.saturating_sub(status.started) {
                0 => format!("{} running", status.started),
                claimed => format!("{} running, {claimed} claimed", status.started),
            },
        };
        format!("{done}/{total} done, {failed} failed, {running}, {rate:.0} jobs/s{eta}")
    }

    /// Shows the present state of the action.
    pub(crate) fn show(&mut self, status: &ActionStatus) {
        let text = self.text(status);
        if let Some(bar) = &self.bar {
            bar.set_length(status.total_jobs);
            bar.set_position(status.ended());
            bar.set_message(text);
        } else if !self.is_quiet && self.last_line.elapsed() > LINE_EVERY {
            self.last_line = Instant::now();
            self.output.note(&text);
        }
    }

    /// Hides the line during `write`.
    pub(crate) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Explains why no job has run for a while.
    pub(crate) async fn explain_if_stuck(&mut self, agq: &mut RetryingClient, status: &ActionStatus) {
        if status.running > 0 || status.ended() == status.total_jobs {
            self.idle_since = None;
        } else if self.idle_since.get_or_insert_with(Instant::now).elapsed() > STUCK_AFTER {
            self.explain(explain_job(agq, status).await);
        }
    }

    fn explain(&mut self, why: Option<String>) {
        if why.is_none() || why == self.explained {
            return;
        }
        if let Some(why) = &why {
            match &self.bar {
                Some(bar) => bar.println(one_line(why)),
                None => self.output.note(why),
            }
        }
        self.explained = why;
    }

    /// Hides the line.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Prints the line for the last time.
    pub(crate) fn finish(&mut self, status: &ActionStatus) {
        let text = self.text(status);
        self.clear();
        if self.bar.is_some() || !self.is_quiet {
            self.output.note(&format!("{text}, {:.1} s", self.started.elapsed().as_secs_f64()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agenix_protocol::documents::{ActionStatus, JobStatus, QueueStats, WaitsFor, parse};

    use super::{ProgressLine, next_poll_interval, why_later, why_ready, why_stuck};
    use crate::output::OutputFormat;

    fn waiting(index: u64, state: &str, run_at: Option<&str>, exit_code: Option<i32>) -> JobStatus {
        let json = serde_json::json!({
            "job_id": "j", "action_id": "a", "plan_id": "p", "status": "pending", "state": state, "index": index,
            "attempt": 1, "queue": "ready", "priority": 0, "created_at": "2026-01-31T08:00:00.000Z",
            "run_at": run_at, "started_at": null, "completed_at": null, "worker_id": "w", "inputs": {},
            "exit_code": exit_code, "task_results": null,
        });
        parse(json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn progress_names_the_time_if_all_jobs_wait_for_one() {
        let (soon, later) = (Some("2026-01-31T08:00:30.000Z"), Some("2026-01-31T08:01:00.000Z"));
        let snoozed = [waiting(0, "scheduled", later, Some(75)), waiting(1, "scheduled", soon, Some(75))];
        let text = why_later(&snoozed).unwrap();
        assert!(text.contains("2 jobs") && text.contains("input 1 exited with code 75"), "{text}");
        assert!(text.ends_with("at 2026-01-31T08:00:30.000Z"), "{text}");
        let text = why_later(&[waiting(4, "retryable", soon, Some(1))]).unwrap();
        assert!(text.contains("input 4 failed and will be retried"), "{text}");
        assert_eq!(why_later(&[waiting(0, "available", None, None), snoozed[0].clone()]), None);
        assert_eq!(why_later(&[]), None);
    }

    #[test]
    fn progress_names_a_queue_without_workers() {
        let ready =
            "It is ready; 7 jobs like it are before it, and a worker must ask for jobs of the queue 'q'.";
        assert!(why_ready(ready, "q", None).unwrap().contains("`agw --queues q`"));
        let held_back = "It is ready; 0 jobs like it are before it; a worker keeps what is free for a larger job, or no worker asks for jobs of the queue 'q'.";
        assert!(why_ready(held_back, "q", None).unwrap().ends_with(held_back));
        let of_key = "It waits because 1 of at most 1 jobs with the concurrency key 'u' are running.";
        assert!(why_ready(of_key, "q", None).unwrap().ends_with(of_key));
        assert!(why_ready("Its limit 'plan:p' permits the next start in 9 s.", "q", None).is_some());
        assert!(
            why_ready("No worker that could run it accepts jobs now; w comes closest.", "q", None).is_some()
        );
        assert_eq!(
            why_ready("Every worker that could run it is busy; 3 jobs like it are before it.", "q", None),
            None
        );
    }

    #[test]
    fn progress_names_the_rate_that_delays_jobs() {
        let (rate, ready) =
            ("3/d".parse().ok(), "It is ready, and a worker must ask for jobs of the queue 'q'.");
        assert_eq!(why_ready(ready, "q", rate), None, "its worker gets it in a moment");
        let limited = why_ready("Its limit 'action:a' permits the next start in 9 s.", "q", rate);
        assert!(limited.unwrap().starts_with("agx: nothing runs: the rate of this action is 3/d. Its limit"));
    }

    #[test]
    fn progress_shows_at_most_as_many_running_jobs_as_slots() {
        let json = serde_json::json!({
            "action_id": "a", "plan_id": "p", "total_jobs": 9, "pending": 0, "running": 9, "completed": 0, "failed": 0,
            "dead": 0, "cancelled": 0, "queue": "ready", "priority": 0, "open": false,
            "created_at": "2026-01-31T08:00:00.000Z", "completed_jobs_at": null,
        });
        let status: ActionStatus = parse(json.to_string().as_bytes()).unwrap();
        let shown = |slots, started| {
            let status = ActionStatus { started, ..status.clone() };
            ProgressLine::for_a_filter(OutputFormat { is_json: true, ..OutputFormat::default() }, slots)
                .text(&status)
        };
        assert!(shown(Some(2), 0).contains(" 2 running, "), "it is known how many run at once");
        assert!(shown(None, 4).contains(" 4 running, 5 claimed, "), "{}", shown(None, 4));
        assert!(shown(None, 9).contains(" 9 running, 0 jobs/s"), "{}", shown(None, 9));
    }

    #[test]
    fn progress_ignores_unmet_needs_of_other_actions() {
        let stats: QueueStats = parse(
            br#"{"queue:ready":{"length":2,"oldest_job_age_seconds":0,"newest_job_age_seconds":0,"paused":false,
                "needs":[{"tools":["jq"],"length":1,"workers":0},{"tools":["sort"],"length":1,"workers":1},
                         {"tools":["sort"],"resources":{"cpus":64},"length":1,"workers":0}]},
                "queue:scheduled":{"length":0,"next_job_due_in_seconds":null},"workers":{"total":1,"active":1,"idle":0}}"#,
        )
        .unwrap();
        let needs = |tool: &str| {
            let json = format!(
                r#"{{"queue":"ready","priority":0,"tools":["{tool}"],"tags":[],"labels":{{}},"due_at":null,"paused":false}}"#
            );
            parse::<WaitsFor>(json.as_bytes()).unwrap()
        };
        assert_eq!(why_stuck(&stats, &[], "ready", Some(&needs("sort"))), None);
        assert!(why_stuck(&stats, &[], "ready", Some(&needs("jq"))).is_some());
        let large = WaitsFor { resources: parse(br#"{"cpus":64}"#).unwrap(), ..needs("sort") };
        assert!(why_stuck(&stats, &[], "ready", Some(&large)).unwrap().contains("cpus 64"));
        assert_eq!(why_stuck(&stats, &[], "ready", None), None, "none of its jobs waits");
    }

    #[test]
    fn polls_follow_the_rate_and_back_off_without_progress() {
        let ms = Duration::from_millis;
        assert_eq!(next_poll_interval(ms(20), 0, 100), ms(40));
        assert_eq!(next_poll_interval(ms(200), 0, 100), ms(250));
        assert_eq!(next_poll_interval(ms(250), 250, 10_000), ms(250));
        assert_eq!(next_poll_interval(ms(50), 100, 200), ms(100));
        assert_eq!(next_poll_interval(ms(250), 250, 10), ms(5));
    }
}
