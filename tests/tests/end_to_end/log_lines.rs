//! Log lines cannot be forged: a text of another program takes one line, and does not act on the
//! terminal that shows the log.

use std::{
    io::{Read, Write},
    net::TcpListener,
    process::Stdio,
    thread,
};

use e2e::{Lab, Proxy, eventually};

/// Text of a hostile server, which imitates a line of the log, and clears the screen.
const REASON: &str = "no\n2026-01-31T08:00:00.000000Z  INFO forged: all is well\u{1b}[2J\u{9b}2J\u{202e}";
const SHOWN: &str = r"no\n2026-01-31T08:00:00.000000Z  INFO forged: all is well\x1b[2J\u009b2J\u202e";

/// Starts a server that answers everything with an error, and returns its address.
fn hostile_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut bytes = [0; 64 * 1024];
                while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
                    if stream.write_all(format!("-ERR {REASON}\r\n").as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn log_of_a_worker_has_one_line_for_a_refusal_with_line_feeds() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let proxy = Proxy::start(agq.address(), fastrand::Rng::with_seed(1));
    let mut command = lab.command("agw");
    command.env("AGQ_ADDR", proxy.address());
    let agw = lab.agw_by("w1", command);
    proxy.lead_to(hostile_server());
    proxy.cut_all();
    let log = eventually("the worker is refused", || {
        Some(agw.log())
            .filter(|log| log.contains("trying again") && log.contains("forged") && log.ends_with('\n'))
    });
    let forged: Vec<&str> = log.lines().filter(|line| line.contains("forged")).collect();
    assert!(forged.iter().all(|line| line.contains("trying again") && line.contains(SHOWN)), "{log}");
    assert!(!log.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{log:?}");
}

#[test]
fn last_message_of_a_worker_takes_one_line() {
    let lab = Lab::new();
    let mut command = lab.command("agw");
    command.env("AGQ_ADDR", hostile_server()).stdout(Stdio::null());
    let refused = command.output().unwrap();
    let err = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(3), "{err}");
    let last = err.lines().last().unwrap();
    assert!(last.starts_with("agw: ") && last.ends_with(SHOWN), "{err:?}");
}
