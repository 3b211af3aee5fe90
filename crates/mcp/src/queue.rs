//! Access to agq: one connection, which is opened again while agq is away for a short time.

use std::time::Duration;

use agenix_client::{ClientError, Connection};
use agenix_protocol::request::Request;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

use crate::{
    error::{Result, ToolError},
    settings::Settings,
};

/// Time for which a call is repeated while agq cannot be reached. It is shorter than clients of MCP
/// wait for a tool, because the model has to learn of the failure.
const MAX_ABSENCE: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// agq, as all tools see it.
pub(crate) struct Queue {
    pub(crate) settings: Settings,
    connection: Mutex<Option<Connection>>,
}

impl Queue {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, connection: Mutex::new(None) }
    }

    /// Calls agq. After a lost connection, `call` runs again, so it has to be idempotent.
    pub(crate) async fn call<T, F>(&self, call: impl Fn(Connection) -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, ClientError>>,
    {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let answered = match self.connection().await {
                Ok(connection) => call(connection).await,
                Err(error) => Err(error),
            };
            let error = match answered {
                Err(error) if error.is_connection() => error,
                other => return Ok(other?),
            };
            *self.connection.lock().await = None;
            if started.elapsed() + pause > MAX_ABSENCE {
                return Err(error.into());
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Calls agq once, because `call` is not idempotent. Only the connection is opened again while
    /// agq is away.
    pub(crate) async fn call_once<T, F>(&self, call: impl FnOnce(Connection) -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, ClientError>>,
    {
        let connection = self
            .call(|mut agq| async move { agq.call(&Request::Ping { message: None }).await.map(|_pong| agq) })
            .await?;
        call(connection).await.map_err(|error| {
            if error.is_connection() {
                ToolError::new(
                    format!("{error}; agq may have carried out the command"),
                    "call agx_status, and repeat this call only if it shows no change",
                )
            } else {
                error.into()
            }
        })
    }

    async fn connection(&self) -> std::result::Result<Connection, ClientError> {
        let mut known = self.connection.lock().await;
        if let Some(connection) = &*known {
            return Ok(connection.clone());
        }
        let opened = Connection::open(&self.settings.server).await?;
        *known = Some(opened.clone());
        Ok(opened)
    }
}
