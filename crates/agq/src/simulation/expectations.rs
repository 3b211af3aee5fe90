//! State that a simulated agq has acknowledged, for the start on an image of its files.

use super::{blob_disk::PublishedFiles, keys::KeyHistory, ledger::Ledger};
use crate::settings::ServiceSettings;

/// State that agq has acknowledged, and changes that are possible besides.
#[derive(Debug, Clone)]
pub(super) struct Expectations {
    pub(super) ledger: Ledger,
    pub(super) keys: KeyHistory,
    /// Published blobs of the same moment. The writer changes none of them.
    pub(super) blobs: PublishedFiles,
    pub(super) settings: ServiceSettings,
}

impl Expectations {
    /// Returns the same state with all blobs that were ever published.
    pub(super) fn with_blobs_of_all_times(&self) -> Self {
        Self { blobs: self.blobs.of_all_times(), ..self.clone() }
    }
}
