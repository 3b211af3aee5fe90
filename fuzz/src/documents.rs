//! JSON documents from clients and workers. An accepted document is accepted again in its stored
//! form, with the same meaning.

use agenix_protocol::{
    documents::{
        ActionSubmission, ChallengeAnswer, Directives, Plan, Quantities, WorkerRegistration, WorkerStatus,
        parse, parse_object, to_json,
    },
    limits::Limits,
    template,
    time::Timestamp,
};
use agenix_rules::{action, capability::ClaimantCapabilities, plan, rejection::Rejection, worker};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, value::RawValue};

use crate::check_refusal;

/// Time of all events.
pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// Reads what must be an object, as agq does; a refusal is put into the words of `refused`.
pub(crate) fn read<T: DeserializeOwned>(json: &[u8], refused: fn(String) -> Rejection) -> Option<T> {
    parse_object(json).map_err(|error| check_refusal(refused(error.to_string()).line())).ok()
}

/// Checks that a written document is read again as the same document.
pub(crate) fn again<T: Serialize + DeserializeOwned>(document: &T) -> T {
    let json = to_json(document);
    match parse(json.as_bytes()) {
        Ok(again) => {
            assert_eq!(to_json(&again), json);
            again
        }
        Err(error) => panic!("{json} was written and is refused: {error}"),
    }
}

/// Plans of PLAN.SUBMIT.
pub fn plan_document(data: &[u8]) -> bool {
    legal_plan(data).is_some()
}

fn legal_plan(json: &[u8]) -> Option<Plan> {
    let limits = Limits::default();
    let refused = |no: Rejection| check_refusal(no.line());
    plan::check_size(json.len(), &limits).map_err(refused).ok()?;
    let plan: Plan = read(json, Rejection::InvalidPlan)?;
    let stored = again(&plan);
    assert_eq!(stored, plan);
    assert_eq!(plan::check(&stored, &limits), plan::check(&plan, &limits));
    plan::check(&plan, &limits).map_err(refused).ok()?;
    let needs = plan::needs(&plan);
    assert!(plan.tasks.iter().all(|task| needs.tools.contains(&task.command)));
    assert!(needs.tools.is_sorted() && needs.tags.is_sorted(), "{needs:?}");
    Some(plan)
}

/// A plan on the first line, and behind it what ACTION.SUBMIT takes for that plan.
pub fn action_document(data: &[u8]) -> bool {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return false };
    let (plan, json) = (legal_plan(&data[..end]), &data[end + 1..]);
    let Some(plan) = plan else { return false };
    let Some(submission) = read::<ActionSubmission>(json, Rejection::InvalidAction) else { return false };
    let sent_again = again(&submission);
    let limits = Limits::default();
    let judged = action::check(&submission, &plan, &limits);
    assert_eq!(action::check(&sent_again, &plan, &limits), judged);
    if let Err(no) = judged {
        check_refusal(no.line());
        return false;
    }
    let wishes = action::options(&submission);
    assert_eq!(action::options(&sent_again), wishes);
    assert!(action::run_at(&wishes, NOW).is_none() || wishes.run_at.is_some() || wishes.delay_ms.is_some());
    submission.inputs.iter().for_each(|input| check_filled(&plan, input.get()));
    true
}

/// Checks that an accepted job can run: the worker reads the input, and finds every field that the
/// plan names.
fn check_filled(plan: &Plan, input: &str) {
    let input: Box<RawValue> = match parse(input.as_bytes()) {
        Ok(input) => input,
        Err(error) => panic!("an input was accepted that no worker can read: {error}"),
    };
    for (place, text) in plan.tasks.iter().flat_map(|task| task.templates()) {
        // Only the worker resolves a secret.
        if place.starts_with("env.") && template::secret(text).is_some() {
            continue;
        }
        match template::fill(text, template::Values { input: &input, slot: "1" }) {
            Ok(filled) => assert!(place == "stdin" || !filled.contains('\0'), "{place} gets a NUL byte"),
            Err(error) => panic!("{place} cannot be filled: {error}"),
        }
    }
}

/// Documents of workers: registrations, statistics of heartbeats, answers to challenges, and the
/// directives that workers receive.
pub fn worker_documents(data: &[u8]) -> bool {
    let stats: Option<Map<String, Value>> = read(data, Rejection::InvalidStats);
    let registration: Option<WorkerRegistration> = read(data, Rejection::InvalidRegistration);
    parse::<ChallengeAnswer>(data).into_iter().for_each(|answer| assert_eq!(again(&answer), answer));
    parse::<Directives>(data).into_iter().for_each(|directives| assert_eq!(again(&directives), directives));
    let stats = stats.map(|stats| to_json(&again(&stats)));
    registration.is_some_and(|registration| is_registered(registration, stats.as_deref()))
}

fn is_registered(mut registration: WorkerRegistration, stats: Option<&str>) -> bool {
    worker::shorten_descriptions(&mut registration);
    let descriptions = registration.descriptions.values();
    assert!(descriptions.into_iter().all(|text| text.len() <= worker::MAX_DESCRIPTION_BYTES));
    let stored = again(&registration);
    assert_eq!(stored, registration);
    assert_eq!(ClaimantCapabilities::of(&stored), ClaimantCapabilities::of(&registration));
    let registered = worker::registered(None, &registration, "connection", NOW);
    assert_eq!(worker::registered(None, &stored, "connection", NOW), registered);
    let known = match registered {
        Ok(known) => known,
        Err(no) => {
            check_refusal(no.line());
            return false;
        }
    };
    let Ok(seen) = worker::heartbeat(&known, stats, false, NOW) else {
        panic!("a worker that lives is seen")
    };
    let shown: WorkerStatus = seen.status(Some(stored), 0, Quantities::default());
    assert_eq!(again(&shown), shown);
    true
}
