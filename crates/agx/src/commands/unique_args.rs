//! Options for the uniqueness of the jobs of an action.

use std::time::Duration;

use agenix_protocol::documents::{UniqueConflict, UniqueJobs};
use clap::{Args, ValueEnum};

use crate::util::{duration::parse_duration, text::any_bytes};

/// Options for the uniqueness of the jobs of an action.
#[derive(Debug, Args)]
pub(crate) struct UniqueArgs {
    /// Submit no job for which another one stands: with an equal KEY, a text with placeholders of
    /// the input, or without KEY with the same plan and input. The value needs the =
    #[arg(long, value_name = "KEY", num_args = 0..=1, require_equals = true, default_missing_value = "",
          conflicts_with = "open", value_parser = any_bytes())]
    unique: Option<String>,
    /// Refuse the action if another job stands for one of its jobs, leave that job out, or cancel
    /// the other one
    #[arg(long, value_enum, requires = "unique", default_value_t = Conflict::Reject)]
    on_conflict: Conflict,
    /// Compare only jobs that were submitted within this time: seconds, or a number with s, m, h or
    /// d [default: all that have not ended]
    #[arg(long, value_name = "TIME", requires = "unique", value_parser = parse_duration)]
    unique_period: Option<Duration>,
}

/// Values of `--on-conflict`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Conflict {
    Reject,
    Ignore,
    Replace,
}

impl UniqueArgs {
    /// Returns the option of the action.
    pub(crate) fn read(self) -> Option<UniqueJobs> {
        let key = self.unique?;
        Some(UniqueJobs {
            key: Some(key).filter(|key| !key.is_empty()),
            on_conflict: match self.on_conflict {
                Conflict::Reject => UniqueConflict::Reject,
                Conflict::Ignore => UniqueConflict::Ignore,
                Conflict::Replace => UniqueConflict::Replace,
            },
            states: Vec::new(),
            period: self.unique_period.map(|period| format!("PT{}S", period.as_secs_f64())),
        })
    }
}
