//! A connection of the writer's thread: queries one after the other, each waited for on the spot.

use std::{cell::RefCell, time::Duration};

use sqlx::{
    AssertSqlSafe, Error, PgConnection, Postgres,
    postgres::{PgArguments, PgRow},
    query,
    query::Query,
};
use tokio::runtime::{Handle, Runtime};

use super::pool::{Pool, Pooled};

/// What work on the database comes to, or that there is no answer. The database itself gives up on a statement; a network that
/// carries nothing says nothing.
pub(crate) async fn within<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(patience, work).await.unwrap_or_else(|_| {
        let text = format!("it has not answered for {} seconds", patience.as_secs());
        Err(Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text)))
    })
}

/// A query with its arguments.
pub(crate) type Sql<'q> = Query<'q, Postgres, PgArguments>;

/// A connection, inside a transaction or not.
pub(crate) struct DatabaseSession {
    // The first to be dropped.
    connection: RefCell<SessionConnection>,
    reactor: Reactor,
    patience: Duration,
}

/// Whose a connection is.
enum SessionConnection {
    Own(Box<PgConnection>),
    Pooled(Pooled),
}

/// What waits for the answers.
enum Reactor {
    /// This thread alone: an answer wakes nobody else.
    Own(Runtime),
    Shared(Handle),
}

impl DatabaseSession {
    /// A connection of this thread's own. Must not be used on a thread of another runtime.
    pub(crate) fn connect(
        connecting: impl Future<Output = Result<PgConnection, Error>>,
        patience: Duration,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connection = RefCell::new(SessionConnection::Own(Box::new(runtime.block_on(connecting)?)));
        Ok(Self { connection, reactor: Reactor::Own(runtime), patience })
    }

    /// One of a pool. Must not be used on a thread of its runtime.
    pub(crate) fn borrow(pool: &Pool, runtime: Handle, patience: Duration) -> Result<Self, Error> {
        let connection = RefCell::new(SessionConnection::Pooled(runtime.block_on(pool.acquire())?));
        Ok(Self { connection, reactor: Reactor::Shared(runtime), patience })
    }

    /// Closes it: nobody is to use it again.
    pub(crate) fn give_up(self) {
        if let SessionConnection::Pooled(connection) = self.connection.into_inner() {
            connection.close();
        }
    }

    /// Rows that a query finds.
    pub(crate) fn rows(&self, sql: Sql<'_>) -> Result<Vec<PgRow>, Error> {
        self.on(async |connection| sql.fetch_all(connection).await)
    }

    /// The row that a query finds, or none.
    pub(crate) fn row(&self, sql: Sql<'_>) -> Result<Option<PgRow>, Error> {
        self.on(async |connection| sql.fetch_optional(connection).await)
    }

    /// How many rows a statement was about.
    pub(crate) fn run(&self, sql: Sql<'_>) -> Result<u64, Error> {
        self.on(async |connection| Ok(sql.execute(connection).await?.rows_affected()))
    }

    /// Several statements in one message, without arguments.
    pub(crate) fn script(&self, sql: &'static str) -> Result<(), Error> {
        self.on(async |connection| sqlx::raw_sql(sql).execute(connection).await.map(drop))
    }

    /// Hands over all rows that a query finds, however many they are: some at a time. Inside a transaction, and one query after the
    /// other.
    pub(crate) fn walk<E: From<Error>>(
        &self,
        sql: &'static str,
        mut each: impl FnMut(&PgRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let declared = AssertSqlSafe(format!("DECLARE walk NO SCROLL CURSOR FOR {sql}"));
        self.on(async |connection| sqlx::raw_sql(declared).execute(connection).await)?;
        loop {
            // What it is prepared for are the rows of this query, not of the next one.
            let rows = self.rows(query("FETCH 1000 FROM walk").persistent(false))?;
            if rows.is_empty() {
                return Ok(self.script("CLOSE walk")?);
            }
            rows.iter().try_for_each(&mut each)?;
        }
    }

    fn on<T>(&self, work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>) -> Result<T, Error> {
        let link = &mut *self.connection.borrow_mut();
        let connection = match link {
            SessionConnection::Own(connection) => &mut **connection,
            SessionConnection::Pooled(connection) => &mut **connection,
        };
        let work = async { within(self.patience, work(connection)).await };
        match &self.reactor {
            Reactor::Own(runtime) => runtime.block_on(work),
            Reactor::Shared(runtime) => runtime.block_on(work),
        }
    }
}
