//! Options that several commands share, and those of JOBS.SEARCH.

use bytes::Bytes;

use super::{
    RequestError,
    arguments::{count, id_of, is_word, status, text, time},
};
use crate::{
    documents::Status,
    ids::{ActionId, PlanId},
    time::Timestamp,
};

/// Default number of results of a listing.
pub const DEFAULT_LIMIT: usize = 100;

/// Slice of a list: `[LIMIT n] [OFFSET n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Maximum number of results.
    pub limit: usize,
    /// Number of skipped results.
    pub offset: usize,
}

impl Slice {
    /// Slice of the whole list.
    pub const ALL: Self = Self { limit: usize::MAX, offset: 0 };

    /// Parses the options. `limit` is the default.
    pub(super) fn parse(args: &[Bytes], limit: usize) -> Result<Self, RequestError> {
        let mut slice = Self { limit, offset: 0 };
        let mut rest = args;
        while let [option, value, after @ ..] = rest {
            match option.to_ascii_uppercase().as_slice() {
                b"LIMIT" => slice.limit = count(value)?,
                b"OFFSET" => slice.offset = count(value)?,
                _ => return Err(RequestError::Syntax),
            }
            rest = after;
        }
        if rest.is_empty() { Ok(slice) } else { Err(RequestError::Syntax) }
    }

    pub(super) fn encode(self) -> [Bytes; 4] {
        let number = |number: usize| Bytes::from(number.to_string());
        ["LIMIT".into(), number(self.limit), "OFFSET".into(), number(self.offset)]
    }
}

/// Page of a listing: `[pattern] [LIMIT n] [OFFSET n]` (AGQ API spec §2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Glob that the ids have to match.
    pub pattern: Option<Bytes>,
    /// Maximum number of results.
    pub limit: usize,
    /// Number of matching ids to skip.
    pub offset: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self { pattern: None, limit: DEFAULT_LIMIT, offset: 0 }
    }
}

impl Page {
    pub(super) fn parse(args: &[Bytes]) -> Result<Self, RequestError> {
        let (pattern, rest) = match args {
            [pattern, rest @ ..] if !is_slice(pattern) => (Some(pattern.clone()), rest),
            rest => (None, rest),
        };
        let Slice { limit, offset } = Slice::parse(rest, DEFAULT_LIMIT)?;
        Ok(Self { pattern, limit, offset })
    }

    /// Returns the page of a list of names in memory.
    pub fn of(&self, names: impl Iterator<Item = String>) -> Vec<String> {
        let matches = |name: &String| {
            self.pattern.as_ref().is_none_or(|pattern| crate::glob::matches(pattern, name.as_bytes()))
        };
        names.filter(matches).skip(self.offset).take(self.limit).collect()
    }

    pub(super) fn encode(&self) -> Vec<Bytes> {
        let slice = Slice { limit: self.limit, offset: self.offset };
        self.pattern.iter().cloned().chain(slice.encode()).collect()
    }
}

/// Returns true if `arg` begins an option of a slice.
pub(super) fn is_slice(arg: &Bytes) -> bool {
    is_word(arg, "LIMIT") || is_word(arg, "OFFSET")
}

/// Conditions of JOBS.SEARCH. A job has to meet all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// Status of the jobs.
    pub status: Option<Status>,
    /// Plan of the jobs.
    pub plan_id: Option<PlanId>,
    /// Action of the jobs.
    pub action_id: Option<ActionId>,
    /// Current or last holder of the jobs.
    pub worker: Option<String>,
    /// Earliest time of submission.
    pub since: Option<Timestamp>,
    /// Time before which the jobs were submitted.
    pub until: Option<Timestamp>,
    /// Maximum number of results.
    pub limit: usize,
}

impl Default for Search {
    fn default() -> Self {
        let (status, plan_id, action_id, worker, since, until) = (None, None, None, None, None, None);
        Self { status, plan_id, action_id, worker, since, until, limit: DEFAULT_LIMIT }
    }
}

impl Search {
    /// Parses `[status] [plan_id]` as in AGQ API spec §7, and then options with names.
    pub(super) fn parse(args: &[Bytes]) -> Result<Self, RequestError> {
        const OPTIONS: [&str; 7] = ["STATUS", "PLAN", "ACTION", "WORKER", "SINCE", "UNTIL", "LIMIT"];
        let is_option = |arg: &Bytes| OPTIONS.iter().any(|option| is_word(arg, option));
        let mut search = Self::default();
        let mut rest = args;
        if let [word, after @ ..] = rest
            && !is_option(word)
        {
            search.status = Some(status(word)?);
            rest = after;
            if let [plan_id, after @ ..] = rest
                && !is_option(plan_id)
            {
                search.plan_id = Some(id_of(plan_id)?);
                rest = after;
            }
        }
        while let [option, value, after @ ..] = rest {
            match option.to_ascii_uppercase().as_slice() {
                b"STATUS" => search.status = Some(status(value)?),
                b"PLAN" => search.plan_id = Some(id_of(value)?),
                b"ACTION" => search.action_id = Some(id_of(value)?),
                b"WORKER" => search.worker = Some(text(value)?),
                b"SINCE" => search.since = Some(time(value)?),
                b"UNTIL" => search.until = Some(time(value)?),
                b"LIMIT" => search.limit = count(value)?,
                _ => return Err(RequestError::Syntax),
            }
            rest = after;
        }
        if rest.is_empty() { Ok(search) } else { Err(RequestError::Syntax) }
    }

    pub(super) fn encode(&self) -> Vec<Bytes> {
        let named = [
            ("STATUS", self.status.map(|status| status.as_str().to_owned())),
            ("PLAN", self.plan_id.clone().map(String::from)),
            ("ACTION", self.action_id.clone().map(String::from)),
            ("WORKER", self.worker.clone()),
            ("SINCE", self.since.map(|time| time.to_string())),
            ("UNTIL", self.until.map(|time| time.to_string())),
            ("LIMIT", Some(self.limit.to_string())),
        ];
        let given = named.into_iter().filter_map(|(name, value)| Some([Bytes::from(name), value?.into()]));
        given.flatten().collect()
    }
}
