//! Access to agq: one connection, which is opened again while agq or its database is away for a
//! short time.

use std::time::Duration;

use agenix_client::{ClientError, Connection};
use agenix_protocol::request::Request;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

use crate::{
    error::{Result, ToolError},
    settings::McpServerSettings,
};

/// Time for which a call is repeated while agq or its database cannot be reached. The time is
/// shorter than clients of MCP wait for a tool, because the model has to learn of the failure.
const MAX_ABSENCE: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// agq, as all tools see it.
pub(crate) struct Queue {
    pub(crate) settings: McpServerSettings,
    connection: Mutex<Option<Connection>>,
}

impl Queue {
    pub(crate) fn new(settings: McpServerSettings) -> Self {
        Self { settings, connection: Mutex::new(None) }
    }

    /// Calls agq. After a lost connection or a failure of the store, `call` runs again, so it has
    /// to be idempotent.
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
                Err(error) if error.is_outage() => error,
                other => return Ok(other?),
            };
            *self.connection.lock().await = None;
            self.settings.server.fail_over_after(&error);
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
            if error.is_outage() {
                let away = error.outage_text();
                ToolError::new(
                    format!("{away}; agq may have carried out the command"),
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

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use agenix_client::Server;
    use agenix_protocol::{request::Request, time::Timestamp};

    use super::{McpServerSettings, Queue};

    /// Returns access to an agq that answers PING, and each other command with a failure of its
    /// store.
    fn queue() -> Queue {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                std::thread::spawn(move || {
                    for line in lines.map_while(Result::ok) {
                        match line.as_str() {
                            "AUTH" => stream.write_all(b"+OK\r\n").unwrap(),
                            "PING" => stream.write_all(b"+PONG\r\n").unwrap(),
                            "APPROVAL.LIST" => stream.write_all(b"-ERR the store failed: away\r\n").unwrap(),
                            _ => {}
                        }
                    }
                });
            }
        });
        Queue::new(McpServerSettings {
            server: Server::new(&address, "k".into()).unwrap(),
            version: "0",
            queue: None,
            profile: None,
            cwd: None,
            now: || Timestamp::parse("2026-01-31T08:00:00Z").unwrap(),
            compile: |_| Ok(Vec::new()),
        })
    }

    #[tokio::test]
    async fn idempotent_call_is_repeated_after_a_failure_of_the_store() {
        let (queue, calls) = (queue(), AtomicUsize::new(0));
        let answer = queue
            .call(|mut agq| {
                let is_first = calls.fetch_add(1, Ordering::Relaxed) == 0;
                let asked = if is_first { Request::ApprovalList } else { Request::Ping { message: None } };
                async move { agq.call(&asked).await }
            })
            .await;
        assert!(answer.is_ok(), "{answer:?}");
        assert_eq!(calls.into_inner(), 2);
    }

    #[tokio::test]
    async fn call_that_is_not_idempotent_leaves_the_repetition_to_the_model() {
        let answer = queue().call_once(|mut agq| async move { agq.call(&Request::ApprovalList).await }).await;
        let text = answer.unwrap_err().to_string();
        assert!(
            text.contains("is away or fails: the store failed: away; agq may have carried out"),
            "{text}"
        );
        assert!(text.ends_with("repeat this call only if it shows no change"), "{text}");
    }
}
