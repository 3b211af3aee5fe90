//! Connection that reconnects after a restart of agq or of its database. For idempotent calls only.

use std::time::Duration;

use agenix_client::{Backoff, ClientError, Connection, Server};
use agenix_protocol::{
    documents::{ActionStatus, ActionSubmission, JobStatus, Plan, Status, to_json},
    errors::ErrorKind,
    ids::{ActionId, JobId},
};
use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep};

use crate::output::OutputFormat;

/// Maximum time without agq or its database before the client gives up.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// A connection, and the server for reconnects.
pub(crate) struct RetryingClient {
    server: Server,
    connection: Option<Connection>,
    output: OutputFormat,
}

impl RetryingClient {
    pub(crate) fn new(server: Server, connection: Connection, output: OutputFormat) -> Self {
        Self { server, connection: Some(connection), output }
    }

    /// Returns a client that connects with its first call.
    pub(crate) fn unconnected(server: Server, output: OutputFormat) -> Self {
        Self { server, connection: None, output }
    }

    /// Returns the present connection, for a call that need not survive a restart of agq.
    pub(crate) fn connection(&self) -> Option<Connection> {
        self.connection.clone()
    }

    pub(crate) async fn action(&mut self, action_id: &ActionId) -> Result<Option<ActionStatus>, ClientError> {
        self.with_retry(async |connection| connection.action(action_id).await).await
    }

    /// ACTION.SUBMIT. The id of the action makes the call idempotent.
    pub(crate) async fn submit(
        &mut self,
        action: &ActionSubmission,
    ) -> Result<agenix_client::SubmittedAction, ClientError> {
        self.with_retry(async |connection| connection.submit_action(action).await).await
    }

    /// ACTION.ADD. The position of the inputs makes the call idempotent.
    pub(crate) async fn add_inputs(
        &mut self,
        action_id: &ActionId,
        inputs: String,
        at: u64,
    ) -> Result<u64, ClientError> {
        self.with_retry(async |connection| connection.add_inputs(action_id, inputs.clone(), at).await).await
    }

    pub(crate) async fn close_action(&mut self, action_id: &ActionId) -> Result<(), ClientError> {
        self.with_retry(async |connection| connection.close_action(action_id).await).await
    }

    /// PLAN.SUBMIT of a plan whose id is a digest, so that an existing plan with this id is equal.
    pub(crate) async fn ensure_plan(&mut self, plan: &Plan) -> Result<(), ClientError> {
        let json = to_json(plan).into_bytes();
        let stored = self.with_retry(async |connection| connection.submit_plan(json.clone()).await).await;
        match stored {
            Err(ClientError::Rejected(reason)) if ErrorKind::of(&reason) == ErrorKind::PlanExists => Ok(()),
            other => other.map(drop),
        }
    }

    /// JOB.LIST of the jobs with `status`.
    pub(crate) async fn jobs_of(
        &mut self,
        action: &ActionStatus,
        status: Status,
    ) -> Result<Vec<JobId>, ClientError> {
        self.with_retry(async |connection| connection.jobs(action, Some(status)).await).await
    }

    /// JOB.STATUS of several jobs at once. The results are in the order of `job_ids`.
    pub(crate) async fn jobs(&mut self, job_ids: &[JobId]) -> Result<Vec<Option<JobStatus>>, ClientError> {
        self.with_retry(async |connection| {
            let asked = job_ids.iter().map(|job_id| {
                let mut connection = connection.clone();
                async move { connection.job(job_id).await }
            });
            try_join_all(asked).await
        })
        .await
    }

    pub(crate) async fn cancel_action(&mut self, action_id: &ActionId) -> Result<u64, ClientError> {
        self.with_retry(async |connection| connection.cancel_action(action_id).await).await
    }

    /// Makes an idempotent call, again after each reconnect. If the database of agq is away, the
    /// client reconnects to the next node.
    pub(crate) async fn with_retry<T>(
        &mut self,
        call: impl AsyncFn(&mut Connection) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let (mut backoff, mut since) = (Backoff::default(), None);
        loop {
            let answer = match &mut self.connection {
                Some(connection) => call(connection).await,
                None => match Connection::open(&self.server).await {
                    Ok(mut connection) => {
                        let answer = call(&mut connection).await;
                        self.connection = Some(connection);
                        answer
                    }
                    Err(error) => Err(error),
                },
            };
            let error = match answer {
                Err(error) if error.is_outage() => error,
                other => {
                    // agq closes a connection after a message that is too large, so the client
                    // drops the connection.
                    if matches!(&other, Err(ClientError::Rejected(reason)) if ErrorKind::of(reason) == ErrorKind::MessageTooLarge)
                    {
                        self.connection = None;
                    }
                    return other;
                }
            };
            self.connection = None;
            self.server.fail_over_after(&error);
            if since.is_none() {
                let away = error.outage_text();
                self.output.note(&format!("agx: {away}; waiting for it to come back"));
            }
            let since: &mut Instant = since.get_or_insert_with(Instant::now);
            if since.elapsed() > MAX_WAIT {
                return Err(error);
            }
            sleep(backoff.next_wait()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
    };

    use agenix_client::Server;
    use agenix_protocol::request::Request;

    use super::RetryingClient;
    use crate::output::OutputFormat;

    /// Starts an agq that answers each PING of its first client with `reply`. Returns the address
    /// of this agq.
    fn agq(reply: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                match line.as_str() {
                    "AUTH" => stream.write_all(b"+OK\r\n").unwrap(),
                    "PING" => stream.write_all(reply.as_bytes()).unwrap(),
                    _ => {}
                }
            }
        });
        address
    }

    #[tokio::test]
    async fn client_repeats_a_call_at_the_next_node_if_the_database_is_away() {
        let away = agq("-ERR the store failed: the database cannot be reached; try again in a moment\r\n");
        let there = agq("+PONG\r\n");
        let server = Server::new(&format!("{away},{there}"), "k".into()).unwrap();
        let mut client = RetryingClient::unconnected(server.clone(), OutputFormat::default());
        let call = client.with_retry(async |agq| agq.call(&Request::Ping { message: None }).await);
        let answer = call.await;
        assert!(answer.is_ok(), "{answer:?}");
        assert_eq!(server.address(), there);
    }
}
