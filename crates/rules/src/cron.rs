//! Schedules: submit a job or an action at the times of a cron expression (ojs-cron).

mod field_syntax;
mod request;
mod when;

use agenix_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

pub use request::ScheduleRequest;
pub use when::next;

use crate::{owner::Owner, rejection::Rejection};

/// Maximum milliseconds by which a done run may be in the future after a step of the clock.
const SMALL_STEP_MS: u64 = 60_000;
/// Maximum number of bytes of the name of a schedule.
const MAX_NAME_BYTES: usize = 128;

/// Policy for a run that is due while the previous run has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Skips the run.
    #[default]
    Skip,
    /// Starts the run.
    Allow,
}

/// Stored record of a schedule, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[must_use]
pub struct Schedule {
    /// Name of the schedule.
    pub name: String,
    /// Cron expression of five fields, or a word such as `@daily`.
    pub expression: String,
    /// Time zone of the expression, a name of the IANA database.
    pub timezone: String,
    /// Policy for overlapping runs.
    pub overlap_policy: Overlap,
    /// False if the schedule is paused.
    pub enabled: bool,
    /// Submitted document: a job of the Open Job Spec, or an action if it has a `plan_id`.
    pub template: Box<RawValue>,
    /// Time of the creation.
    pub created_at: Timestamp,
    /// Time of the next run.
    pub next_run_at: Option<Timestamp>,
    /// Time of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at: Option<Timestamp>,
    /// Job or action of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_id: Option<String>,
    /// Id of a run that was decided and may not have been submitted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_id: Option<String>,
    /// Number of runs.
    #[serde(default)]
    pub runs: u64,
    /// Owner of the schedule and of what it submits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

fn invalid(text: impl Into<String>) -> Rejection {
    Rejection::InvalidSchedule(text.into())
}

impl Schedule {
    /// Creates a schedule at `now`. The error names the invalid field.
    pub fn new(mut wanted: ScheduleRequest, now: Timestamp) -> Result<Self, Rejection> {
        check_name(&wanted.name)?;
        let overlap_policy = match wanted.overlap_policy.as_deref() {
            None | Some("skip") => Overlap::Skip,
            Some("allow") => Overlap::Allow,
            Some(other) => return Err(invalid(format!("overlap_policy is '{other}': use skip or allow"))),
        };
        let template = wanted.take_template()?;
        let timezone = wanted.timezone.unwrap_or_else(|| "UTC".into());
        when::check(&wanted.expression)?;
        let next_run_at = next(&wanted.expression, &timezone, now)?;
        Ok(Self {
            name: wanted.name,
            expression: wanted.expression,
            timezone,
            overlap_policy,
            enabled: wanted.enabled.unwrap_or(true),
            template,
            created_at: now,
            next_run_at: Some(next_run_at),
            last_run_at: None,
            last_id: None,
            pending_id: None,
            runs: 0,
            owner: None,
        })
    }

    /// Returns true if a run is due.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.enabled && self.next_run_at.is_some_and(|at| at <= now)
    }

    /// Decides the run `id` at `now`. With `None`, skips the run, because the previous run has not
    /// ended.
    pub fn fired(&self, id: Option<String>, now: Timestamp) -> Self {
        let fired = id.is_some();
        Self {
            next_run_at: next(&self.expression, &self.timezone, now).ok(),
            pending_id: id,
            last_run_at: if fired { Some(now) } else { self.last_run_at },
            runs: self.runs + u64::from(fired),
            ..self.clone()
        }
    }

    /// Returns the schedule with a new next run if the clock was set back and the next run would be
    /// too late. A run that was done within `SMALL_STEP_MS` of the new time is not repeated.
    pub fn rescheduled(&self, now: Timestamp) -> Option<Self> {
        let is_small = |last: &Timestamp| last.ms_since(now) <= SMALL_STEP_MS;
        let from = self.last_run_at.filter(is_small).map_or(now, |last| last.max(now));
        let next = next(&self.expression, &self.timezone, from).ok()?;
        let is_ahead = self.next_run_at.is_some_and(|at| at > next);
        is_ahead.then(|| Self { next_run_at: Some(next), ..self.clone() })
    }

    /// Marks the decided run `run` as submitted, with the id of its job or action. Returns `None`
    /// if the schedule does not wait for this run, because another node has submitted it.
    pub fn submitted(&self, run: &str, id: &str) -> Option<Self> {
        let submitted = || Self { last_id: Some(id.to_owned()), pending_id: None, ..self.clone() };
        (self.pending_id.as_deref() == Some(run)).then(submitted)
    }

    /// Returns the schedule with the history of `known`, the schedule that it replaces. A due run
    /// of the same times stays due, so that a schedule that is stored again loses no run.
    pub fn after(&self, known: Option<&Self>) -> Self {
        let Some(known) = known else { return self.clone() };
        let times = |of: &Self| (of.expression.clone(), of.timezone.clone(), of.enabled);
        let known_next = known.next_run_at.filter(|_| self.enabled && times(self) == times(known));
        Self {
            next_run_at: [self.next_run_at, known_next].into_iter().flatten().min(),
            created_at: known.created_at,
            last_run_at: known.last_run_at,
            last_id: known.last_id.clone(),
            pending_id: known.pending_id.clone(),
            runs: known.runs,
            ..self.clone()
        }
    }

    /// Returns true if the schedule submits an action of a plan instead of a job.
    pub fn is_action(&self) -> bool {
        is_action(&self.template)
    }
}

/// Returns true if a document is an action of a plan instead of a job.
pub fn is_action(document: &RawValue) -> bool {
    serde_json::from_str::<Value>(document.get()).is_ok_and(|document| document.get("plan_id").is_some())
}

/// Checks the name of a schedule or a workflow.
pub fn check_name(name: &str) -> Result<(), Rejection> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(legal) {
        let text = format!("name must have 1 to {MAX_NAME_BYTES} letters, digits, '.', '_', ':' and '-'");
        return Err(invalid(text));
    }
    if name == "." || name == ".." {
        return Err(invalid(format!("name '{name}' means a directory in a path: choose another one")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;

    use super::{Rejection, Schedule, check_name, next};

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn after(expression: &str, zone: &str, now: &str) -> String {
        next(expression, zone, at(now)).unwrap().to_string()
    }

    #[test]
    fn next_run_uses_the_time_zone() {
        assert_eq!(after("* * * * *", "UTC", "2026-11-22T10:00:00Z"), "2026-11-22T10:01:00.000Z");
        assert_eq!(after("0 9 * * *", "Asia/Tokyo", "2026-11-22T10:00:00Z"), "2026-11-23T00:00:00.000Z");
        assert_eq!(
            after("0 9 * * *", "America/New_York", "2026-07-01T00:00:00Z"),
            "2026-07-01T13:00:00.000Z"
        );
        assert_eq!(
            after("0 9 * * *", "America/New_York", "2026-12-01T00:00:00Z"),
            "2026-12-01T14:00:00.000Z"
        );
        assert_eq!(after("@daily", "UTC", "2026-11-22T10:00:00Z"), "2026-11-23T00:00:00.000Z");
        assert_eq!(after("@hourly", "UTC", "2026-11-22T10:00:00Z"), "2026-11-22T11:00:00.000Z");
        assert_eq!(after("@weekly", "UTC", "2026-11-22T10:00:00Z"), "2026-11-29T00:00:00.000Z");
    }

    /// Checks consecutive runs of a schedule in Berlin, where clocks change from 2:00 to 3:00 on
    /// 2026-03-29, and from 3:00 to 2:00 on 2026-10-25.
    fn in_berlin(expression: &str, mut now: &str, runs: [&'static str; 3]) {
        for run in runs {
            assert_eq!(after(expression, "Europe/Berlin", now), run, "{expression} after {now}");
            now = run;
        }
    }

    #[test]
    fn next_run_of_a_named_hour_is_not_repeated_in_a_repeated_hour() {
        let (evening, next_day) = ("2026-10-24T20:00:00Z", "2026-10-26T01:30:00.000Z");
        in_berlin("30 2 * * *", evening, ["2026-10-25T00:30:00.000Z", next_day, "2026-10-27T01:30:00.000Z"]);
        let quarters = ["2026-10-25T00:15:00.000Z", "2026-10-25T00:45:00.000Z", "2026-10-26T01:15:00.000Z"];
        in_berlin("15,45 2 * * *", evening, quarters);
        let hours = ["2026-10-25T00:00:00.000Z", "2026-10-25T02:00:00.000Z", "2026-10-26T01:00:00.000Z"];
        in_berlin("0 2,3 * * *", evening, hours);
        let every = ["2026-10-25T00:30:00.000Z", "2026-10-25T01:30:00.000Z", "2026-10-25T02:30:00.000Z"];
        in_berlin("30 * * * *", "2026-10-25T00:00:00Z", every);
    }

    #[test]
    fn next_run_in_a_skipped_hour_is_right_after_it() {
        let (evening, behind) = ("2026-03-28T20:00:00Z", "2026-03-29T01:00:00.000Z");
        in_berlin("30 2 * * *", evening, [behind, "2026-03-30T00:30:00.000Z", "2026-03-31T00:30:00.000Z"]);
        in_berlin("30 2,3 * * *", evening, [behind, "2026-03-29T01:30:00.000Z", "2026-03-30T00:30:00.000Z"]);
        in_berlin("*/20 2 * * *", evening, [behind, "2026-03-30T00:00:00.000Z", "2026-03-30T00:20:00.000Z"]);
        let every = ["2026-03-29T00:30:00.000Z", "2026-03-29T01:30:00.000Z", "2026-03-29T02:30:00.000Z"];
        in_berlin("30 * * * *", "2026-03-29T00:00:00Z", every);
    }

    #[test]
    fn day_fields_must_both_match_if_one_begins_with_a_star() {
        assert_eq!(after("0 0 */2 * 1", "UTC", "2025-01-01T00:00:00Z"), "2025-01-13T00:00:00.000Z");
        assert_eq!(after("0 0 13 * 5", "UTC", "2025-01-01T00:00:00Z"), "2025-01-03T00:00:00.000Z");
        assert_eq!(after("0 0 * * 1", "UTC", "2025-01-01T00:00:00Z"), "2025-01-06T00:00:00.000Z");
    }

    #[test]
    fn next_run_on_a_leap_day_is_found_across_a_century() {
        assert_eq!(after("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z"), "2104-02-29T00:00:00.000Z");
    }

    #[test]
    fn nicknames_are_accepted_or_refused_with_an_alternative() {
        for word in ["@midnight", "@Midnight", "@daily"] {
            assert_eq!(after(word, "UTC", "2026-11-22T10:00:00Z"), "2026-11-23T00:00:00.000Z");
        }
        for (word, help) in [
            ("@reboot", "not the start of a machine"),
            ("@every 5m", "such as */5 * * * *"),
            ("@every_minute", "such as */5 * * * *"),
            ("@fortnightly", "the words are @hourly, @daily, @midnight"),
        ] {
            let error = next(word, "UTC", at("2026-11-22T10:00:00Z")).unwrap_err().to_string();
            let begin = format!("Invalid schedule: expression '{word}' is not valid: ");
            assert!(error.starts_with(&begin), "{error}");
            assert!(error.contains(help), "{error}");
        }
    }

    #[test]
    fn schedule_is_rescheduled_after_the_clock_was_set_back() {
        let now = at("2026-11-22T10:00:30Z");
        let ahead = schedule().fired(Some("j".into()), at("2026-11-23T12:00:10Z"));
        let rescheduled = ahead.rescheduled(now).unwrap();
        assert_eq!(rescheduled.next_run_at, Some(at("2026-11-22T10:01:00Z")));
        assert!(rescheduled.rescheduled(now).is_none(), "once is enough");
        let next_run_at = Some(at("2026-11-23T03:00:00Z"));
        let daily = Schedule { expression: "0 3 * * *".into(), next_run_at, ..ahead };
        assert!(daily.rescheduled(now).is_none(), "it is the very same time");
        assert!(schedule().rescheduled(now).is_none(), "it was never ahead");
    }

    #[test]
    fn schedule_repeats_no_run_after_a_small_step_back() {
        let ran = schedule().fired(Some("j".into()), at("2026-11-22T10:01:00Z"));
        assert!(ran.rescheduled(at("2026-11-22T10:00:59Z")).is_none());
        assert!(ran.rescheduled(at("2026-11-22T09:30:00Z")).is_some());
    }

    #[test]
    fn invalid_schedules_are_refused() {
        for (expression, zone) in [
            ("not a valid cron", "UTC"),
            ("0 0 0 0 0 0 0", "UTC"),
            ("99 25 32 13 8", "UTC"),
            ("* * * * * *", "UTC"),
            ("@never", "UTC"),
            ("", "UTC"),
            ("@reboot", "UTC"),
            ("0 0 30 2 *", "UTC"),
            ("* * * * *", "Mars/Olympus"),
        ] {
            let error = next(expression, zone, at("2026-11-22T10:00:00Z")).unwrap_err().to_string();
            assert!(error.starts_with("Invalid schedule: "), "{error}");
        }
    }

    #[test]
    fn schedule_refuses_fields_that_cron_refuses() {
        let error = with_expression("0 3 * MON *").unwrap_err().to_string();
        let fault = "the month has 'MON': give numbers from 1 to 12, or JAN to DEC";
        assert_eq!(error, format!("Invalid schedule: expression '0 3 * MON *' is not valid: {fault}"));
        let stored = Schedule { expression: "0 3 * MON *".into(), ..schedule() };
        assert!(stored.fired(None, at("2026-11-22T10:00:30Z")).next_run_at.is_some(), "it goes on");
    }

    #[test]
    fn schedule_takes_names_and_extensions_in_their_fields() {
        for (expression, next_run) in [
            ("0 0 1 jan-Mar,DEC *", "2026-12-01"),
            ("0 0 * * fri-SUN", "2026-11-27"),
            ("0 0 * * MON-FRI/2", "2026-11-23"),
            ("0 0 ? * 7", "2026-11-29"),
            ("0 0 L * *", "2026-11-30"),
            ("0 0 LW 1 ?", "2027-01-29"),
            ("0 0 5W,20 12 *", "2026-12-04"),
            ("0 0 * * FRI#2", "2026-12-11"),
            ("0 0 * 12 fril", "2026-12-25"),
            ("0 0 * 12 5#L,0#1", "2026-12-06"),
        ] {
            let schedule = with_expression(expression).unwrap();
            let expected = at(&format!("{next_run}T00:00:00Z"));
            assert_eq!(schedule.next_run_at, Some(expected), "{expression}");
        }
    }

    fn with_expression(expression: &str) -> Result<Schedule, Rejection> {
        let wanted = r#"{"name":"n","expression":"* * * * *","job_template":{"type":"a","args":[]}}"#;
        let wanted = wanted.replace("* * * * *", expression);
        Schedule::new(serde_json::from_str(&wanted).unwrap(), at("2026-11-22T10:00:30Z"))
    }

    fn schedule() -> Schedule {
        with_expression("* * * * *").unwrap()
    }

    #[test]
    fn schedule_name_is_a_valid_path_segment() {
        for fine in ["n", "a.b", "...", ".hidden", "nightly:1_2-3"] {
            assert_eq!(check_name(fine), Ok(()), "{fine}");
        }
        for wrong in ["", ".", "..", "a/b", "a b", "a%2e", &"n".repeat(129)] {
            let error = check_name(wrong).unwrap_err().to_string();
            assert!(error.starts_with("Invalid schedule: name "), "{error}");
        }
    }

    #[test]
    fn schedule_fires_once_for_several_missed_times() {
        let made = schedule();
        assert!(!made.is_due(at("2026-11-22T10:00:59Z")) && made.is_due(at("2026-11-22T10:01:00Z")));
        let fired = made.fired(Some("j".into()), at("2026-11-22T12:00:10Z"));
        assert_eq!(fired.next_run_at, Some(at("2026-11-22T12:01:00Z")));
        assert_eq!((fired.pending_id.as_deref(), fired.runs), (Some("j"), 1));
        assert!(fired.submitted("earlier", "earlier").is_none(), "a later run is pending");
        let done = fired.submitted("j", "j").unwrap();
        assert_eq!((done.pending_id, done.last_id.as_deref()), (None, Some("j")));
        let skipped = made.fired(None, at("2026-11-22T12:00:10Z"));
        assert_eq!((skipped.runs, skipped.last_run_at), (0, None));
        let again = Schedule { next_run_at: skipped.next_run_at, ..schedule() };
        assert_eq!(again.after(Some(&made)).next_run_at, made.next_run_at, "stored again, no run is lost");
        let paused = Schedule { enabled: false, ..made };
        assert_eq!(again.after(Some(&paused)).next_run_at, again.next_run_at);
    }
}
