//! Settings of queues, and a cache of their limits.

use std::{collections::HashMap, sync::Mutex};

use agenix_protocol::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::sync::lock;

/// Settings of a queue (ext admin-api, ext backpressure).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct QueueSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backpressure: Option<Backpressure>,
    /// Unknown fields, which are stored and returned, and have no effect.
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

/// Changes of the settings of a queue.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct QueueChanges {
    /// The outer `None` leaves the bound as it is, and the inner one removes it.
    #[serde(default, deserialize_with = "given")]
    pub(crate) backpressure: Option<Option<Backpressure>>,
    /// Unknown fields.
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

/// Reads a field that is given, also as null.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<Backpressure>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Limit of the waiting jobs of a queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Backpressure {
    pub(crate) max_depth: u64,
    /// Reaction to more jobs; only `reject` is known.
    #[serde(default = "reject")]
    pub(crate) strategy: String,
    /// Fill level from 0 to 1 at which a submission gets a warning.
    #[serde(default = "warn_at")]
    pub(crate) warning_threshold: f64,
}

fn reject() -> String {
    "reject".into()
}

fn warn_at() -> f64 {
    0.8
}

/// Cache of the limits of all queues, because every submission checks them.
#[derive(Debug, Default)]
pub(crate) struct QueueLimitCache(Mutex<Option<(Timestamp, HashMap<String, Backpressure>)>>);

/// Maximum age of the cache, in milliseconds. Another node may have changed a limit.
const KNOWN_MS: u64 = 1000;

impl QueueLimitCache {
    /// The inner `None` means no limit, the outer that the cache is too old.
    pub(crate) fn known(&self, queue: &str, now: Timestamp) -> Option<Option<Backpressure>> {
        let known = lock(&self.0);
        let (_, bounds) = known.as_ref().filter(|(at, _)| *at <= now && now.ms_since(*at) < KNOWN_MS)?;
        Some(bounds.get(queue).cloned())
    }

    pub(crate) fn set(&self, known: Option<(Timestamp, HashMap<String, Backpressure>)>) {
        *lock(&self.0) = known;
    }
}
