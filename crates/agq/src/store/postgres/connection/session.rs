//! Blocking session for threads without a runtime: runs one query after the other, and waits for
//! each answer.

use std::{cell::RefCell, collections::HashSet, time::Duration};

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, Error, PgConnection, Result, postgres::PgRow, query, raw_sql};
use tokio::runtime::{Handle, Runtime};

use super::{
    pool::{Pool, Pooled},
    round_trip::{Answers, RoundTrip, RoundTripFailure, Sql, run_script},
    timeout::within,
};

pub(crate) struct DatabaseSession {
    // Dropped before the reactor, which the connection needs.
    connection: RefCell<SessionConnection>,
    reactor: Reactor,
    timeout: Duration,
    /// Names of the statements of round trips that are prepared.
    prepared: RefCell<HashSet<&'static str>>,
    #[cfg(test)]
    round_trips: std::cell::Cell<u64>,
}

enum SessionConnection {
    Own(Box<PgConnection>),
    Pooled(Pooled),
}

enum Reactor {
    /// Runtime of this thread, so that an answer wakes no other thread.
    Own(Runtime),
    Shared(Handle),
}

impl DatabaseSession {
    /// Opens a session that owns its connection. Must not be used on a thread of another runtime.
    pub(crate) fn connect(
        connecting: impl Future<Output = Result<PgConnection>>,
        timeout: Duration,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connection = SessionConnection::Own(Box::new(runtime.block_on(connecting)?));
        Ok(Self::new(connection, Reactor::Own(runtime), timeout))
    }

    /// Opens a session on a connection of a pool, not for threads of the pool's runtime.
    pub(crate) fn borrow(pool: &Pool, runtime: Handle, timeout: Duration) -> Result<Self> {
        let connection = SessionConnection::Pooled(runtime.block_on(pool.acquire())?);
        Ok(Self::new(connection, Reactor::Shared(runtime), timeout))
    }

    fn new(connection: SessionConnection, reactor: Reactor, timeout: Duration) -> Self {
        Self {
            connection: RefCell::new(connection),
            reactor,
            timeout,
            prepared: RefCell::default(),
            #[cfg(test)]
            round_trips: std::cell::Cell::default(),
        }
    }

    /// Returns the number of messages that the session has sent and waited for.
    #[cfg(test)]
    pub(crate) fn round_trips(&self) -> u64 {
        self.round_trips.get()
    }

    /// Closes the connection, so that it is never used again.
    pub(crate) fn give_up(self) {
        if let SessionConnection::Pooled(connection) = self.connection.into_inner() {
            connection.close();
        }
    }

    pub(crate) fn rows(&self, sql: Sql<'_>) -> Result<Vec<PgRow>> {
        self.on(async |connection| sql.fetch_all(connection).await)
    }

    pub(crate) fn row(&self, sql: Sql<'_>) -> Result<Option<PgRow>> {
        self.on(async |connection| sql.fetch_optional(connection).await)
    }

    /// Runs a statement, and returns the number of affected rows.
    pub(crate) fn run(&self, sql: Sql<'_>) -> Result<u64> {
        self.on(async |connection| Ok(sql.execute(connection).await?.rows_affected()))
    }

    /// Runs several statements without arguments in one message.
    pub(crate) fn script(&self, sql: &'static str) -> Result<()> {
        self.on(async |connection| raw_sql(sql).execute(connection).await.map(drop))
    }

    /// Sends all statements of a round trip, and returns the rows of each.
    pub(crate) fn send(&self, round_trip: RoundTrip) -> Result<Answers, RoundTripFailure> {
        let failed = |error, has_sent_all| RoundTripFailure { error, succeeded: 0, has_sent_all };
        let Some(script) = round_trip.script() else { return self.send_bound(round_trip) };
        let unprepared = round_trip.unprepared(&self.prepared.borrow());
        for statement in unprepared {
            let sql = format!("PREPARE {} AS {}", statement.name, statement.sql);
            let prepared =
                self.on(async |connection| raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop));
            prepared.map_err(|error| failed(error, false))?;
            self.prepared.borrow_mut().insert(statement.name);
        }
        let mut result = Ok(Answers::new());
        let done = self.on(async |connection| {
            result = run_script(connection, script).await;
            Ok(())
        });
        done.map_err(|error| failed(error, true))?;
        result
    }

    /// Sends the statements of a round trip one after the other.
    fn send_bound(&self, round_trip: RoundTrip) -> Result<Answers, RoundTripFailure> {
        let count = round_trip.len();
        let mut answers = Answers::with_capacity(count);
        for sql in round_trip.into_queries() {
            match self.rows(sql) {
                Ok(rows) => answers.push(rows),
                Err(error) => {
                    let succeeded = answers.len();
                    return Err(RoundTripFailure { error, succeeded, has_sent_all: succeeded + 1 == count });
                }
            }
        }
        Ok(answers)
    }

    /// Passes all rows of a query to a closure while they arrive, and holds one of them in memory
    /// at a time. The closure must not use the session.
    pub(crate) fn walk<E: From<Error>>(
        &self,
        sql: &'static str,
        mut each: impl FnMut(&PgRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut result = Ok(());
        self.on(async |connection| {
            let mut rows = query(sql).fetch(connection);
            while result.is_ok()
                && let Some(row) = rows.try_next().await?
            {
                result = each(&row);
            }
            Ok(())
        })?;
        result
    }

    fn on<T>(&self, work: impl AsyncFnOnce(&mut PgConnection) -> Result<T>) -> Result<T> {
        #[cfg(test)]
        self.round_trips.set(self.round_trips.get() + 1);
        let link = &mut *self.connection.borrow_mut();
        let connection = match link {
            SessionConnection::Own(connection) => &mut **connection,
            SessionConnection::Pooled(connection) => &mut **connection,
        };
        let work = async { within(self.timeout, work(connection)).await };
        match &self.reactor {
            Reactor::Own(runtime) => runtime.block_on(work),
            Reactor::Shared(runtime) => runtime.block_on(work),
        }
    }
}
