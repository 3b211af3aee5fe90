//! A connection that is made again when agq goes away and comes back. Only for calls that may be repeated.

use std::time::Duration;

use agenix_client::{Backoff, ClientError, Connection, Server};
use agenix_protocol::{
    documents::{ActionStatus, ActionSubmission, Plan, QueueStats},
    ids::{ActionId, PlanId},
};
use tokio::time::{Instant, sleep};

use crate::output::Output;

/// How long agq may be away before we give up on it.
const PATIENCE: Duration = Duration::from_secs(600);

/// The connection, and how to get another.
pub(crate) struct Patient {
    server: Server,
    connection: Option<Connection>,
    output: Output,
}

impl Patient {
    pub(crate) fn new(server: Server, connection: Connection, output: Output) -> Self {
        Self { server, connection: Some(connection), output }
    }

    /// ACTION.STATUS
    pub(crate) async fn action(&mut self, action_id: &ActionId) -> Result<Option<ActionStatus>, ClientError> {
        self.insist(async |connection| connection.action(action_id).await).await
    }

    /// ACTION.SUBMIT. The submission bears an id, so that agq knows it when it comes again.
    pub(crate) async fn submit(
        &mut self,
        action: &ActionSubmission,
    ) -> Result<agenix_client::Submitted, ClientError> {
        self.insist(async |connection| connection.submit_action(action).await).await
    }

    /// ACTION.ADD, at a place of the action, so that agq knows the inputs when they come again.
    pub(crate) async fn add_inputs(
        &mut self,
        action_id: &ActionId,
        inputs: String,
        at: u64,
    ) -> Result<u64, ClientError> {
        self.insist(async |connection| connection.add_inputs(action_id, inputs.clone(), at).await).await
    }

    /// ACTION.CLOSE
    pub(crate) async fn close_action(&mut self, action_id: &ActionId) -> Result<(), ClientError> {
        self.insist(async |connection| connection.close_action(action_id).await).await
    }

    /// PLAN.GET
    pub(crate) async fn plan(&mut self, plan_id: &PlanId) -> Result<Option<Plan>, ClientError> {
        self.insist(async |connection| connection.plan(plan_id).await).await
    }

    /// QUEUE.STATS
    pub(crate) async fn queue_stats(&mut self) -> Result<QueueStats, ClientError> {
        self.insist(async |connection| connection.queue_stats().await).await
    }

    async fn insist<T>(
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
                Err(error) if error.is_connection() => error,
                other => return other,
            };
            self.connection = None;
            if since.is_none() {
                self.output.note(&format!("agx: {error}; waiting for it to come back"));
            }
            let since: &mut Instant = since.get_or_insert_with(Instant::now);
            if since.elapsed() > PATIENCE {
                return Err(error);
            }
            sleep(backoff.next_wait()).await;
        }
    }
}
