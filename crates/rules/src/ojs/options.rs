//! Parser of the options of a submitted job. Every error names the invalid field.

use agenix_protocol::time::Timestamp;
use serde_json::{Map, Value};

use super::duration::parse_duration;
use crate::{
    action::PRIORITIES,
    concurrency_key::RESERVED,
    job::OnConflict,
    limit::LimitTerms,
    rejection::Rejection,
    retry::{Retry, Strategy},
};

/// Longest visibility timeout or timeout, in milliseconds: a hundred years.
pub const MAX_MS: u64 = 3_155_760_000_000;
/// Maximum number of tags of a job, and of states and keys of a constraint.
const MAX_LISTED: usize = 100;

/// Fields of an object, with the place of the object for errors.
pub(super) struct OptionReader<'f> {
    place: String,
    fields: &'f Map<String, Value>,
}

pub(super) fn invalid(text: String) -> Rejection {
    Rejection::InvalidJob(text)
}

impl<'f> OptionReader<'f> {
    pub(super) fn of(place: impl Into<String>, fields: &'f Map<String, Value>) -> Self {
        Self { place: place.into(), fields }
    }

    fn at(&self, field: &str) -> String {
        format!("{}.{field}", self.place)
    }

    /// Returns a field that is neither missing nor null.
    fn get(&self, field: &str) -> Option<&'f Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// Refuses a field that is not one of `known`: it would have no effect.
    pub(super) fn check_fields(&self, known: &[&str]) -> Result<(), Rejection> {
        let is_unknown =
            |(field, value): &(&String, &Value)| !value.is_null() && !known.contains(&field.as_str());
        let Some((unknown, _)) = self.fields.iter().find(is_unknown) else { return Ok(()) };
        let shown: String = unknown.chars().take(40).collect();
        let field = self.at(&shown.escape_debug().to_string());
        Err(invalid(format!("{field} is not known: use {}", known.join(", "))))
    }

    /// Returns a field that `read` converts. The error names the expected `form`.
    fn read<T>(
        &self,
        field: &str,
        form: &str,
        read: impl Fn(&'f Value) -> Option<T>,
    ) -> Result<Option<T>, Rejection> {
        let wrong = |value: &Value| {
            let shown: String = value.to_string().chars().take(80).collect();
            invalid(format!("{} is {shown}: it must be {form}", self.at(field)))
        };
        self.get(field).map(|value| read(value).ok_or_else(|| wrong(value))).transpose()
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&'f str>, Rejection> {
        self.read(field, "a string", Value::as_str)
    }

    pub(super) fn flag(&self, field: &str) -> Result<Option<bool>, Rejection> {
        self.read(field, "true or false", Value::as_bool)
    }

    /// Returns a whole number of milliseconds above 0.
    pub(super) fn ms(&self, field: &str) -> Result<Option<u64>, Rejection> {
        let read = |value: &Value| value.as_u64().filter(|ms| (1..=MAX_MS).contains(ms));
        self.read(field, "a whole number of milliseconds above 0", read)
    }

    /// Returns a number of seconds above 0, in milliseconds.
    pub(super) fn seconds(&self, field: &str) -> Result<Option<u64>, Rejection> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded before")]
        let read = |value: &Value| {
            value
                .as_f64()
                .filter(|secs| (0.001..=3_155_760_000.0).contains(secs))
                .map(|secs| (secs * 1000.0) as u64)
        };
        self.read(field, "a number of seconds above 0", read)
    }

    fn count(&self, field: &str) -> Result<Option<u64>, Rejection> {
        self.read(field, "a whole number", Value::as_u64)
    }

    pub(super) fn object(&self, field: &str) -> Result<Option<OptionReader<'f>>, Rejection> {
        let fields = self.read(field, "an object", Value::as_object)?;
        Ok(fields.map(|fields| OptionReader { place: self.at(field), fields }))
    }

    pub(super) fn texts(&self, field: &str) -> Result<Option<Vec<String>>, Rejection> {
        let read = |value: &Value| {
            let listed = value.as_array().filter(|listed| listed.len() <= MAX_LISTED)?;
            listed.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        };
        self.read(field, &format!("a list of at most {MAX_LISTED} strings"), read)
    }

    /// Returns a time: RFC 3339, or `+` and a duration from `now` on.
    pub(super) fn moment(&self, field: &str, now: Timestamp) -> Result<Option<Timestamp>, Rejection> {
        let read = |value: &Value| {
            let text = value.as_str()?;
            match text.strip_prefix('+') {
                Some(duration) => parse_duration(duration).map(|ms| now.plus_ms(ms)),
                // A time before 1970 counts as 1970, because both have passed.
                None => Timestamp::parse_saturating(text),
            }
        };
        self.read(field, "an RFC 3339 time, or a duration from now on such as +PT5S", read)
    }

    pub(super) fn priority(&self) -> Result<i32, Rejection> {
        let read =
            |value: &Value| i32::try_from(value.as_i64()?).ok().filter(|number| PRIORITIES.contains(number));
        Ok(self.read("priority", "a whole number from -100 to 100", read)?.unwrap_or_default())
    }

    /// Returns a duration: a text under `field`, or milliseconds under `field` with `_ms`.
    fn duration(&self, field: &str) -> Result<Option<u64>, Rejection> {
        let read = |value: &Value| parse_duration(value.as_str()?);
        match self.read(field, "an ISO 8601 duration such as PT1S", read)? {
            Some(ms) => Ok(Some(ms)),
            None => self.read(
                &format!("{field}_ms"),
                "a whole number of milliseconds, at most a hundred years",
                |value| value.as_u64().filter(|ms| *ms <= MAX_MS),
            ),
        }
    }

    /// Returns the retry policy. The errors of a retry policy have a kind of their own.
    pub(super) fn retry(&self) -> Result<Retry, Rejection> {
        self.policy().map_err(|error| match error {
            Rejection::InvalidJob(text) => Rejection::InvalidRetry(text),
            other => other,
        })
    }

    fn policy(&self) -> Result<Retry, Rejection> {
        let default = Retry::default();
        let count = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let factor = |value: &Value| value.as_f64().filter(|number| *number >= 1.0);
        let attempts = self.read("max_attempts", "a whole number from 0 on", count)?;
        let coefficient = self.read("backoff_coefficient", "a number from 1 on", factor)?;
        let strategies = [
            ("exponential", Strategy::Exponential),
            ("linear", Strategy::Linear),
            ("constant", Strategy::Constant),
            ("none", Strategy::Constant),
        ];
        let ends = [("discard", false), ("dead_letter", true)];
        Ok(Retry {
            max_attempts: attempts.unwrap_or(default.max_attempts),
            initial_ms: self.duration("initial_interval")?.unwrap_or(default.initial_ms),
            coefficient: coefficient.unwrap_or(default.coefficient),
            max_ms: self.duration("max_interval")?.unwrap_or(default.max_ms),
            jitter: self.flag("jitter")?.unwrap_or(default.jitter),
            strategy: self.choice("backoff_strategy", &strategies)?,
            non_retryable: self.texts("non_retryable_errors")?.unwrap_or_default(),
            to_dead_letter: self.choice("on_exhaustion", &ends)?,
        })
    }

    /// Returns the value of the word under `field`, by default of the first of `words`.
    fn choice<T: Copy>(&self, field: &str, words: &[(&str, T)]) -> Result<T, Rejection> {
        let Some(word) = self.text(field)? else { return Ok(words[0].1) };
        let found = words.iter().find(|(known, _)| *known == word);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let (last, others) = words.split_last().expect("a choice has words");
            let others = others.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
            invalid(format!("{} is '{word}': use {others} or {}", self.at(field), last.0))
        })
    }

    /// Returns a limit and its key. The default key is that of the queue.
    pub(super) fn limit(&self, queue: &str) -> Result<(String, LimitTerms), Rejection> {
        let wrong = |problem: &str| invalid(format!("{}{problem}", self.place));
        let key = self.text("key")?.map_or_else(|| format!("queue:{queue}"), str::to_owned);
        if key.is_empty() || key.len() > 255 || key.contains(char::is_control) {
            return Err(wrong(".key must have 1 to 255 bytes and no control characters"));
        }
        if let Some(reserved) = RESERVED.into_iter().find(|reserved| key.starts_with(reserved)) {
            return Err(wrong(&format!(
                ".key begins with '{reserved}', as the keys that agq makes: use another key"
            )));
        }
        if let Some(other) = self.text("on_limit")?.filter(|word| *word != "wait") {
            return Err(wrong(&format!(".on_limit is '{other}': agq supports only wait")));
        }
        let per_second = self.count("max_per_second")?;
        let period_ms = match self.text("period")? {
            None | Some("second") => 1000,
            Some("minute") => 60_000,
            Some("hour") => 3_600_000,
            Some("day") => 86_400_000,
            Some(other) => parse_duration(other).filter(|ms| *ms > 0).ok_or_else(|| {
                let words = "second, minute, hour, day, or a duration such as PT10S";
                wrong(&format!(".period is '{other}': use {words}"))
            })?,
        };
        let (rate, period_ms) = match per_second {
            Some(rate) => (Some(rate), 1000),
            None => (self.count("rate")?, period_ms),
        };
        let terms = LimitTerms { concurrency: self.count("concurrency")?, rate, period_ms };
        if terms.rate.is_none() && terms.concurrency.is_none() {
            return Err(wrong(" limits nothing: give concurrency, rate or max_per_second"));
        }
        if terms.rate == Some(0) || terms.concurrency == Some(0) {
            return Err(wrong(" lets no job through: give at least 1"));
        }
        Ok((key, terms))
    }

    pub(super) fn on_conflict(&self) -> Result<OnConflict, Rejection> {
        let (ignore, replace) = (OnConflict::Ignore, OnConflict::Replace);
        self.choice(
            "on_conflict",
            &[("reject", OnConflict::Reject), ("ignore", ignore), ("replace", replace)],
        )
    }

    pub(super) fn period(&self) -> Result<Option<u64>, Rejection> {
        self.duration("period")
    }
}
