//! Pool of connections for reads. The pool checks each connection before and after its use within a
//! bound. A peer may vanish without closing its connection, and the place of that connection in the
//! pool must not be lost.

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use futures_util::{
    StreamExt, TryStreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use sqlx::{
    Either, Execute, Executor, PgConnection, PgPool, Postgres, Result, SqlStr,
    pool::PoolConnection,
    postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo},
};
use tokio::time::timeout;

/// Maximum duration of a check of a connection. The rest of `CONNECT_TIMEOUT` is for a new one.
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Pool of connections.
#[derive(Debug, Clone)]
pub(crate) struct Pool(PgPool);

impl Pool {
    /// Creates a pool from one that checks each connection before it hands that connection out.
    pub(crate) fn new(pool: PgPool) -> Self {
        Self(pool)
    }

    pub(crate) async fn acquire(&self) -> Result<Pooled> {
        Ok(Pooled(Some(self.0.acquire().await?)))
    }

    #[cfg(test)]
    pub(crate) fn most(&self) -> u32 {
        self.0.options().get_max_connections()
    }

    #[cfg(test)]
    pub(crate) fn idle(&self) -> usize {
        self.0.num_idle()
    }
}

/// Connection that returns to its pool when dropped, which must be on a thread of a runtime.
pub(crate) struct Pooled(
    /// `None` once it has been closed.
    Option<PoolConnection<Postgres>>,
);

impl Pooled {
    /// Closes the connection, and gives its place in the pool free.
    pub(crate) fn close(mut self) {
        self.0.take().map(PoolConnection::detach);
    }
}

impl Deref for Pooled {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.0.as_deref().expect("only `close` takes it, and consumes this")
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.0.as_deref_mut().expect("only `close` takes it, and consumes this")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(mut connection) = self.0.take() {
            // The pool waits for the end of an abandoned read. If that takes too long, the
            // connection is closed, because no task polls this future any longer.
            let back = connection.return_to_pool();
            tokio::spawn(async move { timeout(CHECK_TIMEOUT, back).await });
        }
    }
}

impl<'p> Executor<'p> for &'_ Pool {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>>>
    where
        E: 'q + Execute<'q, Postgres>,
    {
        let pool = self.clone();
        let all = async move {
            let mut connection = pool.acquire().await?;
            connection.fetch_many(query).try_collect::<Vec<_>>().await
        };
        stream::once(all).map_ok(|all| stream::iter(all.into_iter().map(Ok))).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>>>
    where
        E: 'q + Execute<'q, Postgres>,
    {
        let pool = self.clone();
        Box::pin(async move { pool.acquire().await?.fetch_optional(query).await })
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, Result<PgStatement>>
    where
        'p: 'e,
    {
        let pool = self.clone();
        Box::pin(async move { pool.acquire().await?.prepare_with(sql, parameters).await })
    }
}
