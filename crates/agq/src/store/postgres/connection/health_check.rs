//! Health check of the database over a dedicated connection. All callers share one check, and its
//! result is valid for a moment.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sqlx::{Error, Result, query_scalar};
use tokio::{sync::watch, time::Instant};

use crate::store::{
    StoreError,
    postgres::{
        CONNECT_TIMEOUT,
        connection::{
            dedicated::DedicatedConnection,
            open::{ConnectOptions, TAKES_WRITES},
            timeout::within,
        },
    },
};

/// Time for which a result is taken for the present state.
const TIME_TO_LIVE: Duration = Duration::from_secs(1);
/// Maximum time to wait for a result, because probes of orchestrators wait for a second.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(400);

type HealthState = Result<(), StoreError>;

pub(crate) struct HealthCheck {
    dedicated: DedicatedConnection,
    is_asking: AtomicBool,
    state: watch::Sender<Option<(Instant, HealthState)>>,
}

impl HealthCheck {
    pub(crate) fn new(access: ConnectOptions) -> Self {
        Self {
            dedicated: DedicatedConnection::new(access),
            is_asking: AtomicBool::default(),
            state: watch::Sender::default(),
        }
    }

    /// Returns true if the database answers, from a result that is still valid or from a new check.
    pub(crate) async fn check(self: Arc<Self>) -> HealthState {
        let mut state = self.state.subscribe();
        if let Some((at, known)) = &*state.borrow_and_update()
            && at.elapsed() < TIME_TO_LIVE
        {
            return known.clone();
        }
        if !self.is_asking.swap(true, Ordering::AcqRel) {
            // The check is a task of its own, so that a connection that takes longer to open is
            // there for the next caller.
            tokio::spawn(Arc::clone(&self).ask());
        }
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, state.changed()).await;
        match (answered, &*state.borrow()) {
            (Ok(_), Some((_, state))) | (Err(_), Some((_, state @ Err(_)))) => state.clone(),
            _ => Err(StoreError(format!(
                "the database has not answered for {} milliseconds",
                ANSWER_TIMEOUT.as_millis()
            ))),
        }
    }

    async fn ask(self: Arc<Self>) {
        // The server may have closed the kept connection meanwhile.
        let asked = match self.ask_once().await {
            Ok(()) => Ok(()),
            Err(_closed) => self.ask_once().await,
        };
        self.is_asking.store(false, Ordering::Release);
        self.state.send_replace(Some((Instant::now(), asked.map_err(StoreError::from))));
    }

    async fn ask_once(&self) -> Result<()> {
        let mut connection = self.dedicated.take().await?;
        let takes_writes = query_scalar(TAKES_WRITES).fetch_one(&mut connection);
        if !within(CONNECT_TIMEOUT, takes_writes).await? {
            return Err(Error::Io(std::io::Error::other("this server takes no writes any more")));
        }
        self.dedicated.keep(connection);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, sync::Arc};

    use e2e::Database;
    use sqlx::postgres::PgConnectOptions;

    use super::{ConnectOptions, HealthCheck};

    fn health_check(options: PgConnectOptions) -> Arc<HealthCheck> {
        Arc::new(HealthCheck::new(ConnectOptions::new(options, None)))
    }

    #[tokio::test]
    async fn health_check_fails_if_the_database_accepts_but_never_answers() {
        let database = Database::new();
        let there = health_check(database.url().parse().unwrap());
        // The first connection may take longer than a probe waits.
        while Arc::clone(&there).check().await.is_err() {}
        assert!(there.check().await.is_ok());
        // This server accepts connections and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let away = health_check(PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(port));
        // The error comes long before the connection attempt is given up.
        let message = Arc::clone(&away).check().await.unwrap_err().to_string();
        assert_eq!(message, "the store failed: the database has not answered for 400 milliseconds");
    }

    #[tokio::test]
    async fn health_check_reports_why_the_database_is_unreachable() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let away = health_check(PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(closed));
        for _ in 0..2 {
            let message = Arc::clone(&away).check().await.unwrap_err().to_string();
            assert!(message.starts_with("the store failed: the database cannot be reached ("), "{message}");
        }
    }
}
