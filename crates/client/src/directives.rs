//! Subscription to the channel of a worker's directives. A message asks the worker for an early
//! heartbeat, for the output of a job, or for unstarted jobs.

use std::time::Duration;

use agenix_protocol::{
    documents::{OutputCall, OutputRequest, WithdrawCall, parse},
    ids::{ActionId, WorkerId},
    reserved_keys::directives_channel,
};
use futures_util::StreamExt;
use redis::{
    RedisError, Value,
    aio::{PubSubSink, PubSubStream},
};
use tokio::time::timeout;

use crate::{connection::Server, error::ClientError};

/// Timeout of the subscription and of a ping.
const ANSWER_BOUND: Duration = Duration::from_secs(10);
/// Silence before a ping, because a network may drop idle connections.
const SILENCE: Duration = Duration::from_secs(30);

/// Message of agq to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectiveMessage {
    /// agq has directives, which the next heartbeat returns. Unknown messages count as this
    /// message.
    Directives,
    /// A client follows the output of a job.
    Output(OutputRequest),
    /// The worker should give up the claimed, unstarted jobs of this action.
    Withdraw(ActionId),
}

impl DirectiveMessage {
    fn read(message: &[u8]) -> Self {
        let output = || Some(Self::Output(parse::<OutputCall>(message).ok()?.output));
        let withdraw = || Some(Self::Withdraw(parse::<WithdrawCall>(message).ok()?.withdraw));
        output().or_else(withdraw).unwrap_or(Self::Directives)
    }
}

/// Connection that receives the messages for one worker.
pub struct DirectiveSubscription {
    address: String,
    /// Sink for pings.
    sink: PubSubSink,
    calls: PubSubStream,
}

impl DirectiveSubscription {
    /// Connects and subscribes; after 10 s without a reply, [`ClientError::Unreachable`].
    pub async fn open(server: &Server, worker_id: &WorkerId) -> Result<Self, ClientError> {
        let address = server.address();
        let client = server.client()?;
        let opened = async {
            let mut subscribed = client.get_async_pubsub().await?;
            subscribed.subscribe(directives_channel(worker_id.as_str())).await?;
            Ok::<_, RedisError>(subscribed.split())
        };
        let opened = timeout(ANSWER_BOUND, opened).await.map_err(|_| silent(&address))?;
        let (sink, calls) = opened.map_err(|error| ClientError::from_redis(&address, &error))?;
        Ok(Self { address, sink, calls })
    }

    /// Waits for the next message. After an error, the subscription is lost.
    pub async fn next(&mut self) -> Result<DirectiveMessage, ClientError> {
        loop {
            match timeout(SILENCE, self.calls.next()).await {
                Ok(Some(call)) => return Ok(DirectiveMessage::read(call.get_payload_bytes())),
                Ok(None) => {
                    let reason = "the connection was closed".into();
                    return Err(ClientError::Unreachable { address: self.address.clone(), reason });
                }
                Err(_silence) => {
                    let alive = timeout(ANSWER_BOUND, self.sink.ping::<Value>()).await;
                    let alive = alive.map_err(|_| silent(&self.address))?;
                    alive.map_err(|error| ClientError::from_redis(&self.address, &error))?;
                }
            }
        }
    }
}

fn silent(address: &str) -> ClientError {
    ClientError::Unreachable { address: address.to_owned(), reason: "it did not answer in time".into() }
}

#[cfg(test)]
mod tests {
    use super::DirectiveMessage;

    #[test]
    fn unknown_messages_count_as_directives() {
        assert_eq!(DirectiveMessage::read(b"heartbeat"), DirectiveMessage::Directives);
        assert_eq!(DirectiveMessage::read(br#"{"dance":{}}"#), DirectiveMessage::Directives);
        assert_eq!(
            DirectiveMessage::read(br#"{"withdraw":"a"}"#),
            DirectiveMessage::Withdraw("a".parse().unwrap())
        );
        let asked = DirectiveMessage::read(br#"{"output":{"request_id":"r","job_id":"j","position":{}}}"#);
        assert!(matches!(asked, DirectiveMessage::Output(request) if request.request_id == "r"), "misread");
    }
}
