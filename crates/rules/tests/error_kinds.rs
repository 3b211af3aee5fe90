//! Clients recognise the texts of rejections by their [`ErrorKind`].

use agenix_protocol::errors::ErrorKind;
use agenix_rules::{
    budget::{BudgetAmount, Exhausted},
    rejection::Rejection,
};

#[test]
fn rejections_have_the_kind_that_clients_expect() {
    let halt = "now,fail=1".parse().unwrap();
    let full = Rejection::QueueFull { queue: "q".into(), depth: 1, bound: 1 };
    let used = Exhausted { amount: BudgetAmount::Jobs, used: 1, limit: 1, wanted: 1, next: None };
    let decided =
        |how: &str| Rejection::ApprovalDecided { plan_id: "p".parse().unwrap(), how: how.to_owned() };
    for (rejection, kind) in [
        (Rejection::InvalidPlan("x".into()), ErrorKind::InvalidPlan),
        (Rejection::RefusedByPolicy("x".into()), ErrorKind::RefusedByPolicy),
        (Rejection::PlanExists("p".parse().unwrap()), ErrorKind::PlanExists),
        (Rejection::PlanNotFound("p".parse().unwrap()), ErrorKind::PlanNotFound),
        (Rejection::InvalidAction("inputs[0] is not an object".into()), ErrorKind::InvalidInput),
        (Rejection::InvalidAction("inputs is missing".into()), ErrorKind::InvalidAction),
        (Rejection::TooManyInputs(1), ErrorKind::TooManyInputs),
        (full, ErrorKind::QueueFull),
        (Rejection::Budget(used), ErrorKind::BudgetUsed),
        (Rejection::ActionExists("a".parse().unwrap()), ErrorKind::ActionExists),
        (Rejection::ActionNotFound("a".parse().unwrap()), ErrorKind::ActionNotFound),
        (Rejection::ActionHalted { action_id: "a".parse().unwrap(), halt }, ErrorKind::ActionHalted),
        (Rejection::JobNotFound("j".parse().unwrap()), ErrorKind::JobNotFound),
        (Rejection::WorkerUnknown("w".parse().unwrap()), ErrorKind::WorkerNotRegistered),
        (Rejection::NotRegistered, ErrorKind::WorkerNotRegistered),
        (
            Rejection::OutputTimedOut { worker: "w".parse().unwrap(), seconds: 1 },
            ErrorKind::OutputNotAvailable,
        ),
        (Rejection::NotPermitted("this key may not".into()), ErrorKind::NotPermitted),
        (Rejection::PlanInUse, ErrorKind::Other),
        (decided("expired"), ErrorKind::ApprovalExpired),
        (decided("rejected by admin:alice"), ErrorKind::PlanRejected),
        (decided("approved by admin:alice"), ErrorKind::Other),
    ] {
        assert_eq!(ErrorKind::of(&rejection.line()), kind, "{rejection}");
    }
}
