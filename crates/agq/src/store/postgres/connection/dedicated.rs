//! Dedicated connection for one purpose, opened when needed, and kept while it works. The
//! connection is closed when a statement on it fails or is abandoned.

use std::sync::{Mutex, PoisonError};

use sqlx::{PgConnection, Result};

use crate::store::postgres::connection::open::ConnectOptions;

pub(crate) struct DedicatedConnection {
    access: ConnectOptions,
    kept: Mutex<Option<PgConnection>>,
}

impl DedicatedConnection {
    pub(crate) fn new(access: ConnectOptions) -> Self {
        Self { access, kept: Mutex::default() }
    }

    /// Takes the kept connection, or opens one. The connection closes unless [`keep`](Self::keep)
    /// gets it.
    pub(crate) async fn take(&self) -> Result<PgConnection> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        match kept {
            Some(connection) => Ok(connection),
            None => self.access.connect().await,
        }
    }

    pub(crate) fn keep(&self, connection: PgConnection) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }
}
