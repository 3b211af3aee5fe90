//! A connection of the writer's thread: queries one after the other, each waited for on the spot.

use std::cell::RefCell;

use sqlx::{
    Error, PgConnection, Postgres,
    pool::PoolConnection,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use tokio::runtime::Handle;

/// A query with its arguments.
pub(super) type Sql<'q> = Query<'q, Postgres, PgArguments>;

/// A connection, inside a transaction or not.
pub(super) struct Session {
    connection: RefCell<PoolConnection<Postgres>>,
    runtime: Handle,
}

impl Session {
    /// Must not be used on a thread of the runtime.
    pub(super) fn new(connection: PoolConnection<Postgres>, runtime: Handle) -> Self {
        Self { connection: RefCell::new(connection), runtime }
    }

    /// Closes it: nobody is to use it again.
    pub(super) fn give_up(self) {
        let mut connection = self.connection.into_inner();
        connection.close_on_drop();
    }

    /// Rows that a query finds.
    pub(super) fn rows(&self, sql: Sql<'_>) -> Result<Vec<PgRow>, Error> {
        self.on(async |connection| sql.fetch_all(connection).await)
    }

    /// The row that a query finds, or none.
    pub(super) fn row(&self, sql: Sql<'_>) -> Result<Option<PgRow>, Error> {
        self.on(async |connection| sql.fetch_optional(connection).await)
    }

    /// How many rows a statement was about.
    pub(super) fn run(&self, sql: Sql<'_>) -> Result<u64, Error> {
        self.on(async |connection| Ok(sql.execute(connection).await?.rows_affected()))
    }

    /// Several statements in one message, without arguments.
    pub(super) fn script(&self, sql: &'static str) -> Result<(), Error> {
        self.on(async |connection| sqlx::raw_sql(sql).execute(connection).await.map(drop))
    }

    fn on<T>(&self, work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>) -> Result<T, Error> {
        self.runtime.block_on(work(&mut self.connection.borrow_mut()))
    }
}
