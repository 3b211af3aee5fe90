//! What is set for queues: how many jobs may wait in one.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use agenix_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What is set for a queue (ext admin-api, ext backpressure).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct QueueSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backpressure: Option<Backpressure>,
    /// What agq does not know is kept, and means nothing.
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

/// How many jobs may wait in a queue, and what becomes of more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Backpressure {
    /// Most jobs that wait.
    pub(crate) max_depth: u64,
    /// `reject`.
    #[serde(default = "reject")]
    pub(crate) strategy: String,
    /// The part of that, from 0 to 1, from which on whoever submits is warned.
    #[serde(default = "warn_at")]
    pub(crate) warning_threshold: f64,
}

fn reject() -> String {
    "reject".into()
}

fn warn_at() -> f64 {
    0.8
}

/// The bounds of queues, as they were read last: every submission asks.
#[derive(Debug, Default)]
pub(crate) struct QueueLimitCache(Mutex<Option<(Timestamp, HashMap<String, Backpressure>)>>);

/// How old they may be, in milliseconds: another agq may have set one.
const KNOWN_MS: u64 = 1000;

impl QueueLimitCache {
    /// The bound of a queue, where it is known whether there is one.
    pub(crate) fn known(&self, queue: &str, now: Timestamp) -> Option<Option<Backpressure>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, bounds) = known.as_ref().filter(|(at, _)| *at <= now && now.ms_since(*at) < KNOWN_MS)?;
        Some(bounds.get(queue).cloned())
    }

    pub(crate) fn set(&self, known: Option<(Timestamp, HashMap<String, Backpressure>)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}
