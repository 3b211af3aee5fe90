//! Typed calls for queues, budgets and the state of agq.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::{BudgetStatus, QueueStats},
    ids::QueueName,
    request::Request,
    time::Timestamp,
};
use redis::FromRedisValue;

use crate::{
    connection::Connection,
    error::ClientError,
    replies::{optional_document, unexpected},
};

impl Connection {
    /// QUEUE.PAUSE, or QUEUE.RESUME if `pauses` is false.
    pub async fn pause_queue(&mut self, queue: &QueueName, pauses: bool) -> Result<(), ClientError> {
        let queue = queue.clone();
        let request = if pauses { Request::QueuePause { queue } } else { Request::QueueResume { queue } };
        self.call(&request).await.map(drop)
    }

    /// QUEUE.STATS of all queues.
    pub async fn queue_stats(&mut self) -> Result<QueueStats, ClientError> {
        let reply = self.call(&Request::QueueStats { queue: None }).await?;
        optional_document(reply)?.ok_or_else(|| ClientError::Unexpected("no statistics".into()))
    }

    /// BUDGET.GET: the budget with a name, or all that the key may see.
    pub async fn budgets(&mut self, name: Option<&str>) -> Result<Vec<BudgetStatus>, ClientError> {
        let reply = self.call(&Request::BudgetGet { name: name.map(str::to_owned) }).await?;
        Ok(optional_document(reply)?.unwrap_or_default())
    }

    /// INFO. Returns the fields of the reply by name.
    pub async fn info(&mut self) -> Result<BTreeMap<String, String>, ClientError> {
        let reply = self.call(&Request::Info { sections: Vec::new() }).await?;
        let text = String::from_redis_value(reply).map_err(|error| unexpected(&error))?;
        let field =
            |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(text.lines().filter_map(field).collect())
    }

    /// INFO. Returns the time of agq, or `None` if the reply has none.
    pub async fn time(&mut self) -> Result<Option<Timestamp>, ClientError> {
        let info = self.info().await?;
        let usec = info.get("server_time_usec").and_then(|usec| usec.parse::<u64>().ok());
        Ok(usec.map(|usec| Timestamp(usec / 1000)))
    }
}
