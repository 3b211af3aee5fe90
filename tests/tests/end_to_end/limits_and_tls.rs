//! Listeners of agq: sockets, keys, rate limits, and the audit log.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use e2e::{Agq, Lab, eventually};
use serde_json::Value;

use crate::support::{RawConnection, numbered, plan};

/// Waits until the log of agq contains `words`.
fn wait_for_log(lab: &Lab, words: &str) {
    let log = lab.path().join("agq.log");
    eventually(words, || std::fs::read_to_string(&log).unwrap().contains(words).then_some(()));
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn unix_socket_is_a_listener_for_its_owner() {
    let lab = Lab::new();
    let socket = lab.path().join("agq.sock");
    let mut agq = lab.agq(&["--no-tcp", "--socket", "agq.sock"]);
    assert_eq!(mode(&socket), 0o600);
    let address = format!("unix:{}", socket.display());
    let agw = lab.agw(&agq, "w1", &["--agq", &address]);
    let agx = |args: &[&str]| lab.agx(&agq, &[&["--agq", address.as_str()][..], args].concat());
    lab.file("plan.json", &plan("p", "echo", &["{{input.line}}"]));
    lab.file("lines", "one\n");
    agx(&["plan", "submit", "plan.json"]).expect(0);
    agx(&["action", "submit", "p", "--id", "a", "--lines", "lines", "--wait"]).expect(0);
    assert_eq!(agx(&["action", "results", "a"]).expect(0).out, "one\n");
    drop(agw);
    // A killed agq leaves its socket behind, and the next one replaces it.
    agq.kill();
    assert!(socket.exists());
    agq.start_again(&lab);
    let second = lab
        .command("agq")
        .args(["--no-tcp", "--socket", "agq.sock", "--data-dir", "other"])
        .output()
        .unwrap();
    let second = e2e::Ran::from(second).expect(1);
    assert!(second.err.contains("something already listens on agq.sock"), "{}", second.err);
    assert!(agq.stop().success());
    assert!(!socket.exists(), "one that ends takes it away");
}

#[test]
fn network_listener_requires_tls() {
    let lab = Lab::new();
    for ip in ["0.0.0.0", "::"] {
        let refused = lab.command("agq").args(["--port", "0", "--bind", ip, "--data-dir", "data"]).output();
        let refused = e2e::Ran::from(refused.unwrap()).expect(1);
        let words = format!("refusing to listen on {ip} without TLS");
        assert!(refused.err.contains(&words) && refused.err.contains("--insecure"), "{}", refused.err);
    }
    assert!(!lab.path().join("data").exists(), "nothing was begun");
}

fn config(lab: &Lab, text: &str) -> String {
    lab.file("agq.toml", text).display().to_string()
}

/// Returns the reply to AUTH with `key` on a new connection.
fn reply_to_auth(agq: &Agq, key: &str) -> String {
    RawConnection::bare(agq).ask(&format!("AUTH {key}"))
}

#[test]
fn keys_change_without_a_connection_being_lost() {
    let lab = Lab::new();
    let keys = ["1".repeat(64), "2".repeat(64), "3".repeat(64)];
    let write = |key: &str| config(&lab, &format!("[clients]\nalice = '{key}'\n"));
    let agq = lab.agq(&["--config", &write(&keys[0]), "--max-auth-failures", "0"]);
    let mut alice = RawConnection::bare(&agq);
    assert_eq!(alice.ask(&format!("AUTH {}", keys[0])), "+OK");

    write(&keys[1]);
    agq.reload();
    wait_for_log(&lab, "SIGHUP, keys: read again");
    assert_eq!(reply_to_auth(&agq, &keys[1]), "+OK");
    assert_eq!(reply_to_auth(&agq, &keys[0]), "-ERR Invalid session key");
    assert_eq!(alice.ask("PING"), "+PONG", "who is in stays");

    config(&lab, &format!("[clients]\nalice = '{}", keys[2]));
    agq.reload();
    wait_for_log(&lab, "SIGHUP, keys: not reloaded, because");
    assert_eq!(reply_to_auth(&agq, &keys[1]), "+OK");
    assert_eq!(reply_to_auth(&agq, &keys[2]), "-ERR Invalid session key");
    assert_eq!(reply_to_auth(&agq, lab.key()), "+OK", "so does the session key");
    let log = std::fs::read_to_string(lab.path().join("agq.log")).unwrap();
    assert!(keys.iter().all(|key| !log.contains(key.as_str())), "no key is in the log");
}

#[test]
fn key_may_be_given_as_its_hash() {
    let lab = Lab::new();
    // The hash is the output of `printf %s KEY | sha256sum`.
    let hash = "2519b49bcf69feac270ac3c8631539e8caed4c7e6a62c6cc5511228a61780745";
    let text = format!("[clients]\nalice = 'sha256:{hash}'\n");
    let agq = lab.agq(&["--config", &config(&lab, &text)]);
    assert_eq!(reply_to_auth(&agq, &"k".repeat(64)), "+OK");
    assert_eq!(
        reply_to_auth(&agq, &format!("sha256:{hash}")),
        "-ERR Invalid session key",
        "a hash is no key"
    );
}

#[test]
fn wrong_keys_wait_and_right_ones_do_not() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-auth-failures", "2"]);
    let wrong = "x".repeat(64);
    assert_eq!(reply_to_auth(&agq, &wrong), "-ERR Invalid session key");
    assert_eq!(reply_to_auth(&agq, &wrong), "-ERR Invalid session key");
    let begun = Instant::now();
    assert_eq!(reply_to_auth(&agq, &wrong), "-ERR Invalid session key");
    assert!(begun.elapsed() >= Duration::from_secs(1), "the third waits");
    // The next attempts wait for 2, 4, 8, 16 and 30 seconds.
    let waiting: Vec<TcpStream> = (0..5)
        .map(|_| {
            let mut stream = TcpStream::connect(agq.address()).unwrap();
            stream.write_all(format!("AUTH {wrong}\n").as_bytes()).unwrap();
            stream
        })
        .collect();
    wait_for_log(&lab, "delay_ms=30000");
    assert_eq!(reply_to_auth(&agq, lab.key()), "+OK");
    let unanswered = waiting.iter().filter(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut reader: &TcpStream = stream;
        let read = reader.read(&mut [0]);
        read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    });
    assert!(unanswered.count() > 0, "a right key did not wait for the wrong ones");
}

#[test]
fn address_has_a_maximum_number_of_connections() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-connections-per-ip", "3", "--socket", "agq.sock"]);
    let mut inside: Vec<RawConnection> = (0..3).map(|_| RawConnection::open(&lab, &agq)).collect();
    let mut outside = RawConnection::bare(&agq);
    assert_eq!(outside.line(), "-ERR Too many connections from 127.0.0.1: max 3");
    assert!(outside.is_closed());
    for raw in &mut inside {
        assert_eq!(raw.ask("PING"), "+PONG");
    }
    let address = format!("unix:{}", lab.path().join("agq.sock").display());
    lab.agx(&agq, &["--agq", &address, "queue", "stats"]).expect(0);
    inside.pop();
    eventually("a place becomes free", || is_let_in(&lab, &agq).then_some(()));
}

#[test]
fn at_the_connection_limit_a_worker_works_and_the_next_ones_say_what_helps() {
    let lab = Lab::new();
    // A worker has three connections, and a fourth one for large outputs.
    let agq = lab.agq(&["--max-connections-per-ip", "4", "--socket", "agq.sock"]);
    let address = format!("unix:{}", lab.path().join("agq.sock").display());
    let mut command = lab.command("agw");
    command.env("AGQ_ADDR", agq.address()).env("AGW_LOG", "debug");
    let mut first = lab.agw_by("w1", command);
    let fourth = RawConnection::open(&lab, &agq);
    let help = "close some of them, or raise agq's --max-connections-per-ip";
    let refused = lab.agx(&agq, &["queue", "stats"]).expect(3).err;
    assert!(refused.contains("Too many connections from 127.0.0.1: max 4"), "{refused}");
    assert!(refused.contains(help), "{refused}");

    let over_the_socket = |args: &[&str]| lab.agx(&agq, &[&["--agq", address.as_str()][..], args].concat());
    lab.file("plan.json", &plan("p", "seq", &["{{input.line}}"]));
    over_the_socket(&["plan", "submit", "plan.json"]).expect(0);
    lab.file("small", "3\n");
    over_the_socket(&["action", "submit", "p", "--id", "small", "--lines", "small", "--wait"]).expect(0);
    assert_eq!(over_the_socket(&["action", "results", "small"]).expect(0).out, "1\n2\n3\n");

    std::thread::scope(|scope| {
        let second = scope.spawn(|| lab.agw(&agq, "w2", &[]));
        let log = lab.path().join("w2.log");
        eventually("the second worker is refused", || {
            let log = std::fs::read_to_string(&log).ok()?;
            (log.contains("Too many connections from 127.0.0.1: max 4") && log.contains(help)).then_some(())
        });
        lab.file("large", "100000\n");
        over_the_socket(&["action", "submit", "p", "--id", "large", "--lines", "large"]).expect(0);
        eventually("the output waits for a connection", || {
            first.log().contains("the output will be sent again").then_some(())
        });
        drop(fourth);
        over_the_socket(&["action", "watch", "large"]).expect(0);
        let lines: String = (1..=100_000).map(|line| format!("{line}\n")).collect();
        assert!(over_the_socket(&["action", "results", "large"]).expect(0).out == lines);
        first.terminate();
        assert!(first.wait().success());
        second.join().expect("the second worker registers in the place of the first");
    });
}

/// Returns true if agq serves one more connection.
fn is_let_in(lab: &Lab, agq: &Agq) -> bool {
    let mut stream = TcpStream::connect(agq.address()).unwrap();
    let mut reply = String::new();
    // A refused connection may be reset during the write.
    let spoken = stream.write_all(format!("AUTH {}\n", lab.key()).as_bytes());
    let read = BufReader::new(stream).read_line(&mut reply);
    spoken.is_ok() && read.is_ok() && reply == "+OK\r\n"
}

#[test]
fn audit_log_has_changes_and_no_queries() {
    let lab = Lab::new();
    let alice = "a".repeat(64);
    let file = config(&lab, &format!("[clients]\nalice = '{alice}'\n"));
    let agq = lab.agq(&["--config", &file, "--audit-log", "audit.log"]);
    let log = lab.path().join("audit.log");
    let lines = |path: &Path| -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let mut raw = RawConnection::bare(&agq);
    assert_eq!(raw.ask(&format!("AUTH {}", "x".repeat(64))), "-ERR Invalid session key");
    assert_eq!(raw.ask(&format!("AUTH {alice}")), "+OK");
    let submit = format!("PLAN.SUBMIT '{}'", plan("p", "true", &[]));
    assert_eq!(raw.ask(&submit), "+OK plan_id=p");
    assert!(raw.ask(&submit).starts_with("-ERR Plan already exists"));
    assert_eq!((raw.ask("PLAN.LIST").as_str(), raw.bulk().as_str()), ("*1", "p"));
    assert_eq!(mode(&log), 0o600);
    let logged: Vec<_> = lines(&log);
    let shown: Vec<_> = logged.iter().map(|line| (line["command"].as_str(), line["who"].as_str())).collect();
    assert_eq!(
        shown,
        [(Some("AUTH"), None), (Some("PLAN.SUBMIT"), Some("alice")), (Some("PLAN.SUBMIT"), Some("alice"))]
    );
    let outcomes: Vec<_> = logged.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes[0], "ERR Invalid session key");
    assert!(outcomes[1].starts_with("OK") && outcomes[2].contains("Plan already exists"), "{outcomes:?}");
    assert_eq!(logged[1]["role"], "client");
    assert!(logged[1]["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{}", logged[1]);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains(&alice) && !text.contains("xxx"), "no key is written down");

    // logrotate renames the log and sends SIGHUP.
    let moved = lab.path().join("audit.log.1");
    std::fs::rename(&log, &moved).unwrap();
    agq.reload();
    wait_for_log(&lab, "SIGHUP, audit log:");
    assert_eq!(raw.ask("PLAN.DELETE p"), ":1");
    assert_eq!((lines(&moved).len(), lines(&log).len()), (3, 1));
}

#[test]
fn command_that_is_never_finished_ends_its_connection() {
    let lab = Lab::new();
    let agq = lab.agq(&["--frame-timeout", "0.2"]);
    for (before, half) in
        [("", "*2\r\n$4\r\nPI"), ("", "*2\r\n"), ("PING\r\n", "*2\r\n"), ("PING\r\n", "PIN")]
    {
        let mut raw = RawConnection::open(&lab, &agq);
        raw.send(&format!("{before}{half}"));
        if !before.is_empty() {
            assert_eq!(raw.line(), "+PONG");
        }
        assert_eq!(raw.line(), "-ERR a command was not complete within 0.2 seconds", "{half:?}");
        assert!(raw.is_closed());
    }
    // Commands may arrive in chunks for any time if each command is complete in time.
    let mut busy = RawConnection::open(&lab, &agq);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(600) {
        busy.send("PING\r\nPI");
        busy.send("NG\r\n");
        assert_eq!((busy.line().as_str(), busy.line().as_str()), ("+PONG", "+PONG"));
    }
    // A connection without an unfinished command may stay idle.
    let mut silent = RawConnection::open(&lab, &agq);
    let mut late = RawConnection::open(&lab, &agq);
    late.send("*1\r\n");
    assert!(late.line().starts_with("-ERR a command was not complete"));
    assert_eq!(silent.ask("PING"), "+PONG");
}

#[test]
fn connection_without_a_login_is_closed() {
    let lab = Lab::new();
    let agq = lab.agq(&["--login-timeout", "0.2"]);
    let mut raw = RawConnection::bare(&agq);
    assert_eq!(raw.line(), "-ERR no AUTH within 0.2 seconds");
    assert!(raw.is_closed());
    let mut spoken = RawConnection::bare(&agq);
    assert_eq!(spoken.ask("PING"), "-ERR NOAUTH Authentication required");
    assert_eq!(spoken.line(), "-ERR no AUTH within 0.2 seconds");
}

#[test]
fn client_beyond_the_command_rate_is_slowed_and_then_refused() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-commands-per-second", "100"]);
    let mut raw = RawConnection::open(&lab, &agq);
    // The number of commands is twice the burst, so the second half waits and is answered.
    raw.send(&"PING\n".repeat(200));
    assert!((0..200).all(|_| raw.line() == "+PONG"));
    // A client that continues above the limit is refused after a while.
    let refused = eventually("it is refused", || {
        raw.send(&"PING\n".repeat(50));
        (0..50).map(|_| raw.line()).find(|line| line != "+PONG")
    });
    assert_eq!(refused, "-ERR Too many commands: max 100 a second");
}

#[test]
fn results_of_many_jobs_keep_below_the_command_rate() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-commands-per-second", "40"]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", &numbered(600));
    // At this rate the calls take 14 seconds, and agq delays calls for 10 seconds without a pause.
    let results = lab.agx(&agq, &["action", "results", "a"]).expect(1);
    assert!(results.err.contains("jobs that have not ended yet: 600"), "{}", results.err);
    assert!(!results.err.contains("Too many commands"), "{}", results.err);
}
