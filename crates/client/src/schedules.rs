//! Typed calls for schedules and workflows.

use agenix_protocol::request::{Page, Request};
use serde_json::value::RawValue;

use crate::{
    connection::Connection,
    error::ClientError,
    replies::{field, optional_document, texts},
};

/// Reply to SCHEDULE.SET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSchedule {
    /// Name of the schedule.
    pub name: String,
    /// Time of the first submission, RFC 3339.
    pub next_run_at: String,
}

/// Reply to WORKFLOW.SUBMIT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedWorkflow {
    /// Id of the workflow.
    pub workflow_id: String,
    /// Number of steps of the workflow.
    pub steps: u64,
}

fn all() -> Page {
    Page { limit: usize::MAX, ..Page::default() }
}

impl Connection {
    /// SCHEDULE.SET of a schedule in JSON.
    pub async fn set_schedule(&mut self, json: Vec<u8>) -> Result<SavedSchedule, ClientError> {
        let reply = self.call(&Request::ScheduleSet { schedule: json.into() }).await?;
        Ok(SavedSchedule { name: field(&reply, "name")?, next_run_at: field(&reply, "next_run_at")? })
    }

    /// SCHEDULE.GET. Returns `None` if the schedule does not exist.
    pub async fn schedule(&mut self, name: &str) -> Result<Option<Box<RawValue>>, ClientError> {
        optional_document(self.call(&Request::ScheduleGet { name: name.to_owned() }).await?)
    }

    /// SCHEDULE.LIST. Returns the names of all schedules.
    pub async fn schedules(&mut self) -> Result<Vec<String>, ClientError> {
        texts(self.call(&Request::ScheduleList { page: all() }).await?)
    }

    /// SCHEDULE.DELETE. Returns false if the schedule does not exist.
    pub async fn delete_schedule(&mut self, name: &str) -> Result<bool, ClientError> {
        let reply = self.call(&Request::ScheduleDelete { name: name.to_owned() }).await?;
        Ok(reply == redis::Value::Int(1))
    }

    /// WORKFLOW.SUBMIT of a workflow in JSON.
    pub async fn submit_workflow(&mut self, json: Vec<u8>) -> Result<SubmittedWorkflow, ClientError> {
        let reply = self.call(&Request::WorkflowSubmit { workflow: json.into() }).await?;
        Ok(SubmittedWorkflow { workflow_id: field(&reply, "workflow_id")?, steps: field(&reply, "steps")? })
    }

    /// WORKFLOW.STATUS. Returns `None` if the workflow does not exist.
    pub async fn workflow(&mut self, workflow_id: &str) -> Result<Option<Box<RawValue>>, ClientError> {
        let request = Request::WorkflowStatus { workflow_id: workflow_id.to_owned() };
        optional_document(self.call(&request).await?)
    }

    /// WORKFLOW.LIST. Returns the ids of all workflows.
    pub async fn workflows(&mut self) -> Result<Vec<String>, ClientError> {
        texts(self.call(&Request::WorkflowList { page: all() }).await?)
    }

    /// WORKFLOW.CANCEL.
    pub async fn cancel_workflow(&mut self, workflow_id: &str) -> Result<(), ClientError> {
        self.call(&Request::WorkflowCancel { workflow_id: workflow_id.to_owned() }).await.map(drop)
    }
}
