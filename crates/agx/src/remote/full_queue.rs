//! Waits for room in a full queue.

use std::time::Duration;

use agenix_protocol::errors::ErrorKind;
use tokio::time::sleep;

use crate::output::OutputFormat;

/// Time to the next attempt to submit an input.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits for room in a queue, with one note for all waits.
pub(crate) struct FullQueueWait {
    output: OutputFormat,
    is_noted: bool,
}

impl FullQueueWait {
    pub(crate) fn new(output: OutputFormat) -> Self {
        Self { output, is_noted: false }
    }

    /// Waits until the next attempt. `reason` is the error of agq.
    pub(crate) async fn pause(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_noted, true) {
            self.output.note(&format!("agx: {reason}; agx waits, and submits further inputs as jobs start"));
        }
        sleep(PAUSE).await;
    }
}

/// Returns true if agq refused inputs because the queue has no room for so many.
pub(crate) fn is_for_a_full_queue(reason: &str) -> bool {
    ErrorKind::of(reason) == ErrorKind::QueueFull
}
