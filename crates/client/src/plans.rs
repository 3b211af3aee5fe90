//! Typed calls for plans and their approval.

use agenix_protocol::{
    documents::{Approval, Plan, PlanStatus},
    ids::PlanId,
    request::{Page, Request},
};
use redis::{FromRedisValue, Value};

use crate::{
    connection::Connection,
    error::ClientError,
    replies::{document, field, ids, optional_document, texts, unexpected},
};

impl Connection {
    /// PLAN.SUBMIT of a plan in JSON. Returns the id of the plan.
    pub async fn submit_plan(&mut self, json: Vec<u8>) -> Result<PlanId, ClientError> {
        let reply = self.call(&Request::PlanSubmit { plan: json.into() }).await?;
        field(&reply, "plan_id")
    }

    /// PLAN.GET. Returns `None` if the plan does not exist.
    pub async fn plan(&mut self, plan_id: &PlanId) -> Result<Option<Plan>, ClientError> {
        let reply = self.call(&Request::PlanGet { plan_id: plan_id.clone() }).await?;
        optional_document(reply)
    }

    /// PLAN.GET. Returns the text of the plan as agq has it, or `None` if the plan does not exist.
    pub async fn plan_json(&mut self, plan_id: &PlanId) -> Result<Option<String>, ClientError> {
        let reply = self.call(&Request::PlanGet { plan_id: plan_id.clone() }).await?;
        Option::from_redis_value(reply).map_err(|error| unexpected(&error))
    }

    /// PLAN.STATUS. Returns `None` if the plan does not exist.
    pub async fn plan_status(&mut self, plan_id: &PlanId) -> Result<Option<PlanStatus>, ClientError> {
        let reply = self.call(&Request::PlanStatus { plan_id: plan_id.clone() }).await?;
        optional_document(reply)
    }

    /// PLAN.LIST. Returns the ids of all plans.
    pub async fn plans(&mut self) -> Result<Vec<PlanId>, ClientError> {
        let page = Page { limit: usize::MAX, ..Page::default() };
        ids(self.call(&Request::PlanList { page }).await?)
    }

    /// PLAN.DELETE. Returns false if the plan does not exist.
    pub async fn delete_plan(&mut self, plan_id: &PlanId) -> Result<bool, ClientError> {
        let reply = self.call(&Request::PlanDelete { plan_id: plan_id.clone() }).await?;
        Ok(reply == Value::Int(1))
    }

    /// APPROVAL.LIST: the plans that need an approval, with its state.
    pub async fn approvals(&mut self) -> Result<Vec<Approval>, ClientError> {
        texts(self.call(&Request::ApprovalList).await?)?.iter().map(|json| document(json)).collect()
    }

    /// PLAN.APPROVE. Returns the number of released jobs.
    pub async fn approve_plan(&mut self, plan_id: &PlanId, digest: &str) -> Result<u64, ClientError> {
        let (plan_id, digest) = (plan_id.clone(), digest.to_owned());
        count(self.call(&Request::PlanApprove { plan_id, digest }).await?)
    }

    /// PLAN.REJECT. Returns the number of cancelled jobs.
    pub async fn reject_plan(&mut self, plan_id: &PlanId, digest: &str) -> Result<u64, ClientError> {
        let (plan_id, digest) = (plan_id.clone(), digest.to_owned());
        count(self.call(&Request::PlanReject { plan_id, digest }).await?)
    }
}

fn count(reply: Value) -> Result<u64, ClientError> {
    u64::from_redis_value(reply).map_err(|error| unexpected(&error))
}
