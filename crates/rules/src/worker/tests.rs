//! Tests of the rules about workers.

use agenix_protocol::{
    documents::{DrainMark, WorkerRegistration, parse},
    time::Timestamp,
};

use super::{
    Directive, Liveness, NO_CONNECTION, Worker, check_connection, dead, detached, directed, drained,
    heartbeat, is_new_run, is_silent, quarantined, registered, reporter, run_named, with_longer_lease,
};
use crate::{ojs::VISIBILITY_MS, rejection::Rejection};

const NOW: Timestamp = Timestamp(1000);

fn registration(instance: &str) -> WorkerRegistration {
    parse(format!(r#"{{"worker_id":"w","capabilities":["sort"],"instance":"{instance}"}}"#).as_bytes())
        .unwrap()
}

fn worker() -> Worker {
    registered(None, &registration("a"), "c1", NOW).unwrap()
}

#[test]
fn registration_is_refused_while_the_connection_of_the_id_is_open() {
    let again = |known: &Worker, instance| registered(Some(known), &registration(instance), "c2", NOW);
    assert_eq!(again(&worker(), "b"), Err(Rejection::WorkerIdTaken));
    assert!(again(&worker(), "a").is_ok());
    assert!(again(&detached(&worker(), "c1").unwrap(), "b").is_ok());
    assert!(again(&dead(&worker()), "b").is_ok());
}

#[test]
fn run_is_named_on_the_connection_of_its_registration_only() {
    let named = run_named(&worker(), "c1", Some("b")).unwrap();
    assert!(!is_new_run(&named, &registration("b")) && is_new_run(&named, &registration("a")));
    assert_eq!(run_named(&worker(), "c2", Some("b")), None);
}

#[test]
fn connection_registers_and_names_one_worker_only() {
    let (w, x) = (worker().worker_id, "x".parse().unwrap());
    assert!(check_connection(None, &w).is_ok() && check_connection(Some(&w), &w).is_ok());
    let refused = check_connection(Some(&x), &w).unwrap_err().to_string();
    assert!(refused.ends_with("registered worker x before: use another connection for w"), "{refused}");
    assert_eq!(reporter(None, None), Ok(None));
    assert_eq!(reporter(None, Some(&x)), Ok(Some(&x)));
    assert_eq!(reporter(Some(&w), None), Ok(Some(&w)));
    let refused = reporter(Some(&w), Some(&x)).unwrap_err().to_string();
    assert_eq!(refused, "Invalid job update: worker_id is x, this connection is w");
}

#[test]
fn new_run_is_detected_by_its_instance() {
    assert!(is_new_run(&worker(), &registration("b")));
    assert!(!is_new_run(&worker(), &registration("a")));
    assert!(!is_new_run(&worker(), &WorkerRegistration { instance: None, ..registration("a") }));
}

#[test]
fn only_a_worker_without_heartbeats_may_be_silent_for_a_longer_lease() {
    let silent_for = |ms| Worker { silence_ms: Some(ms), ..worker() };
    let (fetched, beating) = (silent_for(VISIBILITY_MS), silent_for(30_000));
    let longer = with_longer_lease(&fetched, VISIBILITY_MS + 1).and_then(|worker| worker.silence_ms);
    assert_eq!(longer, Some(VISIBILITY_MS + 1));
    assert_eq!(with_longer_lease(&fetched, VISIBILITY_MS), None);
    assert_eq!(with_longer_lease(&beating, VISIBILITY_MS + 1), None);
    assert_eq!(with_longer_lease(&worker(), VISIBILITY_MS + 1), None);
}

#[test]
fn silence_is_measured_from_the_last_sign_of_life() {
    let worker = heartbeat(&worker(), None, false, Timestamp(2000)).unwrap();
    assert!(!is_silent(&worker, Timestamp(2000 + 90_000), NOW, 90_000));
    assert!(is_silent(&worker, Timestamp(2000 + 90_001), NOW, 90_000));
    assert!(!is_silent(&worker, Timestamp(2000 + 90_001), Timestamp(50_000), 90_000), "agq was away before");
    assert!(!is_silent(&dead(&worker), Timestamp(1_000_000), NOW, 90_000));
}

#[test]
fn silence_is_detected_after_the_clock_was_set_back() {
    let long_ago = Timestamp(1_000_000);
    let worker = heartbeat(&worker(), None, false, Timestamp(9_000_000)).unwrap();
    assert!(!is_silent(&worker, long_ago, long_ago, 90_000), "it is listened for from now on");
    assert!(is_silent(&worker, Timestamp(long_ago.0 + 90_001), long_ago, 90_000));
    let alive = heartbeat(&worker, None, false, Timestamp(long_ago.0 + 80_000)).unwrap();
    assert!(!is_silent(&alive, Timestamp(long_ago.0 + 90_001), long_ago, 90_000));
    let just_now = heartbeat(&worker, None, false, Timestamp(long_ago.0 + 5)).unwrap();
    assert!(!is_silent(&just_now, long_ago, NOW, 90_000), "it was heard while agq looked");
}

#[test]
fn dead_worker_has_to_register_again() {
    assert!(heartbeat(&dead(&worker()), None, false, NOW).is_err());
    let quiet = heartbeat(&worker(), Some("{}"), true, NOW).unwrap();
    assert_eq!((quiet.state(), quiet.takes_jobs(), quiet.wants_jobs()), ("quiet", true, false));
    assert_eq!(heartbeat(&quiet, None, false, NOW).unwrap().state(), "quiet", "it said nothing else");
    assert_eq!(dead(&worker()).liveness, Liveness::Dead);
    assert_eq!(detached(&worker(), "c9"), None);
}

#[test]
fn directive_and_quarantine_stay_with_a_run() {
    let draining = directed(&worker(), Some(Directive::Drain)).unwrap();
    assert_eq!((draining.state(), draining.takes_jobs()), ("draining", false));
    let again =
        |known: &Worker, instance| registered(Some(known), &registration(instance), "c1", NOW).unwrap();
    assert_eq!(again(&draining, "a").state(), "draining");
    assert_eq!(again(&draining, "b").state(), "active");
    assert!(again(&draining, "a").registered_at > draining.registered_at);
    assert_eq!(directed(&quarantined(&worker(), "it fails", NOW), None).unwrap().state(), "active");
    assert_eq!(
        directed(&quarantined(&worker(), "it fails", NOW), Some(Directive::Drain))
            .unwrap()
            .quarantine
            .as_deref(),
        Some("it fails")
    );
    assert!(directed(&dead(&worker()), None).is_err());
}

#[test]
fn worker_without_instance_stays_drained_and_quarantined() {
    let unnamed = WorkerRegistration { instance: None, ..registration("a") };
    let again = |known: &Worker, connection| registered(Some(known), &unnamed, connection, NOW).unwrap();
    let new = registered(None, &unnamed, "c1", NOW).unwrap();
    let mark = DrainMark { by: "agx-scale".into(), at: NOW };
    let by_program = drained(&new, mark).unwrap();
    let bad = quarantined(&new, "it fails", NOW);
    for (known, state) in [(&by_program, "draining"), (&bad, "quarantined")] {
        let apart = detached(known, "c1").unwrap();
        for after in [again(known, "c1"), again(&apart, "c2"), again(&dead(known), "c2")] {
            assert_eq!(after.state(), state);
            assert_eq!((&after.drained, after.trial_at), (&known.drained, known.trial_at));
        }
        let named = registered(Some(&apart), &registration("b"), "c2", NOW).unwrap();
        assert_eq!((named.state(), named.drained), ("active", None), "{state}");
    }
    let leaving = directed(&new, Some(Directive::Terminate)).unwrap();
    assert_eq!(again(&leaving, "c1").state(), "terminating");
    let restarted = again(&detached(&leaving, "c1").unwrap(), "c2");
    assert_eq!(restarted.state(), "active", "the process that was to exit is another one");
    let over_http = Worker { connection: Some(NO_CONNECTION.into()), ..leaving };
    assert_eq!(again(&over_http, NO_CONNECTION).state(), "active");
}

#[test]
fn drain_by_a_program_keeps_its_mark_until_an_operator_decides() {
    let mark = |ms| DrainMark { by: "agx-scale".into(), at: Timestamp(ms) };
    let marked = |worker: &Worker| worker.drained.clone();
    let by_program = drained(&worker(), mark(2000)).unwrap();
    assert_eq!((by_program.state(), marked(&by_program)), ("draining", Some(mark(2000))));
    assert_eq!(marked(&drained(&by_program, mark(3000)).unwrap()), Some(mark(3000)));
    let again = |instance| registered(Some(&by_program), &registration(instance), "c1", NOW).unwrap();
    assert_eq!((marked(&again("a")), marked(&again("b"))), (Some(mark(2000)), None));
    for directive in [None, Some(Directive::Drain), Some(Directive::Terminate)] {
        assert_eq!(marked(&directed(&by_program, directive).unwrap()), None, "{directive:?}");
    }
    let by_operator = directed(&worker(), Some(Directive::Drain)).unwrap();
    let both = drained(&by_operator, mark(2000)).unwrap();
    assert_eq!((both.state(), marked(&both)), ("draining", None));
    assert!(drained(&dead(&worker()), mark(2000)).is_err());
}
