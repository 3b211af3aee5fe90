//! Computation of the next run of a cron expression in a time zone.
//!
//! croner finds the local times of an expression. This module handles changes of the clock as Vixie
//! cron does: a job whose hour field begins with `*` follows real time, and any other job runs once
//! for each local time.

use agenix_protocol::time::Timestamp;
use chrono::{DateTime, Duration, LocalResult, NaiveDateTime, Offset, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};

use super::{field_syntax, invalid};
use crate::rejection::Rejection;

/// Minimum change of the clock whose skipped runs are not made up for, as in Vixie cron.
const MIN_UNCOMPENSATED_CHANGE: Duration = Duration::hours(3);
/// Maximum time by which a clock is set back.
const MAX_FOLD: Duration = Duration::hours(24);
/// Nicknames that stand for an expression.
const WORDS: &str = "@hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually";

/// Returns the next time after `after` that the expression names in the time zone.
pub fn next(expression: &str, timezone: &str, after: Timestamp) -> Result<Timestamp, Rejection> {
    let zone: Tz = timezone.parse().map_err(|_| {
        invalid(format!(
            "timezone '{timezone}' is not known: use a name of the IANA's database, such as Europe/Berlin"
        ))
    })?;
    let times = Times::parse(expression)?;
    let after = i64::try_from(after.0).ok().and_then(DateTime::<Utc>::from_timestamp_millis);
    let after = after.ok_or_else(|| invalid("no time comes after this one"))?;
    let next = times.next(zone, after)?;
    u64::try_from(next.timestamp_millis()).map(Timestamp).map_err(|_| invalid("it names a time before 1970"))
}

/// Refuses an expression that cron refuses. [`next`] still takes some of these expressions, so that
/// a schedule that is already stored keeps its times.
pub(super) fn check(expression: &str) -> Result<(), Rejection> {
    match field_syntax::fault(&fields(expression)?) {
        None => Ok(()),
        Some(fault) => Err(not_valid(expression, &fault)),
    }
}

fn not_valid(expression: &str, fault: &str) -> Rejection {
    invalid(format!("expression '{expression}' is not valid: {fault}"))
}

/// Parsed expression.
struct Times<'e> {
    expression: &'e str,
    cron: Cron,
    /// True if the schedule follows real time across changes of the clock.
    is_wild: bool,
}

impl<'e> Times<'e> {
    fn parse(expression: &'e str) -> Result<Self, Rejection> {
        let fields = fields(expression)?;
        let begins_with_star = |at: usize| fields[at].starts_with(['*', '?']);
        // As in Vixie cron, both day fields must match if one of them begins with a star;
        // otherwise, one field is enough.
        let needs_both = begins_with_star(2) || begins_with_star(4);
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .dom_and_dow(needs_both)
            .build();
        let cron =
            parser.parse(&fields.join(" ")).map_err(|error| not_valid(expression, &error.to_string()))?;
        Ok(Self { expression, cron, is_wild: begins_with_star(1) })
    }

    /// Returns the next local time that matches the expression.
    fn next_on_wall(&self, after: NaiveDateTime) -> Result<NaiveDateTime, Rejection> {
        let next = self.cron.find_next_occurrence(&after.and_utc(), false).map_err(|error| {
            invalid(format!("expression '{}' names no time to come: {error}", self.expression))
        })?;
        Ok(next.naive_utc())
    }

    fn next(&self, zone: Tz, after: DateTime<Utc>) -> Result<DateTime<Utc>, Rejection> {
        let shown = shown(zone, after);
        let again = self.next_shown_again(zone, after, shown)?;
        let mut wall = shown;
        loop {
            wall = self.next_on_wall(wall)?;
            let at = match zone.from_local_datetime(&wall) {
                LocalResult::Single(at) => Some(at.to_utc()),
                LocalResult::Ambiguous(first, second) => {
                    let (first, second) = (first.to_utc(), second.to_utc());
                    Some(if self.is_wild && first <= after { second } else { first })
                }
                LocalResult::None if self.is_wild => None,
                LocalResult::None => made_up_for(zone, wall),
            };
            if let Some(at) = at.filter(|at| *at > after) {
                return Ok(again.map_or(at, |again| again.min(at)));
            }
        }
    }

    /// Returns the first run in local times that repeat, because the clock is set back.
    fn next_shown_again(
        &self,
        zone: Tz,
        after: DateTime<Utc>,
        shown_now: NaiveDateTime,
    ) -> Result<Option<DateTime<Utc>>, Rejection> {
        let put_back = shown_now + MAX_FOLD - shown(zone, after + MAX_FOLD);
        if !self.is_wild || put_back <= Duration::zero() {
            return Ok(None);
        }
        let mut wall = shown_now - put_back - Duration::minutes(1);
        loop {
            wall = self.next_on_wall(wall)?;
            if wall > shown_now {
                return Ok(None);
            }
            if let LocalResult::Ambiguous(_, second) = zone.from_local_datetime(&wall)
                && second.to_utc() > after
            {
                return Ok(Some(second.to_utc()));
            }
        }
    }
}

/// Returns the five fields of an expression.
fn fields(expression: &str) -> Result<Vec<&str>, Rejection> {
    let unknown = |reason: &str| Err(not_valid(expression, reason));
    let word = expression.trim().to_ascii_lowercase();
    let five = match word.as_str() {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@reboot" => {
            return unknown(
                "a schedule follows the clock and not the start of a machine: submit the action there",
            );
        }
        word if word.starts_with("@every") => {
            return unknown(
                "an interval has no beginning here: give minute, hour, day, month and weekday, such as */5 * * * *",
            );
        }
        word if word.starts_with('@') => return unknown(&format!("the words are {WORDS}")),
        _ => expression,
    };
    let fields: Vec<&str> = five.split_whitespace().collect();
    if fields.len() != 5 {
        return unknown("give minute, hour, day, month and weekday, or a word such as @daily");
    }
    Ok(fields)
}

/// Returns the local time at `at`, to the minute.
fn shown(zone: Tz, at: DateTime<Utc>) -> NaiveDateTime {
    let shown = at.with_timezone(&zone).naive_local();
    shown
        - Duration::seconds(i64::from(shown.second()))
        - Duration::nanoseconds(i64::from(shown.nanosecond()))
}

/// Returns the moment after the change of the clock that skips `wall`, or `None` if the change is
/// long.
fn made_up_for(zone: Tz, wall: NaiveDateTime) -> Option<DateTime<Utc>> {
    let offset =
        |at: DateTime<Utc>| i64::from(zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc());
    let local = |at: DateTime<Utc>| at.naive_utc() + Duration::seconds(offset(at));
    let (mut before, mut behind) =
        (wall.and_utc() - Duration::hours(26), wall.and_utc() + Duration::hours(26));
    while behind - before > Duration::seconds(1) {
        let middle = before + Duration::seconds((behind - before).num_seconds() / 2);
        if local(middle) > wall { behind = middle } else { before = middle }
    }
    let change = Duration::seconds(offset(behind) - offset(before));
    (change < MIN_UNCOMPENSATED_CHANGE).then_some(behind)
}
