//! Rules of approvals: who may decide about a plan, what a decision is bound to, and what it means
//! for the jobs of the plan.
//!
//! A plan waits if the policy asks for an approval. Until the decision, the jobs of the plan are
//! staged.

use agenix_protocol::{
    documents::{Approval, ApprovalScope, ApprovalState},
    ids::ActionId,
    time::Timestamp,
};
use sha2::{Digest, Sha256};

use crate::rejection::Rejection;

/// Maximum number of actions that wait for the approval of one plan.
pub const MAX_ACTIONS: usize = 1000;
/// Time after a decision at which the decision is applied again, in milliseconds: a submission that
/// was under way at the decision has ended by then.
pub const REAPPLY_AFTER_MS: u64 = 5000;

/// Returns the digest that a decision names: SHA-256 of the plan, as agq stores it, and of the
/// policy.
pub fn digest(plan: &str, policy: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(policy);
    hasher.update([0]);
    hasher.update(plan);
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decides about a plan: `state` is [`ApprovalState::Approved`] or [`ApprovalState::Rejected`], and
/// `by` is role and name of the key. Returns `None` if the same decision was made before.
///
/// # Errors
///
/// Returns [`Rejection::ApprovalDiffers`] if `digest` is that of another plan or policy,
/// [`Rejection::OwnPlan`] if a submitter approves, and [`Rejection::ApprovalDecided`] after
/// another decision.
pub fn decided(
    approval: &Approval,
    state: ApprovalState,
    (digest, by): (&str, &str),
    now: Timestamp,
) -> Result<Option<Approval>, Rejection> {
    if approval.digest != digest {
        let (plan_id, expected) = (approval.plan_id.clone(), approval.digest.clone());
        return Err(Rejection::ApprovalDiffers { plan_id, expected });
    }
    if state == ApprovalState::Approved
        && let Some(owner) = submitter_of_name(approval, by)
    {
        let (plan_id, owner) = (approval.plan_id.clone(), owner.to_owned());
        return Err(Rejection::OwnPlan { plan_id, owner });
    }
    let approval = expired(approval, now).unwrap_or_else(|| approval.clone());
    if approval.state == state {
        return Ok(None);
    }
    if approval.state != ApprovalState::Waiting {
        return Err(decided_already(&approval));
    }
    Ok(Some(Approval { state, decided_by: Some(by.to_owned()), decided_at: Some(now), ..approval }))
}

/// Returns the submitter of the plan or of a large action that has the name of the key `by`. Keys
/// of one name with several roles belong to one person.
fn submitter_of_name<'a>(approval: &'a Approval, by: &str) -> Option<&'a str> {
    let submitters = approval.submitted_by.iter().chain(&approval.submitters);
    submitters.map(String::as_str).find(|submitter| name_of(submitter) == name_of(by))
}

/// Returns the name of a key without its role.
fn name_of(key: &str) -> &str {
    key.split_once(':').map_or(key, |(_role, name)| name)
}

fn decided_already(approval: &Approval) -> Rejection {
    let by = approval.decided_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    Rejection::ApprovalDecided {
        plan_id: approval.plan_id.clone(),
        how: format!("{}{by}", approval.state.as_str()),
    }
}

/// Returns the approval as expired, if its time is over without a decision.
pub fn expired(approval: &Approval, now: Timestamp) -> Option<Approval> {
    let is_over = approval.expires_at.is_some_and(|end| end <= now);
    (approval.state == ApprovalState::Waiting && is_over).then(|| Approval {
        state: ApprovalState::Expired,
        decided_at: Some(now),
        ..approval.clone()
    })
}

/// Returns the request that replaces an approval of large actions that has expired: nobody has
/// decided, so the next large action asks again. `asked` is a new request. The actions of the
/// expired one stay named, because a retry of their jobs needs the approval, too.
pub fn asked_again(known: &Approval, asked: &Approval, now: Timestamp) -> Option<Approval> {
    let state = expired(known, now).map_or(known.state, |expired| expired.state);
    let is_over = known.scope == ApprovalScope::LargeActions && state == ApprovalState::Expired;
    is_over.then(|| Approval { actions: known.actions.clone(), ..asked.clone() })
}

/// Effect of an approval on the jobs of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Jobs run.
    Open,
    /// Jobs wait for the decision.
    Waiting,
    /// No job runs.
    Closed,
}

/// Returns the effect of an approval on the jobs of an action. An approval of large actions has no
/// effect on actions that it does not name.
pub fn gate(approval: &Approval, action_id: &ActionId, now: Timestamp) -> Gate {
    let is_about = approval.scope == ApprovalScope::Plan || approval.actions.contains(action_id);
    match expired(approval, now).map_or(approval.state, |expired| expired.state) {
        _ if !is_about => Gate::Open,
        ApprovalState::Approved => Gate::Open,
        ApprovalState::Waiting => Gate::Waiting,
        ApprovalState::Rejected | ApprovalState::Expired => Gate::Closed,
    }
}

/// Checks that jobs of an action may be made available again.
///
/// # Errors
///
/// Returns [`Rejection::WaitsForApproval`] before the decision, and [`Rejection::ApprovalDecided`]
/// for a plan that was not approved.
pub fn check_open(approval: &Approval, action_id: &ActionId, now: Timestamp) -> Result<(), Rejection> {
    match gate(approval, action_id, now) {
        Gate::Open => Ok(()),
        Gate::Waiting => Err(Rejection::WaitsForApproval(approval.plan_id.clone())),
        Gate::Closed => Err(decided_already(&expired(approval, now).unwrap_or_else(|| approval.clone()))),
    }
}

/// Effect of an approval on new jobs of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// The jobs run.
    Run,
    /// The jobs are staged. The approval changes if it does not name the action or the submitter of
    /// a large one yet.
    Stage(Option<Box<Approval>>),
}

/// Decides whether new jobs of an action are staged. `large_by` is the submitter of the jobs if the
/// policy asks about their number.
///
/// # Errors
///
/// Returns [`Rejection::ApprovalDecided`] for a plan that was not approved, and
/// [`Rejection::InvalidAction`] if too many actions wait.
pub fn admitted(
    approval: &Approval,
    (action_id, large_by): (&ActionId, Option<&str>),
    now: Timestamp,
) -> Result<Admitted, Rejection> {
    if large_by.is_none() && gate(approval, action_id, now) == Gate::Open {
        return Ok(Admitted::Run);
    }
    let approval = expired(approval, now).unwrap_or_else(|| approval.clone());
    let is_named = approval.actions.contains(action_id);
    match approval.state {
        ApprovalState::Approved => Ok(Admitted::Run),
        ApprovalState::Rejected | ApprovalState::Expired => Err(decided_already(&approval)),
        ApprovalState::Waiting if !is_named && approval.actions.len() >= MAX_ACTIONS => {
            let reason = format!(
                "{MAX_ACTIONS} actions wait for the approval of plan {} already: wait for the decision",
                approval.plan_id
            );
            Err(Rejection::InvalidAction(reason))
        }
        ApprovalState::Waiting => {
            let mut next = approval.clone();
            if !is_named {
                next.actions.push(action_id.clone());
            }
            if let Some(by) = large_by {
                add_submitter(&mut next, by);
            }
            Ok(Admitted::Stage((next != approval).then(|| Box::new(next))))
        }
    }
}

fn add_submitter(approval: &mut Approval, by: &str) {
    let is_known = approval.submitted_by.iter().chain(&approval.submitters).any(|known| known == by);
    if !is_known {
        approval.submitters.push(by.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{Approval, ApprovalScope, ApprovalState},
        ids::ActionId,
        time::Timestamp,
    };

    use super::{
        Admitted, Gate, MAX_ACTIONS, admitted, asked_again, check_open, decided, digest, expired, gate,
    };
    use crate::rejection::Rejection;

    const NOW: Timestamp = Timestamp(1000);

    fn waiting() -> Approval {
        Approval {
            plan_id: "p".parse().unwrap(),
            digest: "d".into(),
            policy: "y".into(),
            submitted_by: Some("robot".into()),
            reasons: vec!["task 1 (awk), command: it is an interpreter".into()],
            scope: ApprovalScope::Plan,
            state: ApprovalState::Waiting,
            requested_at: Timestamp(0),
            expires_at: Some(Timestamp(2000)),
            decided_by: None,
            decided_at: None,
            actions: Vec::new(),
            submitters: Vec::new(),
            settled: false,
        }
    }

    #[test]
    fn decision_is_made_once_and_names_its_author() {
        let approved = decided(&waiting(), ApprovalState::Approved, ("d", "alice"), NOW).unwrap().unwrap();
        assert_eq!(approved.state, ApprovalState::Approved);
        assert_eq!((approved.decided_by.as_deref(), approved.decided_at), (Some("alice"), Some(NOW)));
        assert_eq!(decided(&approved, ApprovalState::Approved, ("d", "bob"), NOW), Ok(None));
        let error = decided(&approved, ApprovalState::Rejected, ("d", "bob"), NOW).unwrap_err();
        assert_eq!(error.to_string(), "Approval of p is decided: approved by alice");
    }

    #[test]
    fn decision_is_bound_to_the_digest() {
        let error = decided(&waiting(), ApprovalState::Approved, ("e", "alice"), NOW).unwrap_err();
        assert_eq!(error.to_string(), "Approval of p has the digest d: look at the plan again");
        assert_ne!(digest("plan", "policy"), digest("plan2", "policy"));
        assert_ne!(digest("plan", "policy"), digest("plan", "policy2"));
    }

    #[test]
    fn owner_of_a_plan_rejects_it_and_does_not_approve_it() {
        let own = |state| decided(&waiting(), state, ("d", "robot"), NOW);
        assert!(matches!(own(ApprovalState::Approved), Err(Rejection::OwnPlan { .. })));
        assert_eq!(own(ApprovalState::Rejected).unwrap().unwrap().state, ApprovalState::Rejected);
    }

    #[test]
    fn submitter_of_a_large_action_does_not_approve_whatever_key_of_the_same_name_is_used() {
        let asked = |by: &str| Approval {
            submitted_by: Some(by.into()),
            scope: ApprovalScope::LargeActions,
            ..waiting()
        };
        let approved = |approval: &Approval, by| decided(approval, ApprovalState::Approved, ("d", by), NOW);
        let (large, more) = ("large".parse().unwrap(), "more".parse().unwrap());
        let staged = admitted(&asked("client:bob"), (&large, Some("admin:alice")), NOW);
        let Ok(Admitted::Stage(Some(named))) = staged else { panic!("{staged:?}") };
        for (by, owner) in [("admin:alice", "admin:alice"), ("admin:bob", "client:bob")] {
            let error = approved(&named, by).unwrap_err().to_string();
            let expected =
                format!("Plan p was submitted by {owner}, who cannot approve it: another admin has to");
            assert_eq!(error, expected);
        }
        assert!(approved(&named, "admin:carol").is_ok());
        let staged = admitted(&named, (&more, Some("client:bob")), NOW);
        let Ok(Admitted::Stage(Some(named))) = staged else { panic!("{staged:?}") };
        assert_eq!(named.submitters, ["admin:alice"], "a submitter is named once");
        let of_session = asked("session key");
        assert!(approved(&of_session, "session key").is_err());
        assert!(approved(&of_session, "admin:admin").is_ok());
    }

    #[test]
    fn request_expires_at_its_time() {
        assert_eq!(expired(&waiting(), Timestamp(1999)), None);
        assert_eq!(expired(&waiting(), Timestamp(2000)).unwrap().state, ApprovalState::Expired);
        let late = decided(&waiting(), ApprovalState::Approved, ("d", "alice"), Timestamp(2000)).unwrap_err();
        assert_eq!(late.to_string(), "Approval of p is decided: expired");
        let never = Approval { expires_at: None, ..waiting() };
        assert_eq!(expired(&never, Timestamp(u64::MAX)), None);
    }

    #[test]
    fn jobs_are_staged_until_the_decision() {
        let action = "a".parse().unwrap();
        let Ok(Admitted::Stage(Some(named))) = admitted(&waiting(), (&action, None), NOW) else {
            panic!("staged")
        };
        assert_eq!(named.actions, std::slice::from_ref(&action));
        assert_eq!(admitted(&named, (&action, None), NOW), Ok(Admitted::Stage(None)));
        let approved = Approval { state: ApprovalState::Approved, ..waiting() };
        assert_eq!(admitted(&approved, (&action, None), NOW), Ok(Admitted::Run));
        let rejected = Approval { state: ApprovalState::Rejected, ..waiting() };
        assert!(admitted(&rejected, (&action, None), NOW).is_err());
        assert!(admitted(&waiting(), (&action, None), Timestamp(2000)).is_err(), "its time is over");
    }

    #[test]
    fn actions_that_wait_are_bounded() {
        let ids = (0..MAX_ACTIONS).map(|n| format!("a{n}").parse().unwrap()).collect();
        let full = Approval { actions: ids, ..waiting() };
        assert!(admitted(&full, (&"b".parse().unwrap(), None), NOW).is_err());
        let last = Approval { actions: full.actions[1..].to_vec(), ..waiting() };
        assert!(admitted(&last, (&"b".parse().unwrap(), None), NOW).is_ok());
    }

    #[test]
    fn approval_of_large_actions_leaves_small_ones_alone() {
        let (small, large): (ActionId, ActionId) = ("small".parse().unwrap(), "large".parse().unwrap());
        let asked = Approval { scope: ApprovalScope::LargeActions, ..waiting() };
        let staged = admitted(&asked, (&large, Some("robot")), NOW);
        let Ok(Admitted::Stage(Some(named))) = staged else { panic!("{staged:?}") };
        for state in [ApprovalState::Waiting, ApprovalState::Approved, ApprovalState::Rejected] {
            let approval = Approval { state, ..*named.clone() };
            assert_eq!(admitted(&approval, (&small, None), NOW), Ok(Admitted::Run));
            assert_eq!(gate(&approval, &small, NOW), Gate::Open);
        }
        let rejected = Approval { state: ApprovalState::Rejected, ..*named.clone() };
        assert!(admitted(&rejected, (&small, Some("robot")), NOW).is_err());
        assert!(check_open(&rejected, &large, NOW).is_err());
        // Further jobs of an action that waits are staged, too, even if they are few.
        assert_eq!(admitted(&named, (&large, None), NOW), Ok(Admitted::Stage(None)));
    }

    #[test]
    fn large_action_asks_again_after_an_approval_that_nobody_decided() {
        let (late, old) = (Timestamp(2000), "old".parse().unwrap());
        let known = Approval { scope: ApprovalScope::LargeActions, actions: vec![old], ..waiting() };
        let asked = Approval {
            requested_at: late,
            expires_at: Some(Timestamp(3000)),
            actions: Vec::new(),
            ..known.clone()
        };
        assert_eq!(asked_again(&known, &asked, NOW), None, "it waits");
        let next = asked_again(&known, &asked, late).unwrap();
        assert_eq!(next, Approval { actions: known.actions.clone(), ..asked.clone() });
        assert_eq!(gate(&next, &known.actions[0], late), Gate::Waiting, "a retry of its jobs waits");
        for state in [ApprovalState::Approved, ApprovalState::Rejected] {
            let decided = Approval { state, ..known.clone() };
            assert_eq!(asked_again(&decided, &asked, late), None, "a person has decided");
        }
        assert_eq!(asked_again(&waiting(), &asked, late), None, "the plan needs the approval");
    }

    #[test]
    fn gate_opens_with_the_approval() {
        let action = "a".parse().unwrap();
        assert_eq!(gate(&waiting(), &action, NOW), Gate::Waiting);
        assert_eq!(gate(&waiting(), &action, Timestamp(2000)), Gate::Closed, "its time is over");
        let error = check_open(&waiting(), &action, NOW).unwrap_err();
        assert_eq!(error.to_string(), "Plan p waits for approval: `agx approve p` shows it");
        let expired = check_open(&waiting(), &action, Timestamp(2000)).unwrap_err();
        assert_eq!(expired.to_string(), "Approval of p is decided: expired");
        let approved = Approval { state: ApprovalState::Approved, ..waiting() };
        assert_eq!(check_open(&approved, &action, NOW), Ok(()));
    }
}
