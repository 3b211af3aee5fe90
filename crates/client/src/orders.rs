//! The channel on which agq calls a worker: a message there means that the next heartbeat should not be waited for, or that
//! somebody follows a job.

use std::time::Duration;

use agenix_protocol::{
    documents::{OutputCall, OutputRequest, WithdrawCall, parse},
    ids::{ActionId, WorkerId},
    reserved_keys::orders_channel,
};
use futures_util::StreamExt;
use redis::{
    RedisError, Value,
    aio::{PubSubSink, PubSubStream},
};
use tokio::time::timeout;

use crate::{connection::Server, error::ClientError};

/// How long it may take until the channel is open, and until a sign of life is answered.
const ANSWER_BOUND: Duration = Duration::from_secs(10);
/// How long nothing is heard before agq is asked whether it is still there: a way that nobody uses may be closed.
const SILENCE: Duration = Duration::from_secs(30);

/// What agq calls a worker for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderMessage {
    /// It has orders: a heartbeat brings them. Whatever is not known means that, too.
    Orders,
    /// Somebody wants to know what a job writes.
    Output(OutputRequest),
    /// The worker should give up the jobs of an action that it has claimed and not started.
    Withdraw(ActionId),
}

impl OrderMessage {
    fn read(message: &[u8]) -> Self {
        let output = || Some(Self::Output(parse::<OutputCall>(message).ok()?.output));
        let withdraw = || Some(Self::Withdraw(parse::<WithdrawCall>(message).ok()?.withdraw));
        output().or_else(withdraw).unwrap_or(Self::Orders)
    }
}

/// A connection that listens to the calls for one worker.
pub struct OrderSubscription {
    address: String,
    /// Kept for signs of life.
    sink: PubSubSink,
    calls: PubSubStream,
}

impl OrderSubscription {
    /// Connects, logs in and subscribes.
    pub async fn open(server: &Server, worker_id: &WorkerId) -> Result<Self, ClientError> {
        let address = server.address();
        let client = server.client()?;
        let opened = async {
            let mut subscribed = client.get_async_pubsub().await?;
            subscribed.subscribe(orders_channel(worker_id.as_str())).await?;
            Ok::<_, RedisError>(subscribed.split())
        };
        let opened = timeout(ANSWER_BOUND, opened).await.map_err(|_| silent(&address))?;
        let (sink, calls) = opened.map_err(|error| ClientError::from_redis(&address, &error))?;
        Ok(Self { address, sink, calls })
    }

    /// Waits for the next call. The error means that the connection is of no more use.
    pub async fn next(&mut self) -> Result<OrderMessage, ClientError> {
        loop {
            match timeout(SILENCE, self.calls.next()).await {
                Ok(Some(call)) => return Ok(OrderMessage::read(call.get_payload_bytes())),
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
    use super::OrderMessage;

    #[test]
    fn whatever_is_not_known_means_orders() {
        assert_eq!(OrderMessage::read(b"heartbeat"), OrderMessage::Orders);
        assert_eq!(OrderMessage::read(br#"{"dance":{}}"#), OrderMessage::Orders);
        assert_eq!(OrderMessage::read(br#"{"withdraw":"a"}"#), OrderMessage::Withdraw("a".parse().unwrap()));
        let asked = OrderMessage::read(br#"{"output":{"request_id":"r","job_id":"j","position":{}}}"#);
        assert!(
            matches!(asked, OrderMessage::Output(request) if request.request_id == "r"),
            "it was not understood"
        );
    }
}
