//! Approvals of plans, which the policy of agq requests.
//!
//! The store writes the request with its plan, and removes it with the plan, in one transaction. An
//! action is named before its jobs are stored. [`claim_gate`](super::claim_gate) checks each claim.

use std::sync::{Arc, Mutex};

use agenix_protocol::{
    documents::{Approval, ApprovalScope, ApprovalState, to_json},
    ids::{ActionId, PlanId},
};
use agenix_rules::{
    approval::{self, Admitted},
    owner::Owner,
    rejection::Rejection,
};

use super::lookup;
use crate::{
    app::{AppState, PlanDecision, Question},
    auth::keyring::Identity,
    error::{CommandError, Result},
    store::{DocumentChange, DocumentKind, RuleResult, StoredPlan},
    sync::lock,
};

/// Name of the session key in approvals. No key in the config file can have it.
const SESSION_KEY: &str = "session key";

/// Returns the change of the approval that belongs to a new plan.
pub(super) fn of_new_plan(
    app: &AppState,
    plan: &StoredPlan,
    submitter: Option<&Identity>,
    decision: &PlanDecision,
) -> DocumentChange {
    match decision {
        PlanDecision::NeedsApproval(question) => {
            let approval = requested(app, plan, submitter.map(name_of), question);
            DocumentChange::Put(to_json(&approval))
        }
        PlanDecision::Allowed if app.plan_policy.is_on() => DocumentChange::Remove,
        PlanDecision::Allowed => DocumentChange::Keep,
    }
}

/// Stores the request for the approval of large actions of a stored plan, unless the plan has an
/// approval that holds for them.
async fn request_for_jobs(app: &AppState, by: &str, plan_id: &PlanId, question: &Question) -> Result<()> {
    let Some(plan) = app.store.plan(plan_id).await? else { return Ok(()) };
    let asked = requested(app, &plan, Some(by.to_owned()), question);
    let (asked, now) = (Approval { scope: ApprovalScope::LargeActions, ..asked }, app.clock.now());
    let rule = Box::new(move |known: Option<&str>| {
        let Some(known) = known else { return Ok(DocumentChange::Put(to_json(&asked))) };
        // An approval that cannot be read stays, and the next step reports the error.
        let known = serde_json::from_str::<Approval>(known).ok();
        let next = known.and_then(|known| approval::asked_again(&known, &asked, now));
        Ok(next.map_or(DocumentChange::Keep, |next| DocumentChange::Put(to_json(&next))))
    });
    Ok(app.store.update_document(DocumentKind::Approval, plan_id.as_str(), rule).await??)
}

fn requested(
    app: &AppState,
    plan: &StoredPlan,
    submitted_by: Option<String>,
    Question { reasons, policy }: &Question,
) -> Approval {
    let now = app.clock.now();
    let timeout = app.settings.approval_timeout_ms;
    Approval {
        plan_id: plan.plan_id.clone(),
        digest: approval::digest(&plan.json, policy),
        policy: policy.clone(),
        submitted_by,
        reasons: reasons.clone(),
        scope: ApprovalScope::Plan,
        state: ApprovalState::Waiting,
        requested_at: now,
        expires_at: (timeout > 0).then(|| now.plus_ms(timeout)),
        decided_by: None,
        decided_at: None,
        actions: Vec::new(),
        submitters: Vec::new(),
        settled: false,
    }
}

/// Returns the role and the name of a key, as `client:alice`. The session key has no name.
pub(super) fn name_of(identity: &Identity) -> String {
    identity.owner.as_ref().map_or_else(|| SESSION_KEY.to_owned(), Owner::to_string)
}

/// Returns all approvals, in the order of the plans.
pub(crate) async fn all(app: &AppState) -> Result<Vec<Approval>> {
    let documents = app.store.documents(DocumentKind::Approval).await?;
    let parsed = documents.iter().map(|(id, json)| lookup::parse("approval of plan", id, json));
    Ok(parsed.collect::<std::result::Result<_, _>>()?)
}

/// Returns the reason why a staged job waits, if its plan waits for approval.
pub(super) async fn reason(app: &AppState, plan_id: &PlanId) -> Result<Option<String>> {
    let waiting = of_plan(app, plan_id).await?.filter(|approval| approval.state == ApprovalState::Waiting);
    Ok(waiting.map(|approval| {
        let end = approval.expires_at.map(|end| format!(" until {end}")).unwrap_or_default();
        format!("It waits{end} for the approval of an admin: `agx approve {plan_id}` shows its plan.")
    }))
}

pub(super) async fn of_plan(app: &AppState, plan_id: &PlanId) -> Result<Option<Approval>> {
    let json = app.store.document(DocumentKind::Approval, plan_id.as_str()).await?;
    let parsed = json.map(|json| lookup::parse("approval of plan", plan_id.as_str(), &json));
    Ok(parsed.transpose()?)
}

/// Returns true if new jobs of an action have to be staged. `jobs` is the number of all jobs of the
/// action, with the new ones. The approval of the plan names the action from then on.
pub(crate) async fn is_staged(
    app: &AppState,
    by: Option<&Owner>,
    (plan_id, action_id): (&PlanId, &ActionId),
    jobs: u64,
) -> Result<bool> {
    if !app.plan_policy.is_on() {
        return Ok(false);
    }
    // Boxed, because every submission contains the future.
    Box::pin(is_staged_by_policy(app, by, (plan_id, action_id), jobs)).await
}

/// Returns true if the jobs of a submitted action have to be staged, as [`is_staged`] does. A
/// repeated submission is not refused because of a later decision: its jobs are stored.
pub(super) async fn is_submission_staged(
    app: &AppState,
    by: Option<&Owner>,
    of_plan: (&PlanId, &ActionId),
    jobs: u64,
) -> Result<bool> {
    match is_staged(app, by, of_plan, jobs).await {
        Err(CommandError::Rejected(Rejection::ApprovalDecided { .. }))
            if app.store.action(of_plan.1).await?.is_some() =>
        {
            Ok(false)
        }
        staged => staged,
    }
}

async fn is_staged_by_policy(
    app: &AppState,
    by: Option<&Owner>,
    (plan_id, action_id): (&PlanId, &ActionId),
    jobs: u64,
) -> Result<bool> {
    let Some(question) = app.plan_policy.about_jobs(jobs) else {
        return name_staged(app, plan_id, action_id, None).await;
    };
    let by = by.map_or_else(|| SESSION_KEY.to_owned(), Owner::to_string);
    request_for_jobs(app, &by, plan_id, &question).await?;
    name_staged(app, plan_id, action_id, Some(by)).await
}

/// Names an action in the approval of its plan, and returns true, if the jobs of the action have to
/// be staged. `large_by` is the submitter of the jobs if the policy asks about their number.
pub(super) async fn name_staged(
    app: &AppState,
    plan_id: &PlanId,
    action_id: &ActionId,
    large_by: Option<String>,
) -> Result<bool> {
    let (now, action_id) = (app.clock.now(), action_id.clone());
    let admitted = update(app, plan_id, move |approval| {
        Ok(match approval::admitted(approval, (&action_id, large_by.as_deref()), now)? {
            Admitted::Run => (None, false),
            Admitted::Stage(next) => (next.map(|next| *next), true),
        })
    });
    Ok(admitted.await?.unwrap_or(false))
}

/// Checks that jobs of an action may be made available by a retry or a release.
pub(super) async fn check_open(app: &AppState, plan_id: &PlanId, action_id: &ActionId) -> Result<()> {
    if !app.plan_policy.is_on() {
        return Ok(());
    }
    let Some(approval) = of_plan(app, plan_id).await? else { return Ok(()) };
    Ok(approval::check_open(&approval, action_id, app.clock.now())?)
}

/// Applies `rule` to the approval of a plan: the rule returns the next approval, if it changes, and
/// a result. Returns `None` if the plan needs no approval.
pub(super) async fn update<T: Clone + Send + Sync + 'static>(
    app: &AppState,
    plan_id: &PlanId,
    rule: impl Fn(&Approval) -> RuleResult<(Option<Approval>, T)> + Send + Sync + 'static,
) -> Result<Option<T>> {
    // A document that cannot be read is an error here, and the rule changes nothing.
    if of_plan(app, plan_id).await?.is_none() {
        return Ok(None);
    }
    // A store may call the rule several times; the last call counts.
    let result = Arc::new(Mutex::new(None));
    let of_rule = Arc::clone(&result);
    let rule = move |json: Option<&str>| {
        let approval = json.and_then(|json| serde_json::from_str::<Approval>(json).ok());
        let Some(approval) = approval else { return Ok(DocumentChange::Keep) };
        let (next, value) = rule(&approval)?;
        *lock(&of_rule) = Some(value);
        Ok(next.map_or(DocumentChange::Keep, |next| DocumentChange::Put(to_json(&next))))
    };
    app.store.update_document(DocumentKind::Approval, plan_id.as_str(), Box::new(rule)).await??;
    let result = lock(&result).clone();
    Ok(result)
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use agenix_protocol::{
        documents::{Approval, ApprovalState, parse},
        ids::{ActionId, PlanId},
    };
    use agenix_rules::{job::JobState, owner::Owner};

    use super::{is_staged, of_plan, update};
    use crate::{
        app::{AppState, PlanPolicy, Submitter},
        auth::keyring::{Identity, Role},
        service::{approval_decisions::decide, ojs_submission::enqueue_all, plans},
        startup::services::with_policy,
    };

    fn plan_id() -> PlanId {
        "p".parse().unwrap()
    }

    /// Opens an agq whose policy asks about actions with more than two jobs, with a plan.
    async fn with_plan(dir: &Path) -> Arc<AppState> {
        let file = dir.join("policy.toml");
        std::fs::write(&file, "version = 1\nuse = ['true']\n[ask]\njobs_over = 2").unwrap();
        let app = with_policy(dir, PlanPolicy::read(Some(&file)).unwrap(), |_| {});
        let plan = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#;
        plans::submit(&app, Submitter::NOBODY, plan).await.unwrap();
        app
    }

    /// Submits three jobs of an action, which wait.
    async fn submit_large(app: &AppState, by: Option<&Owner>, action_id: &str) {
        let action_id = action_id.parse().unwrap();
        assert!(is_staged(app, by, (&plan_id(), &action_id), 3).await.unwrap());
    }

    #[tokio::test]
    async fn submitter_of_a_later_large_action_cannot_approve() {
        let dir = tempfile::tempdir().unwrap();
        let app = with_plan(dir.path()).await;
        submit_large(&app, Some(&Owner::new("client", "bob")), "first").await;
        submit_large(&app, Some(&Owner::new("admin", "alice")), "second").await;
        submit_large(&app, None, "third").await;
        let digest = of_plan(&app, &plan_id()).await.unwrap().unwrap().digest;
        let approve = async |decider: Identity| {
            decide(&app, &plan_id(), ApprovalState::Approved, (&digest, Some(&decider))).await
        };
        let admin = |name| Identity::new(Role::Admin, name);
        for (decider, owner) in [
            (admin("alice"), "admin:alice"),
            (admin("bob"), "client:bob"),
            (Identity::of_session_key(), "session key"),
        ] {
            let refused = approve(decider).await.unwrap_err().to_string();
            let expected =
                format!("Plan p was submitted by {owner}, who cannot approve it: another admin has to");
            assert_eq!(refused, expected);
        }
        assert_eq!(approve(admin("carol")).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn expired_request_of_large_actions_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let app = with_plan(dir.path()).await;
        submit_large(&app, None, "first").await;
        let expired = |approval: &Approval| {
            Ok((Some(Approval { state: ApprovalState::Expired, ..approval.clone() }), ()))
        };
        update(&app, &plan_id(), expired).await.unwrap();
        submit_large(&app, None, "second").await;
        let approval = of_plan(&app, &plan_id()).await.unwrap().unwrap();
        assert_eq!(approval.state, ApprovalState::Waiting);
        let actions: Vec<ActionId> = ["first", "second"].map(|id| id.parse().unwrap()).into();
        assert_eq!(approval.actions, actions);
    }

    #[tokio::test]
    async fn first_large_batch_without_a_plan_waits() {
        let dir = tempfile::tempdir().unwrap();
        let app = with_plan(dir.path()).await;
        let batch = ["one", "two", "three"].map(|name| format!(r#"{{"type":"{name}","args":[]}}"#));
        let batch = batch.iter().map(|json| parse(json.as_bytes()).unwrap()).collect();
        let jobs = enqueue_all(&app, None, batch).await.unwrap();
        let states: Vec<_> = jobs.iter().map(|one| one.job.job.state).collect();
        assert_eq!(states, [JobState::Staged; 3]);
    }
}
