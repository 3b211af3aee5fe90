//! Progress line of an action: updated in place on a terminal, otherwise printed at intervals.

use std::time::Duration;

use agenix_protocol::{documents::ActionStatus, ids::ActionId};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{Instant, sleep};

use crate::{
    error::{CliError, Result},
    output::OutputFormat,
    remote::retrying_client::RetryingClient,
    util::{printable::one_line, signals::interrupted},
    watch::{failures::FailureNotices, idle_reason},
};

pub(crate) const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(5);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Interval of lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
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
    /// False if the key may not see the workers and the queues.
    sees_workers: bool,
    /// Maximum number of jobs at once, if known. agq also counts prefetched jobs as running.
    slots: Option<u64>,
}

impl ProgressLine {
    pub(crate) fn new(output: OutputFormat) -> Self {
        let style = ProgressStyle::with_template("{bar:24} {msg}").expect("the template is well formed");
        let bar = (OutputFormat::is_stderr_a_terminal() && !output.is_json)
            .then(|| ProgressBar::new(0).with_style(style))
            // A bar on a terminal without cursor movements would hide all that agx says.
            .filter(|bar| !bar.is_hidden());
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
            sees_workers: true,
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
            let why = idle_reason::explain(agq, status, &mut self.sees_workers).await;
            self.explain(why);
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

    use agenix_protocol::documents::{ActionStatus, parse};

    use super::{ProgressLine, next_poll_interval};
    use crate::output::OutputFormat;

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
    fn polls_follow_the_rate_and_back_off_without_progress() {
        let ms = Duration::from_millis;
        assert_eq!(next_poll_interval(ms(20), 0, 100), ms(40));
        assert_eq!(next_poll_interval(ms(200), 0, 100), ms(250));
        assert_eq!(next_poll_interval(ms(250), 250, 10_000), ms(250));
        assert_eq!(next_poll_interval(ms(50), 100, 200), ms(100));
        assert_eq!(next_poll_interval(ms(250), 250, 10), ms(5));
    }
}
