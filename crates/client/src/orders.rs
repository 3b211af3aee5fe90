//! The channel on which agq calls a worker: a message there means that the next heartbeat should not be waited for.

use std::time::Duration;

use agenix_protocol::{ids::WorkerId, names::orders_channel};
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

/// A connection that listens to the calls for one worker.
pub struct OrderCalls {
    address: String,
    /// Kept for signs of life.
    sink: PubSubSink,
    calls: PubSubStream,
}

impl OrderCalls {
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
    pub async fn next(&mut self) -> Result<(), ClientError> {
        loop {
            match timeout(SILENCE, self.calls.next()).await {
                Ok(Some(_call)) => return Ok(()),
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
