//! Typed calls for actions.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::{self, ActionStatus, ActionSubmission},
    ids::ActionId,
    request::{Page, Request},
};

use crate::{
    connection::Connection,
    error::ClientError,
    replies::{field, ids, optional_document},
};

/// Reply to ACTION.SUBMIT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedAction {
    /// Id of the action.
    pub action_id: ActionId,
    /// Number of jobs of the action.
    pub jobs_created: u64,
}

impl Connection {
    /// ACTION.SUBMIT
    pub async fn submit_action(&mut self, action: &ActionSubmission) -> Result<SubmittedAction, ClientError> {
        let action = documents::to_json(action).into();
        let reply = self.call(&Request::ActionSubmit { action }).await?;
        Ok(SubmittedAction {
            action_id: field(&reply, "action_id")?,
            jobs_created: field(&reply, "jobs_created")?,
        })
    }

    /// ACTION.STATUS. Returns `None` if the action does not exist.
    pub async fn action(&mut self, action_id: &ActionId) -> Result<Option<ActionStatus>, ClientError> {
        let reply = self.call(&Request::ActionStatus { action_id: action_id.clone() }).await?;
        optional_document(reply)
    }

    /// ACTION.ADD of a JSON array from index `at`, so it is idempotent. Returns the number of jobs.
    pub async fn add_inputs(
        &mut self,
        action_id: &ActionId,
        inputs: String,
        at: u64,
    ) -> Result<u64, ClientError> {
        let (action_id, inputs) = (action_id.clone(), inputs.into());
        let reply = self.call(&Request::ActionAdd { action_id, inputs, at: Some(at) }).await?;
        field(&reply, "total_jobs")
    }

    /// ACTION.ADD after the last input. Returns the number of jobs that the action has then. A
    /// repetition adds the inputs once more.
    pub async fn append_inputs(&mut self, action_id: &ActionId, inputs: String) -> Result<u64, ClientError> {
        let (action_id, inputs) = (action_id.clone(), inputs.into());
        let reply = self.call(&Request::ActionAdd { action_id, inputs, at: None }).await?;
        field(&reply, "total_jobs")
    }

    /// ACTION.CANCEL. Returns the number of jobs that were cancelled.
    pub async fn cancel_action(&mut self, action_id: &ActionId) -> Result<u64, ClientError> {
        self.cancel_jobs(action_id, false).await
    }

    /// ACTION.CANCEL of unstarted jobs. Returns the number of waiting jobs that the call has ended.
    /// A moment later, workers give up claimed jobs that they have not started.
    pub async fn cancel_unstarted(&mut self, action_id: &ActionId) -> Result<u64, ClientError> {
        self.cancel_jobs(action_id, true).await
    }

    async fn cancel_jobs(&mut self, action_id: &ActionId, unstarted: bool) -> Result<u64, ClientError> {
        let reply = self.call(&Request::ActionCancel { action_id: action_id.clone(), unstarted }).await?;
        field(&reply, "cancelled")
    }

    /// ACTION.RETRY. Returns the number of jobs that are retried.
    pub async fn retry_action(&mut self, action_id: &ActionId) -> Result<u64, ClientError> {
        let reply = self.call(&Request::ActionRetry { action_id: action_id.clone() }).await?;
        field(&reply, "retried")
    }

    /// ACTION.LIST. Returns the ids of all actions.
    pub async fn actions(&mut self) -> Result<Vec<ActionId>, ClientError> {
        self.actions_with(BTreeMap::new()).await
    }

    /// ACTION.LIST. Returns the ids of the actions that have all of `labels`.
    pub async fn actions_with(
        &mut self,
        labels: BTreeMap<String, String>,
    ) -> Result<Vec<ActionId>, ClientError> {
        let page = Page { limit: usize::MAX, ..Page::default() };
        ids(self.call(&Request::ActionList { page, labels }).await?)
    }

    /// ACTION.CLOSE: the action takes no more inputs.
    pub async fn close_action(&mut self, action_id: &ActionId) -> Result<(), ClientError> {
        self.call(&Request::ActionClose { action_id: action_id.clone() }).await.map(drop)
    }
}
