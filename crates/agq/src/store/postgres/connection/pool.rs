//! Pool of connections for reads.
//!
//! A connection is checked before its use, unless it has just been in use and no connection of this
//! node has failed since. A connection is also checked after a use that was abandoned. The checks
//! are bounded, because a peer may vanish without closing its connection, and the place of that
//! connection in the pool must not be lost.

use std::{
    fmt,
    io::ErrorKind,
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use deadpool::managed::{
    Manager, Metrics, Object, PoolConfig, PoolError, QueueMode, RecycleError, RecycleResult,
};
use futures_util::{
    StreamExt, TryStreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use sqlx::{
    Connection, Either, Error, Execute, Executor, PgConnection, Postgres, Result, SqlStr,
    postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo},
    query_scalar,
};
use tokio::time::{sleep, timeout};

use crate::store::postgres::{
    CONNECT_TIMEOUT,
    connection::{
        errors::is_disconnect,
        open::{ConnectOptions, TAKES_WRITES},
    },
};

/// Maximum duration of a check of a connection. The rest of `CONNECT_TIMEOUT` is for a new
/// connection.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after the latest answer of a connection for which it needs no check, because the server
/// has hardly had the time to go away.
const IN_USE: Duration = Duration::from_millis(100);
/// Maximum time between two checks of a connection in use. After a failover an old primary may
/// still be there, and answer from its old data.
const MAX_UNCHECKED: Duration = Duration::from_secs(1);
/// Age at which a connection is replaced, because another address may lead to the database by then.
const MAX_AGE: Duration = Duration::from_secs(30 * 60);
/// Delay between attempts to connect to a server that is starting.
const RETRY_DELAY: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(crate) struct Pool(deadpool::managed::Pool<Connector>);

/// Shows no options, because they have the password.
impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// Opens and checks the connections of a pool.
pub(crate) struct Connector {
    access: ConnectOptions,
    /// Time of the latest failure of a connection of this node, which other connections may share.
    failed_at: Mutex<Option<Instant>>,
}

impl Connector {
    fn failed_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.failed_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connection of a pool.
pub(crate) struct Checked {
    connection: PgConnection,
    checked_at: Instant,
    /// Time of the latest answer.
    answered_at: Instant,
    /// True if an answer may be missing.
    is_busy: bool,
}

impl Checked {
    /// Records that the connection has answered everything.
    fn note_answer(&mut self) {
        (self.is_busy, self.answered_at) = (false, Instant::now());
    }
}

impl Manager for Connector {
    type Type = Checked;
    type Error = Error;

    /// Opens a connection. Waits for a server that is starting, or that takes no writes yet.
    async fn create(&self) -> Result<Checked> {
        loop {
            match self.access.connect().await {
                Ok(connection) => {
                    let now = Instant::now();
                    return Ok(Checked { connection, checked_at: now, answered_at: now, is_busy: false });
                }
                Err(error) if is_starting(&error) => sleep(RETRY_DELAY).await,
                Err(error) => return Err(error),
            }
        }
    }

    async fn recycle(&self, one: &mut Checked, metrics: &Metrics) -> RecycleResult<Error> {
        if metrics.age() > MAX_AGE {
            return Err(RecycleError::message("the connection is too old"));
        }
        let has_failed = self.failed_at().is_some_and(|failed_at| failed_at >= one.checked_at);
        if !has_failed && one.answered_at.elapsed() < IN_USE && one.checked_at.elapsed() < MAX_UNCHECKED {
            return Ok(());
        }
        let asked = query_scalar::<_, bool>(TAKES_WRITES).fetch_one(&mut one.connection);
        match timeout(CHECK_TIMEOUT, asked).await {
            Ok(Ok(true)) => {
                one.checked_at = Instant::now();
                Ok(())
            }
            Ok(Ok(false)) => Err(RecycleError::message("the server takes no writes")),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(RecycleError::message("the server does not answer")),
        }
    }
}

/// Returns true if a server may be starting, or may be about to take writes.
fn is_starting(error: &Error) -> bool {
    match error {
        Error::Io(error) => matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::Other),
        Error::Database(error) => error.code().is_some_and(|code| code == "57P03"),
        _ => false,
    }
}

impl Pool {
    /// Creates a pool, which opens at most `most` connections when they are needed.
    pub(crate) fn new(access: ConnectOptions, most: u32) -> Self {
        let mut config = PoolConfig::new(usize::try_from(most).unwrap_or(usize::MAX));
        // The connection of the latest read needs no check.
        config.queue_mode = QueueMode::Lifo;
        let connector = Connector { access, failed_at: Mutex::default() };
        let pool = deadpool::managed::Pool::builder(connector).config(config).build();
        Self(pool.expect("only timeouts need a runtime, and there are none"))
    }

    /// Records `error` of a connection of this node. If the error shows that the server is gone or
    /// takes no writes, all connections are checked before their next use.
    pub(crate) fn note(&self, error: &Error) {
        if is_disconnect(error) {
            *self.0.manager().failed_at() = Some(Instant::now());
        }
    }

    pub(crate) async fn acquire(&self) -> Result<Pooled> {
        let got = timeout(CONNECT_TIMEOUT, self.0.get()).await.map_err(|_| Error::PoolTimedOut)?;
        let mut object = got.map_err(|error| match error {
            PoolError::Backend(error) => error,
            _ => Error::PoolClosed,
        })?;
        object.is_busy = true;
        Ok(Pooled(Some(object)))
    }

    /// Gives back a connection that has answered everything, or that has failed.
    fn give_back<T>(&self, mut connection: Pooled, result: Result<T>) -> Result<T> {
        match (&result, &mut connection.0) {
            (Ok(_), Some(object)) => object.note_answer(),
            (Ok(_), None) => {}
            (Err(error), _) => self.note(error),
        }
        result
    }

    #[cfg(test)]
    pub(crate) fn most(&self) -> usize {
        self.0.status().max_size
    }

    #[cfg(test)]
    pub(crate) fn idle(&self) -> usize {
        self.0.status().available
    }
}

/// Connection that returns to its pool when dropped, which must be on a thread of a runtime.
pub(crate) struct Pooled(
    /// `None` once the connection has been closed.
    Option<Object<Connector>>,
);

impl Pooled {
    /// Closes the connection, and gives its place in the pool free.
    pub(crate) fn close(mut self) {
        self.0.take().map(Object::take);
    }
}

impl Deref for Pooled {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0.as_ref().expect("only `close` takes it, and consumes this").connection
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0.as_mut().expect("only `close` takes it, and consumes this").connection
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(mut object) = self.0.take().filter(|object| object.is_busy) else { return };
        // The place in the pool waits for the end of an abandoned read. If that takes too long, the
        // connection is closed.
        tokio::spawn(async move {
            let is_idle = matches!(timeout(CHECK_TIMEOUT, object.connection.ping()).await, Ok(Ok(())));
            if is_idle {
                object.note_answer();
            } else {
                drop(Object::take(object));
            }
        });
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
            let all = connection.fetch_many(query).try_collect::<Vec<_>>().await;
            pool.give_back(connection, all)
        };
        stream::once(all).map_ok(|all| stream::iter(all.into_iter().map(Ok))).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>>>
    where
        E: 'q + Execute<'q, Postgres>,
    {
        let pool = self.clone();
        Box::pin(async move {
            let mut connection = pool.acquire().await?;
            let row = connection.fetch_optional(query).await;
            pool.give_back(connection, row)
        })
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, Result<PgStatement>>
    where
        'p: 'e,
    {
        let pool = self.clone();
        Box::pin(async move { pool.acquire().await?.prepare_with(sql, parameters).await })
    }
}
