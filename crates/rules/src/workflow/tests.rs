//! Tests of workflows.

use agenix_protocol::time::Timestamp;

use super::{Seen, Stage, Workflow};

const NOW: Timestamp = Timestamp(1000);

fn workflow(json: &str) -> Workflow {
    let mut number = 0;
    let id = || {
        number += 1;
        format!("id{number}")
    };
    Workflow::new(serde_json::from_str(json).unwrap(), id, NOW).unwrap()
}

fn stages(workflow: &Workflow) -> Vec<Stage> {
    workflow.all().map(|step| step.stage).collect()
}

const STEP: &str = r#"{"type":"a","args":[]}"#;
use Stage::{Cancelled, Completed, Failed, Running, Waiting};

#[test]
fn a_step_is_no_workflow() {
    let made = |step: &str| {
        let wanted = serde_json::from_str(&format!(r#"{{"steps":[{STEP},{step}]}}"#)).unwrap();
        Workflow::new(wanted, || "id".into(), NOW).map(drop).map_err(|error| error.to_string())
    };
    for nested in [
        format!(r#"{{"type":"group","jobs":[{STEP}]}}"#),
        format!(r#"{{"type":"batch","jobs":[{STEP}],"callbacks":{{"on_complete":{STEP}}}}}"#),
        format!(r#"{{"type":"chain","steps":[{STEP}]}}"#),
    ] {
        let refused = made(&nested).unwrap_err();
        assert!(refused.starts_with("Invalid workflow: steps[1] is a workflow of its own"), "{refused}");
    }
    for fine in [r#"{"type":"group","args":[],"jobs":[]}"#, r#"{"plan_id":"p","steps":[]}"#] {
        assert_eq!(made(fine), Ok(()), "{fine}");
    }
}

#[test]
fn a_chain_goes_step_by_step_and_stops_at_a_failure() {
    let chain = workflow(&format!(r#"{{"type":"chain","steps":[{STEP},{STEP},{STEP}]}}"#));
    assert_eq!((stages(&chain), chain.steps[0].id.as_str()), (vec![Running, Waiting, Waiting], "id2"));
    assert_eq!(chain.steps_together(), 0, "the next one begins by the end of each");
    let second = chain.moved(&[("id2", Seen::Ended(Completed))], NOW);
    assert_eq!((stages(&second), second.completed()), (vec![Completed, Running, Waiting], 1));
    let same = second.moved(&[("id2", Seen::Ended(Failed)), ("id3", Seen::Underway)], NOW);
    assert_eq!(stages(&same), stages(&second), "what has ended stays as it is");
    let broken = second.moved(&[("id3", Seen::Ended(Failed))], NOW);
    assert_eq!((broken.stage, stages(&broken)), (Failed, vec![Completed, Failed, Waiting]));
    let third = second.moved(&[("id3", Seen::Ended(Completed))], NOW);
    let done = third.moved(&[("id4", Seen::Ended(Completed))], Timestamp(2000));
    assert_eq!((done.stage, done.ended_at, done.is_settled()), (Completed, Some(Timestamp(2000)), true));
}

#[test]
fn a_batch_calls_back_when_all_have_ended() {
    let callbacks = format!(r#"{{"on_success":{STEP},"on_failure":{STEP},"on_complete":{STEP}}}"#);
    let batch = workflow(&format!(r#"{{"type":"batch","jobs":[{STEP},{STEP}],"callbacks":{callbacks}}}"#));
    assert_eq!(stages(&batch), [Running, Running, Waiting, Waiting, Waiting]);
    let half = batch.moved(&[("id2", Seen::Ended(Completed))], NOW);
    assert_eq!((half.stage, batch.steps_together(), half.steps_together()), (Running, 2, 1));
    let well = half.moved(&[("id3", Seen::Ended(Completed))], NOW);
    assert_eq!(
        (well.stage, stages(&well)),
        (Completed, vec![Completed, Completed, Running, Waiting, Running])
    );
    assert!(!well.is_settled(), "its callbacks may not have been submitted");
    let called = well.moved(&[("id4", Seen::Underway), ("id6", Seen::Ended(Completed))], NOW);
    assert!(!called.is_settled(), "one of its callbacks is under way");
    let over = called.moved(&[("id4", Seen::Ended(Failed))], Timestamp(2000));
    assert_eq!((over.is_settled(), over.stage, over.ended_at), (true, Completed, Some(NOW)));
    assert_eq!(stages(&over), [Completed, Completed, Failed, Waiting, Completed]);
    let forgotten = called.moved(&[("id4", Seen::Nothing)], NOW);
    assert!(forgotten.is_settled(), "nobody can see any more what became of it");
    let failed = half.moved(&[("id3", Seen::Ended(Failed))], NOW);
    assert_eq!((failed.stage, stages(&failed)), (Failed, vec![Completed, Failed, Waiting, Running, Running]));
}

#[test]
fn what_was_forgotten_unseen_failed_and_what_was_never_submitted_is() {
    let chain = workflow(&format!(r#"{{"steps":[{STEP}]}}"#));
    assert_eq!(stages(&chain.moved(&[("id2", Seen::Nothing)], NOW)), [Running]);
    let known = chain.moved(&[("id2", Seen::Underway)], NOW);
    assert_eq!(known.moved(&[("id2", Seen::Nothing)], NOW).stage, Failed);
}

#[test]
fn a_cancelled_workflow_begins_nothing() {
    let chain = workflow(&format!(r#"{{"steps":[{STEP},{STEP}]}}"#));
    let off = chain.cancelled(NOW).unwrap();
    assert_eq!((off.stage, stages(&off), off.is_settled()), (Cancelled, vec![Cancelled, Cancelled], true));
    assert_eq!(stages(&off.moved(&[("id2", Seen::Ended(Completed))], NOW)), [Cancelled, Cancelled]);
    assert!(off.cancelled(NOW).is_err());
}
