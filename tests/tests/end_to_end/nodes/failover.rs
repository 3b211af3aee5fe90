//! Failures of the database: a crash, a failover, dead connections, and locked rows.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    process::Stdio,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use e2e::{Agq, Lab, Postgres, Proxy, Ran, eventually};

use crate::support::{RawConnection, only_job, plan};

fn psql(cluster: &Postgres, sql: &str) -> String {
    Ran::from(cluster.client("psql").args(["-AtXc", sql]).output().unwrap()).expect(0).out
}

fn url(address: &str) -> String {
    format!("postgres://agq@{address}/postgres")
}

/// Subscribes at `agq`, and returns the next message.
fn next_message(lab: &Lab, agq: &Agq) -> JoinHandle<Option<String>> {
    let mut listens = RawConnection::open(lab, agq);
    assert_eq!(listens.ask("SUBSCRIBE channel"), "*3");
    std::thread::spawn(move || {
        (0..5).for_each(|_| drop(listens.line()));
        (0..7).map(|_| listens.line()).last()
    })
}

#[test]
fn crash_of_the_database_takes_no_job_from_a_connection_that_lives() {
    let mut cluster = Postgres::start(&[]);
    let lab = Lab::on_files();
    let node = || lab.agq(&["--store", &cluster.url(), "--store-lease", "8", "--start-timeout", "0"]);
    let (leader, other) = (node(), node());
    lab.submit_plan(&leader, &plan("p", "true", &[]));
    lab.submit_action(&leader, "p", "a", "[{}]");
    let mut worker = RawConnection::open(&lab, &other);
    worker.send("BRPOP queue:ready 0\n");
    let job = worker.bulk();
    assert!(job.contains(r#""attempt":1"#), "{job}");
    // The leader has led for long enough to detect lost nodes, and updates its row only after some
    // seconds.
    let sql = "SELECT elected_at <= now() - interval '16 seconds' AND last_seen_at > now() - interval '0.2 seconds' \
         FROM agq.leader JOIN agq.instances USING (node)";
    eventually("a leader that has led for two leases", || (psql(&cluster, sql) == "t\n").then_some(()));
    cluster.stop_at_once();
    cluster.start_again();
    // The crash is many rounds before this check.
    let sql = "SELECT count(*) FROM agq.leader JOIN agq.instances USING (node)";
    eventually("a leader after the crash", || (psql(&cluster, sql) == "1\n").then_some(()));
    let sql = "SELECT count(*) FROM agq.instances";
    eventually("both nodes after the crash", || (psql(&cluster, sql) == "2\n").then_some(()));
    let held = only_job(&lab, &leader, "a");
    assert_eq!((&held["status"], &held["attempt"]), (&"running".into(), &1.into()), "{held}");
    assert!(held["worker_id"].as_str().is_some_and(|holder| holder.starts_with("connection:")), "{held}");
}

#[test]
fn outage_of_the_database_within_the_lease_takes_no_job_from_a_worker() {
    let mut cluster = Postgres::start(&[]);
    let lab = Lab::on_files();
    let agq = lab.agq(&[
        "--store",
        &cluster.url(),
        "--store-lease",
        "120",
        "--heartbeat-interval",
        "3",
        "--start-timeout",
        "0",
    ]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut worker = RawConnection::open(&lab, &agq);
    let register = r#"WORKER.REGISTER '{"worker_id":"w","capabilities":["true"]}'"#;
    assert!(worker.ask(register).starts_with("+OK"));
    worker.send("BRPOP queue:ready 0\n");
    assert!(worker.bulk().contains(r#""attempt":1"#));
    assert_eq!(RawConnection::open(&lab, &agq).ask("SET expires v PX 5000"), "+OK");
    let last_sign = Instant::now();
    cluster.stop_at_once();
    let silence = Duration::from_secs(10);
    eventually("three heartbeat intervals", || (last_sign.elapsed() > silence).then_some(()));
    cluster.start_again();
    // The reaper removes the key after it has checked the workers.
    let sql = "SELECT count(*) FROM agq.keys";
    eventually("a round of the reaper", || (psql(&cluster, sql) == "0\n").then_some(()));
    assert_eq!(worker.ask("WORKER.HEARTBEAT w '{}'"), "+OK");
    let held = only_job(&lab, &agq, "a");
    assert_eq!((&held["status"], &held["worker_id"]), (&"running".into(), &"w".into()), "{held}");
}

#[test]
fn locked_row_of_a_delayed_job_holds_up_no_other_delayed_job() {
    let cluster = Postgres::start(&[]);
    let lab = Lab::on_files();
    // A write that waits for a lock fails only after an hour.
    let agq = lab.agq(&["--store", &cluster.url(), "--store-timeout", "3600"]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    let mut asks = RawConnection::open(&lab, &agq);
    let mut submit = |id: &str, delay_secs: u64| {
        let delay = format!(r#""delay_secs":{delay_secs}"#);
        let action = format!(r#"{{"action_id":"{id}","plan_id":"p","inputs":[{{}}],{delay}}}"#);
        assert!(asks.ask(&format!("ACTION.SUBMIT '{action}'")).starts_with("+OK"));
    };
    submit("locked", 2);
    let mut session = cluster.client("psql");
    session.args(["--quiet", "-AtX"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut session = session.spawn().unwrap();
    let (mut sql, mut rows) = (session.stdin.take().unwrap(), BufReader::new(session.stdout.take().unwrap()));
    writeln!(sql, "BEGIN; SELECT job_id FROM agq.jobs WHERE action_id = 'locked' FOR UPDATE;").unwrap();
    let mut locked = String::new();
    rows.read_line(&mut locked).unwrap();
    assert_ne!(locked, "");
    // The reaper tries the locked job some rounds before this one.
    submit("free", 4);
    asks.send("BRPOP queue:ready 0\n");
    let job = asks.bulk();
    assert!(job.contains(r#""action_id":"free""#), "{job}");
    drop(sql);
    session.wait().unwrap();
}

#[test]
fn node_that_got_to_a_standby_comes_back_to_the_primary() {
    let primary = Postgres::start_on_loopback(&[], None);
    let standby = primary.standby();
    let proxy = Proxy::start(primary.address(), fastrand::Rng::new());
    let lab = Lab::on_files();
    let agq = lab.agq(&["--store", &url(&proxy.address()), "--store-lease", "2"]);
    let mut asks = RawConnection::open(&lab, &agq);
    assert_eq!(asks.ask("SET k before"), "+OK");
    proxy.lead_to(standby.address());
    proxy.cut_all();
    eventually("the standby takes no writes", || {
        let reply = asks.ask("SET k during");
        ["takes no writes", "read-only"].iter().any(|why| reply.contains(why)).then_some(())
    });
    // New connections reach the primary, and open connections stay with the standby.
    proxy.lead_to(primary.address());
    eventually("it writes again", || (asks.ask("SET k after") == "+OK").then_some(()));
    asks.send("GET k\n");
    assert_eq!(asks.bulk(), "after");
}

#[test]
fn primary_that_is_fenced_is_left_for_the_one_that_took_over() {
    let (old, new) = (Postgres::start_on_loopback(&[], None), Postgres::start_on_loopback(&[], None));
    let migrated = |cluster: &Postgres, lab: &Lab| {
        let url = url(&cluster.address());
        Ran::from(lab.command("agq").args(["migrate", "--store", &url]).output().unwrap()).expect(0)
    };
    let lab = Lab::on_files();
    migrated(&new, &lab);
    let proxy = Proxy::start(old.address(), fastrand::Rng::new());
    let agq = lab.agq(&["--store", &url(&proxy.address()), "--store-lease", "2"]);
    let mut asks = RawConnection::open(&lab, &agq);
    assert_eq!(asks.ask("SET k old"), "+OK");
    asks.send("GET k\n");
    assert_eq!(asks.bulk(), "old");
    // All open connections stay open and still get answers.
    psql(&old, "ALTER SYSTEM SET default_transaction_read_only TO on");
    psql(&old, "SELECT pg_reload_conf()");
    eventually("it takes no writes", || (psql(&old, "SHOW transaction_read_only") == "on\n").then_some(()));
    proxy.lead_to(new.address());
    eventually("it writes to the new one", || (asks.ask("SET k new") == "+OK").then_some(()));
    asks.send("GET k\n");
    assert_eq!(asks.bulk(), "new");
}

#[test]
fn node_hears_the_others_again_after_its_connections_went_silent() {
    let cluster = Postgres::start_on_loopback(&[], None);
    let proxy = Proxy::start(cluster.address(), fastrand::Rng::new());
    let lab = Lab::on_files();
    let node = |at: &str| lab.agq(&["--store", &url(at), "--store-timeout", "1", "--store-lease", "2"]);
    let (deaf, tells) = (node(&proxy.address()), node(&cluster.address()));
    let mut sends = RawConnection::open(&lab, &tells);
    for round in ["before", "after"] {
        let received = next_message(&lab, &deaf);
        eventually("a message of the other node", || {
            sends.ask(&format!("PUBLISH channel {round}"));
            received.is_finished().then_some(())
        });
        assert_eq!(received.join().unwrap().as_deref(), Some(round));
        if round == "before" {
            assert!(proxy.strand_all() > 0);
        }
    }
    let log = std::fs::read_to_string(lab.path().join("agq.log")).unwrap();
    assert!(log.contains("LISTEN was repeated"), "{log}");
}

#[test]
fn connection_that_closes_while_the_database_is_away_returns_its_jobs_later() {
    let cluster = Postgres::start_on_loopback(&[], None);
    let proxy = Proxy::start(cluster.address(), fastrand::Rng::new());
    let lab = Lab::on_files();
    let store = url(&proxy.address());
    let agq = lab.agq(&["--store", &store, "--store-timeout", "1", "--store-lease", "60"]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut claims = RawConnection::open(&lab, &agq);
    claims.send("BRPOP queue:ready 0\n");
    let job: serde_json::Value = serde_json::from_str(&claims.bulk()).unwrap();
    let job_id = job["job_id"].as_str().unwrap();
    assert_eq!(claims.ask(&format!(r#"JOB.UPDATE {job_id} '{{"status":"running"}}'"#)), "+OK");
    proxy.cut_off();
    drop(claims);
    eventually("agq could not return the job", || {
        let log = std::fs::read_to_string(lab.path().join("agq.log")).unwrap();
        log.contains("the claims of a closed connection could not be returned").then_some(())
    });
    proxy.calm();
    eventually("the job is pending", || (only_job(&lab, &agq, "a")["status"] == "pending").then_some(()));
}

#[test]
fn map_and_a_new_worker_wait_for_a_database_that_is_away() {
    let mut cluster = Postgres::start(&[]);
    let lab = Lab::on_files();
    let agq = lab.agq(&["--store", &cluster.url(), "--store-lease", "2"]);
    let _agw = lab.agw(&agq, "w", &[]);
    let (started, go) = (lab.path().join("started"), lab.path().join("go"));
    let waits = format!(
        "sh -c 'touch {}; until test -e {}; do sleep 0.02; done; echo $0' {{}}",
        started.display(),
        go.display()
    );
    let notes = lab.path().join("notes");
    let mut map = lab.command("agx");
    map.env("AGQ_ADDR", agq.address()).args(["map", "-k", "--", &waits, ":::", "1", "2", "3"]);
    let map = map.stdout(Stdio::piped()).stderr(File::create(&notes).unwrap()).spawn().unwrap();
    eventually("a job runs", || started.exists().then_some(()));
    cluster.stop_at_once();
    let away = format!("the database of agq at {} is away or fails: ", agq.address());
    let _late = std::thread::scope(|scope| {
        // The call returns when the worker is registered.
        let late = scope.spawn(|| lab.agw(&agq, "late", &[]));
        eventually("both wait", || {
            let files = [lab.path().join("late.log"), notes.clone()];
            let waits = |file| std::fs::read_to_string(file).is_ok_and(|text| text.contains(&away));
            files.iter().all(waits).then_some(())
        });
        cluster.start_again();
        lab.file("go", "");
        late.join().unwrap()
    });
    let ran = Ran::from(map.wait_with_output().unwrap()).expect(0);
    assert_eq!(ran.out, "1\n2\n3\n");
}

#[test]
fn first_message_after_the_notifying_connection_was_closed_is_received() {
    let cluster = Postgres::start(&[]);
    let lab = Lab::on_files();
    let node = || lab.agq(&["--store", &cluster.url(), "--store-lease", "2"]);
    let (hears, tells) = (node(), node());
    let mut sends = RawConnection::open(&lab, &tells);
    let received = next_message(&lab, &hears);
    eventually("they know of each other", || {
        sends.ask("PUBLISH channel before");
        received.is_finished().then_some(())
    });
    received.join().unwrap();
    // The messages of the earlier rounds have arrived.
    let mut round = 0;
    eventually("nothing more of earlier rounds", || {
        round += 1;
        let received = next_message(&lab, &hears);
        sends.ask(&format!("PUBLISH channel between{round}"));
        (received.join().unwrap() == Some(format!("between{round}"))).then_some(())
    });
    let received = next_message(&lab, &hears);
    let notifies = "query LIKE 'SELECT pg_notify(n.channel%'";
    psql(
        &cluster,
        &format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {notifies} AND pid <> pg_backend_pid()"
        ),
    );
    assert_eq!(sends.ask("PUBLISH channel after"), ":0");
    assert_eq!(received.join().unwrap().as_deref(), Some("after"));
}

#[test]
fn probes_are_answered_while_the_database_does_not_answer() {
    let cluster = Postgres::start_on_loopback(&[], None);
    let proxy = Proxy::start(cluster.address(), fastrand::Rng::new());
    let lab = Lab::on_files();
    let agq = lab.agq(&["--store", &url(&proxy.address()), "--http", "127.0.0.1:0"]);
    let ask = |path: &str| {
        let mut http = std::net::TcpStream::connect(agq.http_address()).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        std::io::Write::write_all(&mut http, request.as_bytes()).unwrap();
        std::io::read_to_string(http).unwrap()
    };
    eventually("it is ready", || ask("/ready").starts_with("HTTP/1.1 200").then_some(()));
    proxy.cut_off();
    let refused = eventually("it is not ready", || Some(ask("/ready")).filter(|it| it.contains(" 503 ")));
    assert!(refused.contains(r#""reason":"the store does not answer""#), "{refused}");
    let well = ask("/health");
    assert!(well.starts_with("HTTP/1.1 200") && well.contains(r#""status":"degraded""#), "{well}");
    proxy.calm();
    eventually("it is ready again", || ask("/ready").starts_with("HTTP/1.1 200").then_some(()));
}

#[test]
fn nodes_of_different_settings_cause_a_warning_and_a_worker_keeps_the_time_it_received() {
    let lab = Lab::of_nodes();
    let strict = lab.agq(&["--heartbeat-interval", "0.2"]);
    let lenient = lab.agq(&["--heartbeat-interval", "30"]);
    let mut worker = RawConnection::open(&lab, &lenient);
    let registered = worker.ask(r#"WORKER.REGISTER '{"worker_id":"w","capabilities":["true"]}'"#);
    assert_eq!(registered, "+OK worker_id=w heartbeat_interval=30");
    let mut hasty = RawConnection::open(&lab, &strict);
    let registered = hasty.ask(r#"WORKER.REGISTER '{"worker_id":"x","capabilities":["true"]}'"#);
    assert_eq!(registered, "+OK worker_id=x heartbeat_interval=0.2");
    let standing = |id: &str| {
        let workers = lab.agx(&lenient, &["worker", "list", "--json"]).expect(0).data();
        let found = workers.as_array().unwrap().iter().find(|worker| worker["worker_id"] == id).cloned();
        found.unwrap()["state"].as_str().unwrap().to_owned()
    };
    eventually("the one that received a short time is dead", || (standing("x") == "dead").then_some(()));
    assert_ne!(standing("w"), "dead");
    eventually("the log names what differs", || {
        let log = std::fs::read_to_string(lab.path().join("agq.log")).unwrap();
        log.contains("heartbeat-interval is 30 here and 0.2 there").then_some(())
    });
}
