//! Commands on users' keys: writes go to the writer of keys, reads over a connection of the pool on
//! one snapshot.

use std::{sync::Arc, time::Duration};

use agenix_protocol::time::Timestamp;
use bytes::Bytes;
use sqlx::{Error, Result};
use tokio::runtime::Handle;

use crate::store::{
    KeyRead, KeyReader, KeyUpdate, Keyspace, StoreError, StoreFuture,
    postgres::{
        PostgresStore,
        connection::{DatabaseSession, Pool},
        keyspace::PgKeys,
        permit, queries,
        txn::PgTxn,
    },
};

impl Keyspace for PostgresStore {
    fn update(&self, bytes: usize, work: KeyUpdate) -> StoreFuture<()> {
        self.hand_in_keys(|inbox| inbox.change_keys(bytes, move |batch| on_keys(batch, &work)))
    }

    fn read(&self, work: KeyRead) -> StoreFuture<()> {
        self.look_at_keys(work, false)
    }

    fn read_at_once(&self, _work: &mut dyn FnMut(&dyn KeyReader)) -> bool {
        false
    }

    fn scan(&self, work: KeyRead) -> StoreFuture<()> {
        self.look_at_keys(work, true)
    }

    fn overdue_keys(&self, now: Timestamp, limit: usize) -> StoreFuture<Vec<Bytes>> {
        self.query(async move |pool| queries::overdue_keys(&pool, now, limit).await)
    }
}

impl PostgresStore {
    fn look_at_keys(&self, work: KeyRead, is_long: bool) -> StoreFuture<()> {
        let (pool, runtime, answer_timeout) = (self.pool.clone(), self.runtime.clone(), self.answer_timeout);
        let long_reads = is_long.then(|| Arc::clone(&self.long_reads));
        let looked = self.runtime.spawn(async move {
            let _permit = match long_reads {
                Some(long_reads) => Some(permit(long_reads).await?),
                None => None,
            };
            let looked =
                tokio::task::spawn_blocking(move || look_by_pool(&pool, runtime, answer_timeout, &work));
            looked.await.map_err(|error| StoreError(error.to_string()))?
        });
        self.answered(looked)
    }
}

fn look_by_pool(
    pool: &Pool,
    runtime: Handle,
    answer_timeout: Duration,
    work: &KeyRead,
) -> Result<(), StoreError> {
    let session = DatabaseSession::borrow(pool, runtime, answer_timeout)?;
    if let Err(error) = session.script("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") {
        session.give_up();
        return Err(error.into());
    }
    let looked = work(&PgKeys::new(&session));
    if session.script("COMMIT").is_err() {
        session.give_up();
    }
    looked
}

/// Runs work on keys. If the work fails, the transaction fails, and other writes are retried alone.
fn on_keys(batch: &mut PgTxn<'_>, work: &KeyUpdate) -> Result<()> {
    let mut keys = PgKeys::new(batch.session);
    let outcome = work(&mut keys);
    if outcome.is_ok() {
        keys.write()?;
    }
    let (fault, filled) = (keys.fault.take(), keys.filled);
    outcome.map_err(|error| fault.unwrap_or_else(|| Error::Encode(error.0.into())))?;
    batch.arrived.lists.extend(filled);
    Ok(())
}
