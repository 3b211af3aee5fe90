//! Opens connections to the database, sets up each session before its first use, and refuses unfit
//! servers and poolers.

use std::{fmt::Write, sync::Arc, time::Duration};

use sqlx::{
    AssertSqlSafe, Connection, Error, PgConnection, PgPool, Result, Row,
    postgres::{PgConnectOptions, PgPoolOptions},
    raw_sql,
};

use crate::store::postgres::{CONNECT_TIMEOUT, connection::timeout::within};

/// Maximum time between two statements of a transaction. Only the work of agq takes place in that
/// time, and a large submission needs some time.
const MAX_PAUSE: Duration = Duration::from_secs(15);
pub(crate) const TAKES_WRITES: &str =
    "SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'";
/// Name of a setting that no other program uses, which reveals a pooler.
const PROBE: &str = "agq.probe";

#[derive(Clone)]
pub(crate) struct ConnectOptions {
    options: PgConnectOptions,
    /// Script that sets what the statements rely on, whatever the defaults of the role or the
    /// database are. The settings are a script and no startup options, because poolers drop or
    /// refuse startup options.
    settings: Arc<str>,
}

impl ConnectOptions {
    /// Creates an access. `timeout` is the maximum time of a statement; `None` means no bound.
    pub(crate) fn new(options: PgConnectOptions, timeout: Option<Duration>) -> Self {
        // A pooler does not accept this setting as a startup parameter.
        let options = options.extra_float_digits(None);
        let pause = timeout.map_or(Duration::ZERO, |timeout| timeout.min(MAX_PAUSE));
        let timeout = timeout.unwrap_or_default();
        let mut settings = String::new();
        for (name, value) in [
            ("statement_timeout", timeout.as_millis().to_string().as_str()),
            ("idle_in_transaction_session_timeout", &pause.as_millis().to_string()),
            // A connection that listens is idle for as long as nothing happens.
            ("idle_session_timeout", "0"),
            ("search_path", "pg_catalog"),
            // Round trips write values as literals, and read rows as text.
            ("client_encoding", "UTF8"),
            ("standard_conforming_strings", "on"),
            ("bytea_output", "hex"),
            ("default_transaction_isolation", "read committed"),
            // JIT compilation takes far longer than any statement of agq.
            ("jit", "off"),
        ] {
            set(&mut settings, name, value);
        }
        // Durable writes are on disk even if the default of the role is not to wait for the disk.
        // The session keeps a stronger setting.
        settings.push_str(
            "SELECT set_config('synchronous_commit', 'on', false) \
             WHERE current_setting('synchronous_commit') = 'off'; ",
        );
        Self { options, settings: settings.into() }
    }

    /// Opens a connection to a server that takes writes.
    pub(crate) async fn connect(&self) -> Result<PgConnection> {
        self.connect_with(&[]).await
    }

    /// Opens a connection to a server that takes writes, with further settings of the session.
    pub(crate) async fn connect_with(&self, more: &[(&str, &str)]) -> Result<PgConnection> {
        within(CONNECT_TIMEOUT, async {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            self.prepare(&mut connection, more).await?;
            Ok(connection)
        })
        .await
    }

    /// Opens a connection to any server, because a standby can be read, too.
    pub(crate) async fn connect_to_read(&self) -> Result<PgConnection> {
        within(CONNECT_TIMEOUT, async {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            self.set_up(&mut connection, &[]).await?;
            Ok(connection)
        })
        .await
    }

    /// Creates a pool for a listener, which keeps its connection.
    pub(crate) fn pool_of_listener(&self) -> PgPool {
        let access = self.clone();
        PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_connect(move |connection, _| {
                let access = access.clone();
                Box::pin(async move { access.prepare(connection, &[]).await })
            })
            .connect_lazy_with(self.options.clone())
    }

    async fn prepare(&self, connection: &mut PgConnection, more: &[(&str, &str)]) -> Result<()> {
        self.set_up(connection, more).await?;
        let sql = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'";
        let row = raw_sql(sql).fetch_one(connection).await?;
        let (is_standby, is_read_only): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
        let why = match (is_standby, is_read_only) {
            (true, _) => "this server is a standby, which takes no writes",
            (_, true) => {
                "this server takes no writes: default_transaction_read_only is on for it, the database or the role"
            }
            _ => return Ok(()),
        };
        Err(Error::Io(std::io::Error::other(why)))
    }

    async fn set_up(&self, connection: &mut PgConnection, more: &[(&str, &str)]) -> Result<()> {
        let mut script = self.settings.to_string();
        for (name, value) in more {
            set(&mut script, name, value);
        }
        raw_sql(AssertSqlSafe(script)).execute(connection).await.map(drop)
    }

    /// Returns true if a pooler assigns its connections per transaction, because settings of a
    /// session are then unreliable.
    ///
    /// Behind such a pooler, the second connection sees the setting of the first one. If the second
    /// one holds a transaction instead, the first one no longer sees its own setting.
    pub(crate) async fn is_pooled_by_transaction(&self) -> Result<bool> {
        within(CONNECT_TIMEOUT * 2, async {
            let mut first = PgConnection::connect_with(&self.options).await?;
            let mut second = PgConnection::connect_with(&self.options).await?;
            let token = format!("{:016x}", fastrand::u64(..));
            set_probe(&mut first, &token).await?;
            raw_sql("BEGIN").execute(&mut second).await?;
            let is_seen = probe(&mut second).await? == token;
            let is_pooled = is_seen || probe(&mut first).await? != token;
            raw_sql("ROLLBACK").execute(&mut second).await?;
            for connection in [&mut first, &mut second] {
                set_probe(connection, "").await?;
            }
            first.close().await?;
            second.close().await?;
            Ok(is_pooled)
        })
        .await
    }
}

/// Appends a setting to `script`. Names and values need no escapes, because agq chose them.
fn set(script: &mut String, name: &str, value: &str) {
    let _always_written = write!(script, "SET {name} TO '{value}'; ");
}

async fn set_probe(connection: &mut PgConnection, value: &str) -> Result<()> {
    let sql = format!("SET {PROBE} TO '{value}'");
    raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

/// Reads `PROBE` without a prepared statement, which would fail behind such a pooler.
async fn probe(connection: &mut PgConnection) -> Result<String> {
    let sql = format!("SELECT coalesce(current_setting('{PROBE}', true), '')");
    raw_sql(AssertSqlSafe(sql)).fetch_one(connection).await?.try_get(0)
}
