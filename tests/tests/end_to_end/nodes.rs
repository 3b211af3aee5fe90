//! Several agq on one PostgreSQL (nodes), with clients and workers at any of them.

mod bucket;
mod failover;
mod limits;
mod moving;
mod order;
mod pooled;

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use e2e::{Agq, Lab, Postgres, Proxy, Ran, eventually};
use serde_json::Value;

use crate::certificates::Authority;
use crate::support::{RawConnection, ended, numbered, only_job, plan};

/// Arguments for nodes that learn of changes only by notifications, because polling is too rare.
const ONLY_TOLD: [&str; 2] = ["--store-poll-interval", "3600"];
/// Arguments for nodes that learn of changes only by polling, without notifications.
const ONLY_FOUND: [&str; 3] = ["--store-no-listen=true", "--store-poll-interval", "0.2"];

fn status(lab: &Lab, agq: &Agq, action: &str) -> Value {
    lab.agx(agq, &["action", "status", action, "--json"]).expect(0).data()
}

/// Checks that a job of one node wakes a waiter at another. Jobs are submitted until one arrives,
/// because the nodes have to discover each other first.
fn check_that_a_job_wakes_a_waiter(args: &[&str]) {
    let lab = Lab::of_nodes();
    let (here, there) = (lab.agq(args), lab.agq(args));
    lab.submit_plan(&here, &plan("p", "true", &[]));
    let mut waits = RawConnection::open(&lab, &there);
    waits.send("BRPOP queue:ready 0\n");
    let received = std::thread::spawn(move || waits.line());
    let mut count = 0;
    eventually("a job at the other node", || {
        if !received.is_finished() {
            lab.submit_action(&here, "p", &format!("a{count}"), "[{}]");
            count += 1;
        }
        received.is_finished().then_some(())
    });
    let line = received.join().unwrap();
    assert!(line.starts_with('$'), "{line}");
}

#[test]
fn job_wakes_a_worker_at_another_node() {
    check_that_a_job_wakes_a_waiter(&ONLY_TOLD);
}

#[test]
fn job_is_found_at_another_node_where_nobody_listens() {
    check_that_a_job_wakes_a_waiter(&ONLY_FOUND);
}

#[test]
fn output_of_a_job_is_seen_from_another_node() {
    let lab = Lab::of_nodes();
    let (here, there) = (lab.agq(&[]), lab.agq(&[]));
    let _agw = lab.agw(&there, "w1", &[]);
    lab.submit_plan(&here, &plan("p", "sh", &["-c", "echo seen; exec sleep 600"]));
    lab.submit_action(&here, "p", "a", "[{}]");
    // The nodes have to discover each other first, and the job has to start.
    eventually("what it writes", || {
        (lab.agx(&here, &["logs", "a"]).expect(0).out == "[0] seen\n").then_some(())
    });
}

#[test]
fn lists_messages_and_updates_go_from_node_to_node() {
    let lab = Lab::of_nodes();
    let (here, there) = (lab.agq(&ONLY_TOLD), lab.agq(&ONLY_TOLD));
    let mut sends = RawConnection::open(&lab, &here);
    // A message above the size limit of notifications takes another path.
    let long = "x".repeat(20_000);
    for (channel, message) in [("brief", "short"), ("large", &long)] {
        let mut listens = RawConnection::open(&lab, &there);
        assert_eq!(listens.ask(&format!("SUBSCRIBE {channel}")), "*3");
        let received = std::thread::spawn(move || {
            (0..5).for_each(|_| drop(listens.line()));
            (0..7).map(|_| listens.line()).last()
        });
        eventually("a message at the other node", || {
            sends.ask(&format!("PUBLISH {channel} {message}"));
            received.is_finished().then_some(())
        });
        assert_eq!(received.join().unwrap().as_deref(), Some(message));
    }
    let mut waits = RawConnection::open(&lab, &there);
    waits.send("BLPOP list 0\n");
    assert_eq!(sends.ask("RPUSH list v"), ":1");
    assert_eq!(waits.line(), "$1");
    assert_eq!(waits.line(), "v");
}

#[test]
fn job_is_cancelled_at_another_node_than_its_workers() {
    let lab = Lab::of_nodes();
    let (here, there) = (lab.agq(&[]), lab.agq(&["--heartbeat-interval", "3600"]));
    let _agw = lab.agw(&there, "w", &[]);
    let pid = lab.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", pid.display());
    lab.submit_plan(&here, &plan("p", "sh", &["-c", &script]));
    lab.submit_action(&here, "p", "a", "[{}]");
    let child: i32 = eventually("the job runs", || std::fs::read_to_string(&pid).ok()?.trim().parse().ok());
    let job = only_job(&lab, &here, "a")["job_id"].as_str().unwrap().to_owned();
    let mut asks = RawConnection::open(&lab, &here);
    assert_eq!(asks.ask(&format!("JOB.CANCEL {job}")), "+OK job cancelled");
    eventually("its process is ended", || e2e::is_gone(child).then_some(()));
    assert_eq!(ended(&lab, &there, "a")["status"], "cancelled");
}

#[test]
fn workers_and_agx_go_on_with_the_next_node() {
    let lab = Lab::of_nodes();
    let (mut first, second) = (lab.agq(&[]), lab.agq(&[]));
    let both = format!("{},{}", first.address(), second.address());
    let mut agw = lab.command("agw");
    agw.args(["--agq", &both]);
    let _agw = lab.agw_by("w", agw);
    let agx = |args: &[&str]| {
        let output = lab.command("agx").args(["--agq", &both]).args(args).output();
        Ran::from(output.expect("agx can be started")).expect(0)
    };
    lab.submit_plan(&first, &plan("p", "true", &[]));
    let inputs = lab.file("one", "[{}]").display().to_string();
    agx(&["action", "submit", "p", "--id", "before", "--inputs", &inputs, "--wait"]);
    first.kill();
    agx(&["action", "submit", "p", "--id", "after", "--inputs", &inputs, "--wait"]);
    assert_eq!(ended(&lab, &second, "after")["status"], "completed");
}

#[test]
fn six_workers_at_three_nodes_run_each_of_ten_thousand_jobs_once() {
    let lab = Lab::of_nodes();
    let nodes = [lab.agq(&[]), lab.agq(&[]), lab.agq(&[])];
    let ran = lab.path().join("ran");
    let script = format!("echo {{{{input.n}}}} >> {}", ran.display());
    lab.submit_plan(&nodes[0], &plan("p", "sh", &["-c", &script]));
    let worker = |n: usize| lab.agw(&nodes[n % 3], &format!("w{n}"), &["--max-concurrent-jobs", "1"]);
    let _workers: Vec<_> = (0..6).map(worker).collect();
    lab.submit_action(&nodes[1], "p", "a", &numbered(10_000));
    let ended = eventually("all jobs end", || {
        let status = status(&lab, &nodes[2], "a");
        (status["pending"] == 0 && status["running"] == 0).then_some(status)
    });
    assert_eq!(ended["completed"], 10_000);
    let ran = std::fs::read_to_string(ran).unwrap();
    assert_eq!(ran.lines().count(), 10_000, "a job ran twice, or not at all");
    assert_eq!(ran.lines().collect::<BTreeSet<_>>().len(), 10_000);
}

#[test]
fn nodes_that_are_killed_and_come_back_lose_nothing() {
    const JOBS: u64 = 1_500;
    let lab = Lab::of_nodes();
    let mut nodes = [lab.agq(&[]), lab.agq(&[]), lab.agq(&[])];
    lab.submit_plan(&nodes[0], &plan("p", "true", &[]));
    let worker = |n: usize| lab.agw(&nodes[n], &format!("w{n}"), &["--max-concurrent-jobs", "1"]);
    let _workers: Vec<_> = (0..3).map(worker).collect();
    lab.submit_action(&nodes[0], "p", "a", &numbered(usize::try_from(JOBS).unwrap()));
    let mut acknowledged = 0;
    for round in 0..9 {
        // One of the killed nodes is the leader: the first node, or a later winner of an election.
        let victim = round % 3;
        nodes[victim].kill();
        let mut survivor = RawConnection::open(&lab, &nodes[(victim + 1) % 3]);
        for _ in 0..10 {
            assert_eq!(survivor.ask(&format!("SET k{acknowledged} {acknowledged}")), "+OK");
            acknowledged += 1;
        }
        let before = status(&lab, &nodes[(victim + 1) % 3], "a")["completed"].as_u64().unwrap();
        eventually("work goes on", || {
            let now = status(&lab, &nodes[(victim + 1) % 3], "a")["completed"].as_u64()?;
            (now > before || now == JOBS).then_some(())
        });
        nodes[victim].start_again(&lab);
    }
    // The leader returns the claims of a killed node's connections once it has detected that the
    // node is gone.
    eventually("all jobs end", || (status(&lab, &nodes[0], "a")["completed"] == JOBS).then_some(()));
    let mut reads = RawConnection::open(&lab, &nodes[2]);
    for n in 0..acknowledged {
        reads.send(&format!("GET k{n}\n"));
        assert_eq!(reads.bulk(), n.to_string());
    }
}

#[test]
fn database_that_crashes_loses_nothing_and_nobody_has_to_start_again() {
    let mut cluster = Postgres::start(&[]);
    let lab = Lab::new();
    let agq = lab.agq(&["--store", &cluster.url(), "--store-lease", "2"]);
    let mut raw = RawConnection::open(&lab, &agq);
    let (mut acknowledged, mut refused) = (0, 0);
    for round in 0..3 {
        let bound = Instant::now() + Duration::from_secs(60);
        let target = acknowledged + 200;
        while acknowledged < target && Instant::now() < bound {
            let answer = raw.ask(&format!("SET k{acknowledged} {acknowledged}"));
            if answer == "+OK" {
                acknowledged += 1;
                if acknowledged == target - 100 {
                    cluster.stop_at_once();
                    let refusal = raw.ask("SET refused 1");
                    assert!(refusal.starts_with("-ERR the store failed: "), "{refusal}");
                    cluster.start_again();
                }
            } else {
                assert!(answer.starts_with("-ERR the store failed: "), "{answer}");
                refused += 1;
            }
        }
        assert_eq!(acknowledged, target, "round {round}: agq did not go on; {refused} refused");
    }
    for n in 0..acknowledged {
        raw.send(&format!("GET k{n}\n"));
        assert_eq!(raw.bulk(), n.to_string());
    }
}

#[test]
fn node_that_is_cut_off_from_the_database_hands_out_nothing_and_comes_back() {
    let cluster = Postgres::start_on_loopback(&[], None);
    let proxy = Proxy::start(cluster.address(), fastrand::Rng::new());
    let lab = Lab::new();
    let node = |at: &str| {
        let store = format!("postgres://agq@{at}/postgres");
        lab.agq(&["--store", &store, "--store-timeout", "1", "--store-lease", "2"])
    };
    let (far, near) = (node(&proxy.address()), node(&cluster.address()));
    lab.submit_plan(&near, &plan("p", "true", &[]));
    let mut waits = RawConnection::open(&lab, &far);
    let handed_out = std::thread::spawn(move || {
        loop {
            let answer = waits.ask("BRPOP queue:ready 0");
            if !answer.starts_with("-ERR the store failed: ") {
                return answer;
            }
        }
    });
    let mut asks = RawConnection::open(&lab, &far);
    assert_eq!(asks.ask("SET before v"), "+OK");
    proxy.cut_off();
    // The node still serves its clients, and reports the failure of its store.
    let refused = asks.ask("SET during v");
    assert!(refused.contains("cannot be reached") || refused.contains("is not known"), "{refused}");
    assert_eq!(asks.ask("PING"), "+PONG");
    lab.submit_action(&near, "p", "first", "[{}]");
    {
        let _agw = lab.agw(&near, "w", &[]);
        assert_eq!(ended(&lab, &near, "first")["status"], "completed");
    }
    assert!(!handed_out.is_finished(), "it had nothing to hand out");
    proxy.calm();
    eventually("it is back", || (asks.ask("SET after v") == "+OK").then_some(()));
    lab.submit_action(&near, "p", "second", "[{}]");
    assert!(handed_out.join().unwrap().starts_with('$'));
    asks.send("GET before\n");
    assert_eq!(asks.bulk(), "v");
    assert_eq!(only_job(&lab, &far, "second")["status"], "pending");
}

#[test]
fn three_nodes_of_the_example_go_through_and_leave_nothing_behind() {
    let lab = Lab::new();
    let tmp = lab.path().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let mut example = Command::new("sh");
    example.arg(Lab::repository("examples/three-nodes.sh")).env("AGENIX_BIN", lab.bin()).env("TMPDIR", &tmp);
    for variable in ["AGQ_SESSION_KEY", "AGQ_ADDR", "AGQ_STORE"] {
        example.env_remove(variable);
    }
    let ran = Ran::from(example.current_dir(lab.path()).output().unwrap()).expect(0);
    assert!(ran.out.ends_with("three-nodes: all went well\n"), "{}\n{}", ran.out, ran.err);
    assert_eq!(std::fs::read_dir(tmp).unwrap().count(), 0, "it left files behind");
}

#[test]
fn listeners_of_the_database_receive_the_ends_of_jobs() {
    let lab = Lab::of_nodes();
    let mut psql = lab.database().unwrap().client("psql");
    psql.args(["--no-psqlrc", "--quiet"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut psql = psql.spawn().unwrap();
    let (mut asks, mut hears) = (psql.stdin.take().unwrap(), BufReader::new(psql.stdout.take().unwrap()));
    let agq = lab.agq(&[]);
    // psql prints pending notifications after each command.
    writeln!(asks, "LISTEN agq_jobs_created; LISTEN agq_job_finalized; SELECT 'it listens';").unwrap();
    let mut received = String::new();
    while !received.contains("it listens") {
        hears.read_line(&mut received).unwrap();
    }
    let _agw = lab.agw(&agq, "w", &[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", "[{},{}]");
    let ends = |text: &str| text.matches("\"agq_job_finalized\" with payload").count();
    eventually("both ends are announced", || {
        writeln!(asks, "SELECT 'and on';").unwrap();
        let mut line = String::new();
        while line != " and on\n" {
            line.clear();
            hears.read_line(&mut line).unwrap();
            received += &line;
        }
        (ends(&received) == 2).then_some(())
    });
    let created = received.lines().find(|line| line.contains("\"agq_jobs_created\"")).unwrap();
    assert!(created.contains(r#""action_id":"a","jobs":2,"plan_id":"p","queue":"ready""#), "{created}");
    let end = received.lines().find(|line| line.contains("\"agq_job_finalized\"")).unwrap();
    assert!(end.contains(r#""action_id":"a""#) && end.contains(r#""status":"completed""#), "{end}");
    drop(asks);
    psql.wait().unwrap();
}

#[test]
fn database_is_made_ready_before_any_node_comes_as_often_as_one_likes() {
    let lab = Lab::of_nodes();
    let url = lab.database().unwrap().url();
    let migrate =
        |url: &str| Ran::from(lab.command("agq").args(["migrate", "--store", url]).output().unwrap());
    for _ in 0..2 {
        let done = migrate(&url).expect(0);
        assert!(
            done.out.starts_with("the tables of agq in ") && done.out.ends_with(" are up to date\n"),
            "{done:?}"
        );
    }
    let nowhere = migrate("postgres://agq@127.0.0.1:1/agq").expect(1);
    assert!(nowhere.err.contains("cannot bring the database 127.0.0.1:1/agq up to date: "), "{nowhere:?}");
    let agq = lab.agq(&[]);
    assert_eq!(RawConnection::open(&lab, &agq).ask("PING"), "+PONG");
}

#[test]
fn node_speaks_tls_with_the_database_and_goes_to_no_other() {
    let (lab, mut cluster) = (Lab::new(), Postgres::start_on_loopback(&[], None));
    let (authority, other) = (Authority::new(&lab, "ca"), Authority::new(&lab, "other"));
    let server = authority.certify(&lab, "server", &["127.0.0.1"]);
    let [certificate, key] = [server.cert, server.key].map(|file| std::fs::read_to_string(file).unwrap());
    cluster.encrypt(&certificate, &key);
    let url = |ca: &str| {
        let address = cluster.address();
        format!("postgres://agq@{address}/postgres?sslmode=verify-full&sslrootcert={ca}")
    };
    let agq = lab.agq(&["--store", &url(&authority.file)]);
    assert_eq!(RawConnection::open(&lab, &agq).ask("SET k v"), "+OK");
    let sql = "SELECT count(*) > 0, bool_and(s.ssl) FROM pg_stat_activity JOIN pg_stat_ssl AS s USING (pid) \
         WHERE application_name = 'agq'";
    let asked = Ran::from(cluster.client("psql").args(["-AtXc", sql]).output().unwrap()).expect(0);
    assert_eq!(asked.out, "t|t\n", "every connection is encrypted");
    let refused = lab.command("agq").args(["--port", "0", "--store", &url(&other.file)]).output().unwrap();
    let refused = Ran::from(refused).expect(1);
    assert!(refused.err.contains("UnknownIssuer"), "{refused:?}");
}
