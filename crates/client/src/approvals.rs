//! Typed calls for the approval of plans.

use agenix_protocol::{documents::Approval, ids::PlanId, request::Request};
use redis::{FromRedisValue, Value};

use crate::{
    calls::{document, texts, unexpected},
    connection::Connection,
    error::ClientError,
};

impl Connection {
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
