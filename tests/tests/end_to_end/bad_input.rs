//! Bad input gets a clear error, and nothing is lost or half done.

use e2e::{Agq, Lab};
use serde_json::Value;

use crate::support::{RawConnection, action, ended, plan};

const TEN_MB: usize = 10 * 1024 * 1024;

fn lab() -> (Lab, Agq) {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    (lab, agq)
}

/// Returns a SET command whose whole message has `total` bytes.
fn set_of(total: usize) -> Vec<u8> {
    let length = total - "SET".len() - "k".len();
    [format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n").as_bytes(), &vec![b'x'; length], b"\r\n"].concat()
}

#[test]
fn ten_megabytes_are_fine_and_one_byte_more_is_refused() {
    let (lab, agq) = lab();
    let mut raw = RawConnection::open(&lab, &agq);
    raw.send_bytes(&set_of(TEN_MB));
    assert_eq!(raw.line(), "+OK");
    raw.send_bytes(&set_of(TEN_MB + 1));
    assert_eq!(raw.line(), "-ERR Message too large: max 10485760 bytes");
    assert!(raw.is_closed());
    let mut raw = RawConnection::open(&lab, &agq);
    raw.send("GET k\n");
    assert_eq!(raw.bulk().len(), TEN_MB - 4, "what was there before is untouched");
}

#[test]
fn broken_frame_is_named_after_the_replies_before_it() {
    let (lab, agq) = lab();
    let mut raw = RawConnection::open(&lab, &agq);
    raw.send("SET k v\n*1\r\n+PING\r\n");
    assert_eq!(raw.line(), "+OK");
    assert_eq!(raw.line(), "-ERR Protocol error: expected '$': a command is an array of bulk strings");
    assert!(raw.is_closed());
}

#[test]
fn promised_length_takes_no_memory_and_a_cut_frame_does_nothing() {
    let (lab, agq) = lab();
    let mut raw = RawConnection::open(&lab, &agq);
    raw.send("*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$10485000\r\nonly this");
    drop(raw);
    let mut raw = RawConnection::open(&lab, &agq);
    assert_eq!(raw.ask("GET half"), "$-1");
}

#[test]
fn before_login_nothing_is_answered_and_a_wrong_key_is_refused() {
    let (_lab, agq) = lab();
    let mut raw = RawConnection::bare(&agq);
    for command in ["PING", "GET k", "NONSENSE"] {
        assert_eq!(raw.ask(command), "-ERR NOAUTH Authentication required");
    }
    assert_eq!(raw.ask(&format!("AUTH {}", "x".repeat(64))), "-ERR Invalid session key");
    assert_eq!(raw.ask("PING"), "-ERR NOAUTH Authentication required");
}

#[test]
fn authentication_errors_have_the_first_word_that_clients_of_redis_recognise() {
    let (lab, agq) = lab();
    let wrong = "x".repeat(64);
    let (none, refused) = ("-NOAUTH Authentication required.", "-WRONGPASS Invalid session key.");
    let mut raw = RawConnection::bare(&agq);
    for command in ["CLIENT SETNAME x", "PING", "NONSENSE"] {
        assert_eq!(raw.ask(command), none, "after CLIENT");
    }
    assert_eq!(raw.ask(&format!("AUTH {wrong}")), refused, "after CLIENT");
    assert_eq!(RawConnection::bare(&agq).ask(&format!("AUTH default {wrong}")), refused);
    assert_eq!(RawConnection::bare(&agq).ask(&format!("HELLO 3 AUTH default {wrong}")), refused);
    assert_eq!(
        RawConnection::bare(&agq).ask(&format!("AUTH someone {wrong}")),
        "-ERR AUTH requires exactly one argument"
    );
    drop(agq);
    for (texts, expected) in [("plain", "-ERR Invalid session key"), ("redis", refused)] {
        let agq = lab.agq(&["--auth-errors", texts]);
        assert_eq!(RawConnection::bare(&agq).ask(&format!("AUTH {wrong}")), expected);
        assert_eq!(RawConnection::bare(&agq).ask(&format!("HELLO 3 AUTH default {wrong}")), expected);
    }
}

#[test]
fn bad_plans_and_actions_are_refused_whole() {
    let (lab, agq) = lab();
    let mut raw = RawConnection::open(&lab, &agq);
    let task = |n: usize| format!(r#"{{"task_number":{n},"command":"cat","args":["{{{{input.f}}}}"]}}"#);
    let of = |tasks: Vec<String>| format!(r#"{{"plan_id":"p","tasks":[{}]}}"#, tasks.join(","));
    let cases = [
        (of((1..=101).map(task).collect()), "tasks has 101 tasks, max 100"),
        (of(vec![task(1), task(3)]), "tasks[1].task_number is 3, expected 2"),
        (of(vec![r#"{"task_number":1,"command":""}"#.into()]), "tasks[0].command is empty"),
        (of(vec![r#"{"task_number":1,"comand":"x"}"#.into()]), "tasks[0].comand: unknown field `comand`"),
        (
            of(vec![r#"{"task_number":"1","command":"x"}"#.into()]),
            "tasks[0].task_number: invalid type: string",
        ),
        (
            of(vec![r#"{"task_number":1,"command":"x","input_from_task":2}"#.into()]),
            "input_from_task is 2: it must name a task before",
        ),
    ];
    for (json, words) in cases {
        let reply = raw.ask(&format!("PLAN.SUBMIT '{json}'"));
        assert!(reply.starts_with("-ERR Invalid plan schema: ") && reply.contains(words), "{reply}");
    }
    assert_eq!(raw.ask("PLAN.GET p"), "$-1");
    assert_eq!(raw.ask(&format!("PLAN.SUBMIT '{}'", of(vec![task(1)]))), "+OK plan_id=p");
    let unmet = r#"ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{"f":"x"},{"g":"y"}]}'"#;
    let reply = raw.ask(unmet);
    assert_eq!(
        reply,
        "-ERR Invalid action schema: inputs[1] has no field 'f', which task 1 args[0] of the plan uses"
    );
    assert_eq!(raw.ask(r#"ACTION.SUBMIT '{"plan_id":"q","inputs":[{}]}'"#), "-ERR Plan not found: q");
    assert_eq!(raw.ask("ACTION.STATUS a"), "$-1");
    assert_eq!(raw.ask("LLEN queue:ready"), ":0");
}

/// Runs one job of `plan` to its end.
fn run(plan: &str, agw: &[&str]) -> (Lab, Agq, Value) {
    let (lab, agq) = lab();
    let worker = lab.agw(&agq, "w1", agw);
    lab.submit_plan(&agq, plan);
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = ended(&lab, &agq, "a");
    drop(worker);
    (lab, agq, job)
}

#[test]
fn bytes_that_are_no_text_come_back_as_they_were() {
    let (lab, agq, job) = run(&plan("p", "printf", &["\\377\\000a"]), &[]);
    assert_eq!(job["task_results"][0]["stdout_encoding"], "base64");
    lab.agx(&agq, &["action", "results", "a", "--output-dir", "out"]).expect(0);
    assert_eq!(std::fs::read(lab.path().join("out/0.out")).unwrap(), [0xff, 0, b'a']);
}

#[test]
fn gigabyte_of_output_comes_back() {
    let (lab, agq, job) = run(&plan("p", "head", &["-c", "1000000000", "/dev/zero"]), &[]);
    let result = &job["task_results"][0];
    assert_eq!(
        (result["stdout_bytes"].as_u64(), result["stdout_truncated"].as_bool()),
        (Some(1_000_000_000), Some(true))
    );
    assert_eq!(result["stdout"].as_str().map(str::len), Some(64 * 1024));
    lab.agx(&agq, &["action", "results", "a", "--output-dir", "out"]).expect(0);
    assert_eq!(std::fs::metadata(lab.path().join("out/0.out")).unwrap().len(), 1_000_000_000);
}

#[test]
fn task_that_ignores_sigterm_is_killed_with_its_whole_group() {
    let script = "trap '' TERM; sleep 1000 & echo $!; wait; while :; do sleep 1; done";
    let plan = format!(
        r#"{{"plan_id":"p","tasks":[{{"task_number":1,"command":"sh","args":["-c","{script}"],"timeout_secs":5}}]}}"#
    );
    let (_lab, _agq, job) = run(&plan, &["--kill-grace", "1"]);
    assert_eq!((job["status"].as_str(), job["error"].as_str()), (Some("failed"), Some("Task 1 timed out")));
    let result = &job["task_results"][0];
    assert_eq!(
        (result["timed_out"].as_bool(), result["signal"].as_i64(), result["exit_code"].as_i64()),
        (Some(true), Some(9), Some(137))
    );
    let child: i32 = result["stdout"].as_str().unwrap().trim().parse().unwrap();
    e2e::eventually("what the task started is gone", || e2e::is_gone(child).then_some(()));
}

#[test]
fn reader_that_stops_early_is_no_failure_between_spooled_tasks() {
    let plan = r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"seq","args":["1000000"]},
        {"task_number":2,"command":"head","args":["-1"],"input_from_task":1}]}"#;
    let (_lab, _agq, job) = run(plan, &[]);
    assert_eq!((job["status"].as_str(), job["stdout"].as_str()), (Some("completed"), Some("1\n")));
}

#[test]
fn reader_that_stops_early_fails_a_stream_as_pipefail_does() {
    let plan = r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"yes"},
        {"task_number":2,"command":"head","args":["-1"],"input_from_task":1,"stream":true}]}"#;
    let (_lab, _agq, job) = run(plan, &[]);
    assert_eq!(job["error"], "Task 1 (yes) was ended by signal 13");
    assert_eq!(job["task_results"][1]["stdout"], "y\n");
}

#[test]
fn first_failing_task_ends_the_job_with_the_results_so_far() {
    let plan = r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"echo","args":["one"]},
        {"task_number":2,"command":"ls","args":["/nowhere"]},{"task_number":3,"command":"touch","args":["never"]}]}"#;
    let (lab, agq, job) = run(plan, &[]);
    assert_eq!(job["task_results"].as_array().map(Vec::len), Some(2));
    assert!(job["error"].as_str().unwrap().starts_with("Task 2 (ls) exited with code "), "{job}");
    assert_eq!(action(&lab, &agq, "a")["failed"], 1);
    let results = lab.agx(&agq, &["action", "results", "a"]).expect(1);
    assert!(results.err.contains("failed: Task 2 (ls) exited with code "), "{}", results.err);
}

#[test]
fn directory_that_is_not_there_is_a_failed_task() {
    let plan = r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true","cwd":"/nowhere"}]}"#;
    let (_lab, _agq, job) = run(plan, &[]);
    assert_eq!(job["task_results"][0]["exit_code"], 126);
    let words = "could not be started: its cwd '/nowhere' is not a directory on this worker";
    assert!(job["error"].as_str().unwrap().contains(words), "{job}");
}

#[test]
fn session_key_is_not_in_the_environment_of_a_task() {
    let (_lab, _agq, job) = run(&plan("p", "env", &[]), &[]);
    assert!(!job["stdout"].as_str().unwrap().contains("AGQ_SESSION_KEY"), "{job}");
}

#[test]
fn before_login_a_command_is_small() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    for (sent, reply) in [
        ("*2\r\n$4\r\nAUTH\r\n$16381\r\n", "-ERR Message too large: max 16384 bytes"),
        ("*17\r\n", "-ERR Message too large: max 16 elements"),
    ] {
        let mut stranger = RawConnection::bare(&agq);
        stranger.send(sent);
        assert_eq!(stranger.line(), reply);
        assert!(stranger.is_closed());
    }
    // Bytes after AUTH in the same packet count as authenticated, whether agq has read them before
    // or after the login.
    let large = "x".repeat(100_000);
    for is_waited_for in [false, true] {
        let mut known = RawConnection::bare(&agq);
        if is_waited_for {
            assert_eq!(known.ask("PING"), "-ERR NOAUTH Authentication required");
        }
        let packet = format!("AUTH {}\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n{large}\r\n", lab.key());
        known.send(&packet);
        assert_eq!((known.line().as_str(), known.line().as_str()), ("+OK", "+OK"));
    }
}
