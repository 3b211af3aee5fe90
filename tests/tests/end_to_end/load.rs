//! Load: clients that do not read, submissions in chunks, lists by pages.

use std::fmt::Write;

use e2e::{Agq, Lab, eventually};

use crate::support::{RawConnection, action, numbered, plan};

/// Waits until agq lists no connection named `name`. Checks that agq serves `other` meanwhile.
fn gone(name: &str, other: &mut RawConnection) {
    let named = format!("name={name} ");
    eventually("the client that does not read is gone", || {
        assert_eq!(other.ask("PING"), "+PONG", "the other is served all the while");
        other.send("CLIENT LIST\n");
        (!other.bulk().contains(&named)).then_some(())
    });
}

fn log(lab: &Lab) -> String {
    std::fs::read_to_string(lab.path().join("agq.log")).unwrap()
}

/// Stores a value of a megabyte under the key `k`.
fn keep_a_megabyte(raw: &mut RawConnection) {
    let megabyte = "x".repeat(1_000_000);
    raw.send(&format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{megabyte}\r\n"));
    assert_eq!(raw.line(), "+OK");
}

#[test]
fn client_that_never_reads_is_cut_off_and_what_it_held_goes_back() {
    let lab = Lab::new();
    let agq = lab.agq(&["--send-timeout", "0.5"]);
    let (mut deaf, mut other) = (RawConnection::open(&lab, &agq), RawConnection::open(&lab, &agq));
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    keep_a_megabyte(&mut other);
    assert_eq!(deaf.ask("CLIENT SETNAME deaf"), "+OK");
    deaf.send("RPOP queue:ready\n");
    assert!(deaf.bulk().contains(r#""action_id":"a""#));
    assert_eq!(other.ask("LLEN queue:ready"), ":0");
    // The replies exceed every socket buffer.
    deaf.send(&"GET k\n".repeat(200));
    gone("deaf", &mut other);
    eventually("its job goes back", || (other.ask("LLEN queue:ready") == ":1").then_some(()));
    let log = log(&lab);
    assert!(
        log.contains("a client is disconnected") && log.contains("none of its replies for 0.5 seconds"),
        "{log}"
    );
}

#[test]
fn client_that_reads_late_gets_everything() {
    let lab = Lab::new();
    let agq = lab.agq(&["--send-timeout", "0"]);
    let (mut late, mut other) = (RawConnection::open(&lab, &agq), RawConnection::open(&lab, &agq));
    keep_a_megabyte(&mut other);
    late.send(&"GET k\n".repeat(50));
    assert_eq!(other.ask("PING"), "+PONG");
    for _ in 0..50 {
        assert_eq!(late.bulk().len(), 1_000_000);
    }
    assert_eq!(late.ask("PING"), "+PONG");
}

#[test]
fn subscriber_that_is_too_slow_is_cut_off_and_the_publisher_is_not() {
    let lab = Lab::new();
    let agq = lab.agq(&["--send-timeout", "0", "--max-commands-per-second", "0"]);
    let (mut slow, mut publisher) = (RawConnection::open(&lab, &agq), RawConnection::open(&lab, &agq));
    assert_eq!(slow.ask("CLIENT SETNAME slow"), "+OK");
    slow.send("SUBSCRIBE c\n");
    assert_eq!((slow.line().as_str(), slow.bulk().as_str()), ("*3", "subscribe"));
    assert_eq!((slow.bulk().as_str(), slow.line().as_str()), ("c", ":1"));
    let megabyte = "x".repeat(1_000_000);
    let message = format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n$1000000\r\n{megabyte}\r\n");
    eventually("nobody receives messages any more", || {
        publisher.send(&message);
        (publisher.line() == ":0").then_some(())
    });
    gone("slow", &mut publisher);
    let log = log(&lab);
    assert!(
        log.contains("a client is disconnected") && log.contains("does not keep up with its messages"),
        "{log}"
    );
    // The client can still read the earlier messages, and then the connection ends.
    assert_eq!((slow.line().as_str(), slow.bulk().as_str()), ("*3", "message"));
}

fn lines(count: usize) -> String {
    (0..count).fold(String::new(), |mut lines, n| {
        writeln!(lines, "{n}").unwrap();
        lines
    })
}

fn submit(lab: &Lab, agq: &Agq, text: &str) -> e2e::Ran {
    lab.file("lines", text);
    lab.agx(agq, &["action", "submit", "p", "--id", "a", "--lines", "lines"])
}

#[test]
fn large_submission_goes_in_chunks_and_may_be_repeated() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "echo", &["{{input.line}}"]));
    let ran = submit(&lab, &agq, &lines(12_000)).expect(0);
    assert!(ran.out.contains("action a has 12000 jobs"), "{}", ran.out);
    assert!(ran.err.contains("gets its 12000 inputs in 6 chunks"), "{}", ran.err);
    let status = action(&lab, &agq, "a");
    assert_eq!((status["total_jobs"].as_u64(), status["open"].as_bool()), (Some(12_000), Some(false)));

    agq.kill();
    agq.start_again(&lab);
    submit(&lab, &agq, &lines(12_000)).expect(0);
    assert_eq!(action(&lab, &agq, "a")["total_jobs"], 12_000, "the same again is no more");
    let fewer = submit(&lab, &agq, &lines(11_000)).expect(4);
    assert!(fewer.err.contains("Action already exists with other content: a"), "{}", fewer.err);
    let others = submit(&lab, &agq, &lines(12_000).replace("11999\n", "other\n")).expect(4);
    assert!(others.err.contains("input 11999 already exists with other content"), "{}", others.err);
}

#[test]
fn submission_that_was_broken_off_goes_on_where_it_was() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "echo", &["{{input.line}}"]));
    let mut raw = RawConnection::open(&lab, &agq);
    assert_eq!(
        raw.ask(r#"ACTION.SUBMIT '{"action_id":"a","plan_id":"p","open":true}'"#),
        "+OK action_id=a jobs_created=0"
    );
    assert_eq!(
        raw.ask(r#"ACTION.ADD a '[{"line":"0"},{"line":"1"}]' AT 0"#),
        "+OK action_id=a jobs_created=2 total_jobs=2"
    );
    submit(&lab, &agq, &lines(6_000)).expect(0);
    let status = action(&lab, &agq, "a");
    assert_eq!((status["total_jobs"].as_u64(), status["open"].as_bool()), (Some(6_000), Some(false)));
}

#[test]
fn nothing_of_a_large_submission_runs_where_one_input_is_wrong() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "echo", &["{{input.n}}"]));
    let inputs = numbered(7_000).replace(r#"{"n":6999}"#, "{}");
    let file = lab.file("inputs.json", &inputs).display().to_string();
    let refused = lab.agx(&agq, &["action", "submit", "p", "--id", "a", "--inputs", &file]).expect(4);
    assert!(refused.err.contains("inputs[6999] has no field 'n'"), "{}", refused.err);
    lab.agx(&agq, &["action", "status", "a"]).expect(4);
}

#[test]
fn pages_make_up_the_whole_list() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", &numbered(2_500));
    let mut raw = RawConnection::open(&lab, &agq);
    let mut listed = |command: &str| -> Vec<String> {
        let count: usize = raw.ask(command).strip_prefix('*').unwrap().parse().unwrap();
        (0..count).map(|_| raw.bulk()).collect()
    };
    let whole = listed("JOB.LIST a");
    assert_eq!(whole.len(), 2_500);
    for status in ["", "pending "] {
        let pages: Vec<String> = (0..2_500)
            .step_by(1_000)
            .flat_map(|offset| listed(&format!("JOB.LIST a {status}LIMIT 1000 OFFSET {offset}")))
            .collect();
        assert_eq!(pages, whole, "{status}");
    }
    assert!(listed("JOB.LIST a OFFSET 2500").is_empty());
}
