//! Commands on one connection take effect in their order, even if different tasks write them.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

use e2e::{Lab, Ran, eventually};

use crate::support::RawConnection;

/// Advisory lock that a node holds while it writes keys of users.
const KEYS_LOCK: &str = "27416809370772857";

#[test]
fn write_behind_one_of_keys_waits_for_it_and_those_of_others_do_not() {
    let lab = Lab::of_nodes();
    let agq = lab.agq(&[]);
    let mut psql = lab.database().unwrap().client("psql");
    psql.args(["-AtXq"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut psql = psql.spawn().unwrap();
    let (mut asks, mut says) = (psql.stdin.take().unwrap(), BufReader::new(psql.stdout.take().unwrap()));
    writeln!(asks, "SELECT pg_advisory_lock({KEYS_LOCK}); SELECT 'held';").unwrap();
    let mut line = String::new();
    while line != "held\n" {
        line.clear();
        assert_ne!(says.read_line(&mut line).unwrap(), 0, "psql has ended");
    }
    let mut sends = RawConnection::open(&lab, &agq);
    sends.send("SET k v\nQUEUE.PAUSE behind\nSET k w\n");
    let psql_says = |sql: &str| {
        let mut psql = lab.database().unwrap().client("psql");
        Ran::from(psql.args(["-AtXc", sql]).output().unwrap()).expect(0).out
    };
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually("the key waits for the lock", || (psql_says(waiting) == "1\n").then_some(()));
    // Writes of jobs have one order, so after this answer all earlier writes of jobs are done.
    let mut other = RawConnection::open(&lab, &agq);
    assert_eq!(other.ask("QUEUE.PAUSE other"), "+OK");
    let paused = "SELECT string_agg(queue, ' ' ORDER BY queue) FROM agq.paused";
    assert_eq!(psql_says(paused), "other\n");
    writeln!(asks, "SELECT pg_advisory_unlock({KEYS_LOCK});").unwrap();
    for _ in 0..3 {
        assert_eq!(sends.line(), "+OK");
    }
    assert_eq!(psql_says(paused), "behind other\n");
    sends.send("GET k\n");
    assert_eq!(sends.bulk(), "w");
    drop(asks);
    psql.wait().unwrap();
}
