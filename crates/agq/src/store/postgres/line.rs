//! A connection of its own for one purpose: opened when it is needed, kept while it works, and
//! closed when a statement on it fails or is not waited for any more.

use std::sync::{Mutex, PoisonError};

use sqlx::{Error, PgConnection};

use super::access::Access;

/// The connection, and how another one is opened.
pub(super) struct Line {
    access: Access,
    kept: Mutex<Option<PgConnection>>,
}

impl Line {
    pub(super) fn new(access: Access) -> Self {
        Self { access, kept: Mutex::default() }
    }

    /// The connection that was kept, or a new one. It is gone unless it is kept again.
    pub(super) async fn take(&self) -> Result<PgConnection, Error> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        match kept {
            Some(connection) => Ok(connection),
            None => self.access.connect().await,
        }
    }

    /// Keeps a connection that works.
    pub(super) fn keep(&self, connection: PgConnection) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }
}
