//! Tests of workflows.

use agenix_protocol::{documents::to_json, time::Timestamp};

use super::{StepInputs, StepObservation, StepState, Workflow, WorkflowStep};

const NOW: Timestamp = Timestamp(1000);

fn workflow(json: &str) -> Workflow {
    let mut number = 0;
    let id = || {
        number += 1;
        format!("id{number}")
    };
    Workflow::new(serde_json::from_str(json).unwrap(), id, NOW).unwrap()
}

/// Returns the workflow after the ends of these steps.
fn ended<const N: usize>(workflow: &Workflow, ends: [(&str, StepState); N]) -> Workflow {
    workflow.moved(&ends.map(|(id, state)| (id, StepObservation::Ended(state))), NOW)
}

fn stages(workflow: &Workflow) -> Vec<StepState> {
    workflow.all().map(|step| step.stage).collect()
}

const STEP: &str = r#"{"type":"a","args":[]}"#;
use StepState::{Cancelled, Completed, Failed, Running, Waiting};

/// Returns the text of the refusal of a workflow.
fn refused(json: &str) -> String {
    Workflow::new(serde_json::from_str(json).unwrap(), || "id".into(), NOW).unwrap_err().to_string()
}

#[test]
fn step_with_args_or_a_plan_is_not_a_workflow() {
    for fine in [r#"{"type":"group","args":[],"jobs":[]}"#, r#"{"plan_id":"p","steps":[]}"#] {
        let chain = workflow(&format!(r#"{{"steps":[{STEP},{fine}]}}"#));
        assert!(chain.steps[1].nested.is_none(), "{fine}");
    }
}

#[test]
fn nested_workflow_errors_name_their_place() {
    let error_of = |step: &str| refused(&format!(r#"{{"steps":[{STEP},{step}]}}"#));
    assert_eq!(
        error_of(r#"{"type":"email","jobs":[]}"#),
        "Invalid workflow: steps[1]: type is 'email': use chain, group or batch"
    );
    assert_eq!(
        error_of(r#"{"type":"group","jobs":[]}"#),
        "Invalid workflow: steps[1]: it has 0 steps: give 1 to 1000"
    );
    let doubled = error_of(&format!(r#"{{"type":"group","type":"batch","jobs":[{STEP}]}}"#));
    assert!(doubled.starts_with("Invalid workflow: steps[1]: "), "{doubled}");
    let both = error_of(&format!(r#"{{"type":"group","jobs":[{{"jobs":[{STEP}],"steps":[{STEP}]}}]}}"#));
    assert_eq!(
        both,
        "Invalid workflow: steps[1].jobs[0]: steps and jobs are both given: use one of the names"
    );
    let nested = |levels: usize| {
        (0..levels).fold(STEP.to_owned(), |inner, _| format!(r#"{{"type":"group","jobs":[{inner}]}}"#))
    };
    assert_eq!(stages(&workflow(&nested(5))), [Running]);
    assert_eq!(
        refused(&nested(6)),
        "Invalid workflow: jobs[0].jobs[0].jobs[0].jobs[0].jobs[0]: workflows are nested more than 5 levels deep"
    );
    let many = vec![STEP; 600].join(",");
    let group = format!(r#"{{"type":"group","jobs":[{many}]}}"#);
    assert_eq!(
        refused(&format!(r#"{{"steps":[{group},{group}]}}"#)),
        "Invalid workflow: it has more than 1000 steps, those of nested workflows included"
    );
}

const FAN_OUT: &str = r#"{"type":"chain","steps":[
    {"type":"a","args":[]},
    {"type":"group","name":"both","jobs":[
        {"type":"b","args":[]},
        {"type":"chain","steps":[{"type":"c","args":[]},{"type":"d","args":[]}]}]},
    {"type":"e","args":[]}]}"#;

#[test]
fn chain_continues_after_its_group_has_ended() {
    let chain = workflow(FAN_OUT);
    let ids: Vec<&str> = chain.all().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["id2", "id4", "id6", "id7", "id8"]);
    assert_eq!(stages(&chain), [Running, Waiting, Waiting, Waiting, Waiting]);
    let both = ended(&chain, [("id2", Completed)]);
    assert_eq!(stages(&both), [Completed, Running, Running, Waiting, Waiting]);
    assert_eq!((both.steps[1].stage, both.steps_together()), (Running, 0), "a chain is among them");
    let inner = ended(&both, [("id4", Completed), ("id6", Completed)]);
    assert_eq!(stages(&inner), [Completed, Completed, Completed, Running, Waiting]);
    let last = ended(&inner, [("id7", Completed)]);
    assert_eq!((stages(&last)[4], last.steps[1].stage, last.completed()), (Running, Completed, 2));
    let done = last.moved(&[("id8", StepObservation::Ended(Completed))], Timestamp(2000));
    assert_eq!((done.stage, done.ended_at), (Completed, Some(Timestamp(2000))));
}

#[test]
fn failed_group_ends_its_chain_after_all_its_steps() {
    let both = ended(&workflow(FAN_OUT), [("id2", Completed)]);
    let half = ended(&both, [("id4", Failed)]);
    assert_eq!((half.stage, half.steps[1].stage), (Running, Running), "the others go on");
    let cut = ended(&half, [("id6", Failed)]);
    assert_eq!(stages(&cut), [Completed, Failed, Failed, Waiting, Waiting]);
    assert_eq!((cut.stage, cut.steps[1].stage, cut.ended_at), (Failed, Failed, Some(NOW)));
}

#[test]
fn results_go_to_the_next_step_on_any_level() {
    let chain = workflow(FAN_OUT);
    let placed: Vec<(String, String)> = chain
        .placed()
        .into_iter()
        .map(|placed| {
            let ids = |steps: &[WorkflowStep]| {
                let all = steps.iter().flat_map(WorkflowStep::producers).map(|step| step.id.clone());
                all.collect::<Vec<_>>().join("+")
            };
            let before = match placed.before {
                None => String::new(),
                Some(StepInputs::Step(step)) => ids(std::slice::from_ref(step)),
                Some(StepInputs::Steps(steps)) => ids(steps),
            };
            (placed.place, before)
        })
        .collect();
    let expected = [
        ("steps[0]", ""),
        ("steps[1].jobs[0]", "id2"),
        ("steps[1].jobs[1].steps[0]", "id2"),
        ("steps[1].jobs[1].steps[1]", "id6"),
        ("steps[2]", "id4+id7"),
    ];
    assert_eq!(placed, expected.map(|(place, before)| (place.to_owned(), before.to_owned())));
    let batch = workflow(&format!(
        r#"{{"type":"batch","jobs":[{STEP},{STEP}],"callbacks":{{"on_complete":{STEP}}}}}"#
    ));
    let placed = batch.placed();
    assert!(matches!(placed[2].before, Some(StepInputs::Steps(steps)) if steps.len() == 2));
    assert_eq!((placed[2].place.as_str(), placed[2].is_callback()), ("callbacks", true));
    assert!(!placed[1].is_callback());
}

#[test]
fn batch_in_a_chain_ends_after_its_callbacks() {
    let batch = |on: &str| {
        let batch = format!(r#"{{"type":"batch","jobs":[{STEP},{STEP}],"callbacks":{{"{on}":{STEP}}}}}"#);
        workflow(&format!(r#"{{"steps":[{batch},{STEP}]}}"#))
    };
    // The batch is id2, its jobs are id3 and id4, its callback is id5.
    let both = [("id3", StepObservation::Ended(Completed)), ("id4", StepObservation::Ended(Completed))];
    let begun = batch("on_complete");
    assert_eq!((stages(&begun), begun.steps_together()), (vec![Running, Running, Waiting, Waiting], 2));
    let called = begun.moved(&both, NOW);
    assert_eq!((stages(&called)[2], stages(&called)[3]), (Running, Waiting));
    let next = ended(&called, [("id5", Completed)]);
    assert_eq!((next.steps[0].stage, stages(&next)[3]), (Completed, Running));
    let broken = ended(&called, [("id5", Failed)]);
    assert_eq!((broken.steps[0].stage, broken.stage), (Failed, Failed), "its callback failed");
    let uncalled = batch("on_failure").moved(&both, NOW);
    assert_eq!(stages(&uncalled), [Completed, Completed, Waiting, Running], "there was no failure");
}

#[test]
fn workflow_resumes_at_a_retried_step() {
    let both = ended(&workflow(FAN_OUT), [("id2", Completed)]);
    let failed = both.moved(
        &[("id4", StepObservation::Ended(Completed)), ("id6", StepObservation::Ended(Failed))],
        Timestamp(2000),
    );
    assert_eq!((failed.stage, failed.has_all_ended()), (Failed, true));
    let kept_since = |ended, dead| failed.is_forgettable(Timestamp(ended), Timestamp(dead));
    assert!(kept_since(3000, 3000) && !kept_since(3000, 2000), "a retry of its dead job resumes it");
    let again = failed.resumed("id6").unwrap().unwrap();
    assert_eq!((again.stage, again.ended_at, again.steps[1].stage), (Running, None, Running));
    assert_eq!(stages(&again), [Completed, Completed, Running, Waiting, Waiting]);
    let on = ended(&again, [("id6", Completed)]);
    assert_eq!(stages(&on), [Completed, Completed, Completed, Running, Waiting]);
    for no_matter in ["id4", "id7", "none"] {
        assert!(failed.resumed(no_matter).unwrap().is_none(), "{no_matter}");
    }
    assert!(again.resumed("id6").unwrap().is_none(), "it runs already");
}

#[test]
fn observation_before_a_retry_is_not_that_of_the_workflow_after_it() {
    let failed = ended(&workflow(FAN_OUT), [("id2", Completed)])
        .moved(&[("id4", StepObservation::Ended(Failed))], Timestamp(2000))
        .moved(&[("id6", StepObservation::Ended(Completed))], Timestamp(2000));
    let resumed = failed.resumed("id4").unwrap().unwrap();
    // A task reads the resumed workflow, and observes the failed job before its retry.
    let after = resumed.retried("id4").unwrap().unwrap();
    assert_ne!(to_json(&after), to_json(&resumed));
    assert_eq!((after.stage, after.steps[1].stage), (Running, Running));
    // Or the task stores the failure before.
    let after = failed.retried("id4").unwrap().unwrap();
    assert_eq!((after.stage, after.ended_at, after.retries), (Running, None, 1));
    assert!(failed.retried("id6").unwrap().is_none(), "nothing waits for it");
}

#[test]
fn callbacks_are_not_submitted_again_after_a_resume() {
    let callbacks = format!(r#"{{"on_success":{STEP},"on_failure":{STEP},"on_complete":{STEP}}}"#);
    let batch = workflow(&format!(r#"{{"type":"batch","jobs":[{STEP},{STEP}],"callbacks":{callbacks}}}"#));
    let failed = ended(&batch, [("id2", Completed), ("id3", Failed)]);
    let all_ended = ended(&failed, [("id5", Completed), ("id6", Failed)]);
    assert_eq!(stages(&all_ended), [Completed, Failed, Waiting, Completed, Failed]);
    let again = all_ended.resumed("id3").unwrap().unwrap();
    let well = again.moved(&[("id3", StepObservation::Ended(Completed))], Timestamp(2000));
    assert_eq!((well.stage, well.ended_at), (Completed, Some(Timestamp(2000))));
    assert_eq!(stages(&well), [Completed, Completed, Running, Completed, Failed], "on_success alone");
    let called = all_ended.resumed("id6").unwrap().unwrap();
    assert_eq!((called.stage, called.has_all_ended()), (Failed, false), "a callback changes only itself");
}

#[test]
fn cancelled_workflow_is_not_resumed() {
    let off = workflow(FAN_OUT).cancelled(NOW).unwrap();
    assert_eq!(stages(&off), [Cancelled; 5]);
    assert_eq!(off.steps[1].stage, Cancelled);
    assert_eq!(off.resumed("id2").unwrap_err().to_string(), "Workflow already ended: id1");
    assert!(off.resumed("none").unwrap().is_none());
}

#[test]
fn chain_runs_step_by_step_and_stops_at_a_failure() {
    let chain = workflow(&format!(r#"{{"type":"chain","steps":[{STEP},{STEP},{STEP}]}}"#));
    assert_eq!((stages(&chain), chain.steps[0].id.as_str()), (vec![Running, Waiting, Waiting], "id2"));
    assert_eq!(chain.steps_together(), 0, "the next one begins by the end of each");
    let second = ended(&chain, [("id2", Completed)]);
    assert_eq!((stages(&second), second.completed()), (vec![Completed, Running, Waiting], 1));
    let same =
        second.moved(&[("id2", StepObservation::Ended(Failed)), ("id3", StepObservation::Underway)], NOW);
    assert_eq!(stages(&same), stages(&second), "what has ended stays as it is");
    let broken = ended(&second, [("id3", Failed)]);
    assert_eq!((broken.stage, stages(&broken)), (Failed, vec![Completed, Failed, Waiting]));
    let third = ended(&second, [("id3", Completed)]);
    let done = third.moved(&[("id4", StepObservation::Ended(Completed))], Timestamp(2000));
    assert_eq!((done.stage, done.ended_at, done.has_all_ended()), (Completed, Some(Timestamp(2000)), true));
    assert!(done.is_forgettable(Timestamp(2001), Timestamp(0)));
    assert!(!done.is_forgettable(Timestamp(2000), Timestamp(3000)));
}

#[test]
fn batch_submits_callbacks_after_all_steps() {
    let callbacks = format!(r#"{{"on_success":{STEP},"on_failure":{STEP},"on_complete":{STEP}}}"#);
    let batch = workflow(&format!(r#"{{"type":"batch","jobs":[{STEP},{STEP}],"callbacks":{callbacks}}}"#));
    assert_eq!(stages(&batch), [Running, Running, Waiting, Waiting, Waiting]);
    let half = ended(&batch, [("id2", Completed)]);
    assert_eq!((half.stage, batch.steps_together(), half.steps_together()), (Running, 2, 1));
    let well = ended(&half, [("id3", Completed)]);
    assert_eq!(
        (well.stage, stages(&well)),
        (Completed, vec![Completed, Completed, Running, Waiting, Running])
    );
    assert!(!well.has_all_ended(), "its callbacks may not have been submitted");
    let called =
        well.moved(&[("id4", StepObservation::Underway), ("id6", StepObservation::Ended(Completed))], NOW);
    assert!(!called.has_all_ended(), "one of its callbacks is under way");
    let over = called.moved(&[("id4", StepObservation::Ended(Failed))], Timestamp(2000));
    assert_eq!((over.has_all_ended(), over.stage, over.ended_at), (true, Completed, Some(NOW)));
    assert_eq!(stages(&over), [Completed, Completed, Failed, Waiting, Completed]);
    let forgotten = called.moved(&[("id4", StepObservation::Nothing)], NOW);
    assert!(forgotten.has_all_ended(), "nobody can see any more what became of it");
    let failed = ended(&half, [("id3", Failed)]);
    assert_eq!((failed.stage, stages(&failed)), (Failed, vec![Completed, Failed, Waiting, Running, Running]));
}

#[test]
fn missing_job_failed_if_its_step_was_submitted() {
    let chain = workflow(&format!(r#"{{"steps":[{STEP}]}}"#));
    assert_eq!(stages(&chain.moved(&[("id2", StepObservation::Nothing)], NOW)), [Running]);
    let known = chain.moved(&[("id2", StepObservation::Underway)], NOW);
    let gone = known.moved(&[("id2", StepObservation::Nothing)], NOW);
    assert_eq!(gone.stage, Failed);
    let error = gone.steps[0].error.as_deref().unwrap();
    assert!(error.starts_with("the jobs of the step are no longer kept: see --keep-ended"), "{error}");
}

#[test]
fn cancelled_workflow_starts_no_step() {
    let chain = workflow(&format!(r#"{{"steps":[{STEP},{STEP}]}}"#));
    let off = chain.cancelled(NOW).unwrap();
    assert_eq!((off.stage, stages(&off), off.has_all_ended()), (Cancelled, vec![Cancelled, Cancelled], true));
    assert_eq!(stages(&ended(&off, [("id2", Completed)])), [Cancelled, Cancelled]);
    assert!(off.cancelled(NOW).is_err());
}
