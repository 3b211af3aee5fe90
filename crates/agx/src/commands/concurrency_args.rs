//! Options for the concurrency key of an action.

use agenix_protocol::documents::ConcurrencyKey;
use clap::Args;

use crate::util::text::any_bytes;

/// Options for the concurrency key of an action.
#[derive(Debug, Args)]
pub(crate) struct ConcurrencyArgs {
    /// Bound the jobs with equal keys that run at once, also those of your other actions. KEY is a
    /// text with placeholders of the input, such as the user or the host of the job
    #[arg(long = "concurrency-key", value_name = "KEY", value_parser = any_bytes(),
          conflicts_with_all = ["max_running", "rate"])]
    key: Option<String>,
    /// Maximum number of jobs with the same key that run at once, on all workers together
    #[arg(long, value_name = "N", requires = "key", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    max_running_per_key: u64,
}

impl ConcurrencyArgs {
    /// Returns the key as the user wrote it.
    pub(crate) fn given(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the option of an action whose key has the template `key`.
    pub(crate) fn with(&self, key: String) -> ConcurrencyKey {
        ConcurrencyKey { key, max_running: self.max_running_per_key }
    }
}
