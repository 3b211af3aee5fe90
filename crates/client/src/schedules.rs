//! What is submitted later, as calls: schedules and workflows.

use agenix_protocol::request::{Page, Request};
use serde_json::value::RawValue;

use crate::{
    calls::{field, optional_document, texts},
    connection::Connection,
    error::ClientError,
};

/// What agq answered to a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSchedule {
    /// Its name.
    pub name: String,
    /// When it submits first, RFC 3339.
    pub next_run_at: String,
}

/// What agq answered to a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedWorkflow {
    /// The workflow.
    pub workflow_id: String,
    /// How many steps it has.
    pub steps: u64,
}

/// All of a list.
fn all() -> Page {
    Page { limit: usize::MAX, ..Page::default() }
}

impl Connection {
    /// SCHEDULE.SET; the schedule as JSON.
    pub async fn set_schedule(&mut self, json: Vec<u8>) -> Result<SavedSchedule, ClientError> {
        let reply = self.call(&Request::ScheduleSet { schedule: json.into() }).await?;
        Ok(SavedSchedule { name: field(&reply, "name")?, next_run_at: field(&reply, "next_run_at")? })
    }

    /// SCHEDULE.GET
    pub async fn schedule(&mut self, name: &str) -> Result<Option<Box<RawValue>>, ClientError> {
        optional_document(self.call(&Request::ScheduleGet { name: name.to_owned() }).await?)
    }

    /// SCHEDULE.LIST: all of them.
    pub async fn schedules(&mut self) -> Result<Vec<String>, ClientError> {
        texts(self.call(&Request::ScheduleList { page: all() }).await?)
    }

    /// SCHEDULE.DELETE; whether there was one.
    pub async fn delete_schedule(&mut self, name: &str) -> Result<bool, ClientError> {
        let reply = self.call(&Request::ScheduleDelete { name: name.to_owned() }).await?;
        Ok(reply == redis::Value::Int(1))
    }

    /// WORKFLOW.SUBMIT; the workflow as JSON.
    pub async fn submit_workflow(&mut self, json: Vec<u8>) -> Result<SubmittedWorkflow, ClientError> {
        let reply = self.call(&Request::WorkflowSubmit { workflow: json.into() }).await?;
        Ok(SubmittedWorkflow { workflow_id: field(&reply, "workflow_id")?, steps: field(&reply, "steps")? })
    }

    /// WORKFLOW.STATUS
    pub async fn workflow(&mut self, workflow_id: &str) -> Result<Option<Box<RawValue>>, ClientError> {
        let request = Request::WorkflowStatus { workflow_id: workflow_id.to_owned() };
        optional_document(self.call(&request).await?)
    }

    /// WORKFLOW.LIST: all of them.
    pub async fn workflows(&mut self) -> Result<Vec<String>, ClientError> {
        texts(self.call(&Request::WorkflowList { page: all() }).await?)
    }

    /// WORKFLOW.CANCEL
    pub async fn cancel_workflow(&mut self, workflow_id: &str) -> Result<(), ClientError> {
        self.call(&Request::WorkflowCancel { workflow_id: workflow_id.to_owned() }).await.map(drop)
    }
}
