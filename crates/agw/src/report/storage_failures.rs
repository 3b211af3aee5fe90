//! Failures of agq's storage during the upload of a stream, which may end the upload.

use agenix_client::ClientError;
use agenix_protocol::errors::ErrorKind;

/// Number of failures, one a second, after which an upload is given up if nobody frees the disk.
const MAX_FAILURES: u32 = 300;

/// Count of the failures during one upload.
#[derive(Debug)]
pub(super) struct StorageFailures {
    count: u32,
    /// True if the upload is given up after [`MAX_FAILURES`].
    are_bounded: bool,
}

impl StorageFailures {
    pub(super) fn new(are_bounded: bool) -> Self {
        Self { count: 0, are_bounded }
    }

    /// Counts an error if it is one of the storage. Returns false if the upload is given up.
    pub(super) fn permit_another(&mut self, error: &ClientError) -> bool {
        let ClientError::Rejected(text) = error else { return true };
        if ErrorKind::of(text) == ErrorKind::BlobStoreFailed {
            self.count = self.count.saturating_add(1);
        }
        !self.are_too_many()
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.are_bounded && self.count >= MAX_FAILURES
    }
}

#[cfg(test)]
mod tests {
    use agenix_client::ClientError;

    use super::{MAX_FAILURES, StorageFailures};

    #[test]
    fn upload_is_given_up_after_the_last_permitted_failure_if_they_are_bounded() {
        let full = ClientError::Rejected("the blob store failed: the disk is full".into());
        let busy = ClientError::Rejected("Too many commands".into());
        for are_bounded in [false, true] {
            let mut failures = StorageFailures::new(are_bounded);
            for _ in 1..MAX_FAILURES {
                assert!(failures.permit_another(&full) && failures.permit_another(&busy));
            }
            assert_eq!(failures.permit_another(&full), !are_bounded);
            assert_eq!(failures.are_too_many(), are_bounded);
        }
    }
}
