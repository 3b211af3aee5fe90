//! Pub/sub: subscribers receive events in step with the replies to their commands.

use e2e::{Agq, Lab};

use crate::support::{RawConnection, plan};

/// Returns `count` bulk strings of a push whose first line was read before.
fn texts(raw: &mut RawConnection, count: usize) -> Vec<String> {
    (0..count).map(|_| raw.bulk()).collect()
}

fn subscribed(lab: &Lab, agq: &Agq, channel: &str) -> RawConnection {
    let mut raw = RawConnection::open(lab, agq);
    raw.send(&format!("SUBSCRIBE {channel}\n"));
    assert_eq!(raw.line(), "*3");
    assert_eq!(texts(&mut raw, 2), ["subscribe", channel]);
    assert_eq!(raw.line(), ":1");
    raw
}

fn event(raw: &mut RawConnection) -> serde_json::Value {
    assert_eq!(raw.line(), "*3");
    serde_json::from_str(&texts(raw, 3)[2]).unwrap()
}

#[test]
fn job_is_followed_from_its_submission_to_its_end() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    let (mut jobs, mut action) =
        (subscribed(&lab, &agq, "job:updates"), subscribed(&lab, &agq, "action:updates:a"));
    let mut workers = subscribed(&lab, &agq, "worker:updates");
    let mut worker = RawConnection::open(&lab, &agq);
    assert!(worker.ask(r#"WORKER.REGISTER '{"worker_id":"w","capabilities":["true"]}'"#).starts_with("+OK"));
    assert_eq!(event(&mut workers)["event"], "registered");
    lab.submit_action(&agq, "p", "a", "[{}]");
    let received = event(&mut jobs);
    assert_eq!((received["action_id"].as_str(), received["status"].as_str()), (Some("a"), Some("pending")));
    assert_eq!(event(&mut action)["pending"], 1);
    worker.send("RPOP queue:ready\n");
    let job = worker.bulk().split('"').nth(3).unwrap().to_owned();
    let received = event(&mut jobs);
    assert_eq!((received["status"].as_str(), received["worker_id"].as_str()), (Some("running"), Some("w")));
    assert_eq!(worker.ask(&format!(r#"JOB.UPDATE {job} '{{"status":"completed"}}'"#)), "+OK");
    assert_eq!(event(&mut jobs)["status"], "completed");
    assert_eq!(event(&mut action)["running"], 1);
    assert_eq!(event(&mut action)["completed"], 1);
    assert_eq!(worker.ask("WORKER.UNREGISTER w"), "+OK");
    assert_eq!(event(&mut workers)["event"], "unregistered");
}

#[test]
fn nothing_comes_after_unsubscribe_was_confirmed() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-commands-per-second", "0"]);
    let mut publisher = RawConnection::open(&lab, &agq);
    for _ in 0..20 {
        let mut listener = subscribed(&lab, &agq, "c");
        publisher.send(&"PUBLISH c x\n".repeat(500));
        listener.send("UNSUBSCRIBE c\n");
        loop {
            let head = listener.line();
            assert_eq!(head, "*3");
            let kind = listener.bulk();
            if kind == "unsubscribe" {
                assert_eq!((listener.bulk().as_str(), listener.line().as_str()), ("c", ":0"));
                break;
            }
            assert_eq!(
                (kind.as_str(), texts(&mut listener, 2)),
                ("message", vec!["c".to_owned(), "x".to_owned()])
            );
        }
        assert_eq!(listener.ask("PING"), "+PONG", "the next line is the reply");
        assert!((0..500).all(|_| publisher.line().starts_with(':')));
    }
}

#[test]
fn events_of_agq_are_published_by_agq_alone() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    for channel in ["job:updates", "action:updates:a", "worker:w:orders"] {
        let refused = raw.ask(&format!("PUBLISH {channel} lie"));
        assert!(refused.contains("is reserved: only agq publishes its events"), "{refused}");
    }
    let mut listener = subscribed(&lab, &agq, "mine");
    assert_eq!(raw.ask("PUBLISH mine hello"), ":1");
    assert_eq!((listener.line().as_str(), texts(&mut listener, 3)[2].as_str()), ("*3", "hello"));
}
