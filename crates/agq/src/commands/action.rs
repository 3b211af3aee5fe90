//! ACTION.*: one plan, N inputs, N jobs, all of them or none (seed 001 §4).

use agenix_protocol::{
    documents::{self, ActionSubmission},
    ids::ActionId,
    names::QUEUE_READY,
    resp::Reply,
};
use agenix_rules::{
    action::{self, Action},
    job::NewJob,
    plan,
    rejection::Rejection,
};

use super::{Outcome, invalid_action, json};
use crate::{
    house::House,
    store::{Added, NewAction},
};

/// ACTION.SUBMIT
pub(super) async fn submit(house: &House, json: &[u8]) -> Outcome {
    let submission: ActionSubmission = documents::parse(json).map_err(|error| invalid_action(&error))?;
    let plan = super::plan::find(house, &submission.plan_id).await?;
    action::check(&submission, &plan, &house.settings.limits)?;
    let action_id = submission.action_id.unwrap_or_else(|| house.clock.action_id());
    let jobs_created = submission.inputs.len();
    let new_job = |input: Box<serde_json::value::RawValue>| NewJob {
        job_id: house.clock.job_id(),
        input: input.into(),
    };
    let new = NewAction {
        action: Action {
            action_id: action_id.clone(),
            plan_id: submission.plan_id,
            total_jobs: jobs_created as u64,
            created_at: house.clock.now(),
        },
        queue: QUEUE_READY.into(),
        needs: plan::needs(&plan),
        max_retries: plan.max_retries,
        timeout_ms: house.settings.job_timeout_ms,
        jobs: submission.inputs.into_iter().map(new_job).collect(),
    };
    match house.store.add_action(new).await? {
        // The same submission again is one whose answer was lost: it is answered as the first time.
        Added::New | Added::Same => {
            Ok(Reply::Simple(format!("OK action_id={action_id} jobs_created={jobs_created}")))
        }
        Added::Differs => Err(Rejection::ActionExists(action_id).into()),
    }
}

/// ACTION.STATUS
pub(super) async fn status(house: &House, action_id: &ActionId) -> Outcome {
    let found = house.store.action(action_id).await?;
    Ok(found.map_or(Reply::Nil, |(action, tally)| json(&action::status(&action, &tally))))
}
