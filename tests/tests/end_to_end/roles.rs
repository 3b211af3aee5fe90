//! Access rights: every command with every kind of key and without a key, one check for each
//! combination.

use agenix_protocol::request::{AgentAccess, Command, CommandAccess};
use e2e::{Agq, Lab, Ran};

use crate::support::RawConnection;

/// Commands that workers must never get, because they would allow more than working.
const NOT_FOR_WORKERS: [&str; 15] = [
    "PLAN.SUBMIT",
    "PLAN.DELETE",
    "ACTION.SUBMIT",
    "ACTION.ADD",
    "ACTION.CANCEL",
    "ACTION.RETRY",
    "JOB.CANCEL",
    "JOB.FORGET",
    "JOB.RETRY",
    "SET",
    "DEL",
    "LPUSH",
    "PUBLISH",
    "WORKER.VERIFY",
    "QUEUE.PAUSE",
];
/// Commands that clients must never get: they would let a client act as a worker, or stop the work
/// of other clients.
const NOT_FOR_CLIENTS: [&str; 10] = [
    "WORKER.REGISTER",
    "WORKER.HEARTBEAT",
    "WORKER.UNREGISTER",
    "WORKER.ANSWER",
    "JOB.UPDATE",
    "WORKER.DRAIN",
    "WORKER.TERMINATE",
    "WORKER.RESUME",
    "WORKER.VERIFY",
    "QUEUE.PAUSE",
];
/// All commands that agq answers before AUTH.
const BEFORE_AUTH: [&str; 4] = ["AUTH", "HELLO", "QUIT", "RESET"];

/// Returns a valid line of `command`, so that only the access check can refuse it.
fn line(command: &Command) -> String {
    let args = match command.name {
        "CLIENT" => "ID",
        "SELECT" => "0",
        "GET" | "EXISTS" | "TTL" | "PTTL" | "TYPE" => "worker:w1:alive",
        "SMEMBERS" => "capability:cat:workers",
        "SISMEMBER" => "capability:cat:workers w1",
        "HGETALL" => "worker:w1",
        "HGET" => "worker:w1 status",
        "LLEN" | "RPOP" | "LPOP" => "queue:ready",
        "BRPOP" | "BLPOP" => "queue:ready 0.01",
        "INCRBY" | "DECRBY" | "EXPIRE" | "PEXPIRE" => "x 1",
        "SCAN" => "0",
        "BACKUP" => "END x",
        "LRANGE" | "ZRANGE" | "ZRANGEBYSCORE" => "x 0 1",
        "LREM" => "x 1 x",
        "JOB.CLAIM" => "0.01 COUNT 1 ready",
        "INPUT.WRITE" => "x 0 x",
        "INPUT.COMMIT" => "x 1 d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24",
        "JOB.INPUT" => "x 1 d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24 0 1",
        "OUTPUT.WRITE" => "x 1 1 stdout 0 x",
        "OUTPUT.COPY" => "x 1 1 stdout 0 1 3 1 1",
        "OUTPUT.COMMIT" => "x 1 1 stdout 1 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
        "JOB.RESULT" => "x 1 stdout",
        "JOB.FILE" => "x 1 stdout",
        "LMOVE" => "x y LEFT RIGHT",
        "BLMOVE" => "x y LEFT RIGHT 0.01",
        "ZADD" => "x 1 x",
        _ => {
            let words = usize::from(command.arity.unsigned_abs()) - 1;
            return format!("{}{}", command.name, " x".repeat(words));
        }
    };
    format!("{} {args}", command.name)
}

struct Who {
    name: &'static str,
    key: String,
    may: fn(&Command) -> bool,
}

fn everyone(lab: &Lab) -> [Who; 4] {
    [
        Who { name: "an admin", key: lab.key().to_owned(), may: |_| true },
        Who {
            name: "a client",
            key: "c".repeat(64),
            may: |command| matches!(command.access, CommandAccess::Everyone | CommandAccess::Client),
        },
        Who {
            name: "a worker",
            key: "w".repeat(64),
            may: |command| matches!(command.access, CommandAccess::Everyone | CommandAccess::Worker),
        },
        Who { name: "an agent", key: "a".repeat(64), may: |command| command.agent != AgentAccess::Refused },
    ]
}

fn start(lab: &Lab) -> Agq {
    let [client, worker, agent] = ["c", "w", "a"].map(|letter| letter.repeat(64));
    let text =
        format!("[clients]\nalice = '{client}'\n[workers]\nw1 = '{worker}'\n[agents]\none = '{agent}'\n");
    let file = lab.file("agq.toml", &text).display().to_string();
    // Each check uses a connection of its own, and AUTH is one of the commands.
    lab.agq(&["--config", &file, "--max-connections-per-ip", "0", "--max-auth-failures", "0"])
}

#[test]
fn every_command_with_every_kind_of_key() {
    let lab = Lab::new();
    let agq = start(&lab);
    let mut cells = 0;
    for holder in everyone(&lab) {
        for command in Command::all() {
            let mut raw = RawConnection::bare(&agq);
            assert_eq!(raw.ask(&format!("AUTH {}", holder.key)), "+OK");
            let (reply, shown) = (raw.ask(&line(command)), holder.name);
            let refusal = format!("-NOPERM This key is {shown}'s and may not use {}", command.name);
            let key =
                line(command).split(' ').nth(usize::try_from(command.keys.0).unwrap()).map(str::to_owned);
            let names_a_users_key = command.keys.0 > 0
                && command.access == CommandAccess::Everyone
                && key.is_some_and(|key| !key.contains(':'));
            if shown == "a worker" && names_a_users_key {
                assert!(reply.starts_with(&format!("{refusal} on ")), "{}: {reply}", command.name);
            } else if (holder.may)(command) {
                assert!(!reply.starts_with("-NOPERM This key is a"), "{shown}, {}: {reply}", command.name);
                assert!(!reply.starts_with("-ERR Invalid arguments: use"), "{}: {reply}", command.name);
            } else {
                assert_eq!(reply, refusal);
            }
            cells += 1;
        }
    }
    assert_eq!(cells, 4 * Command::all().count());
}

#[test]
fn before_auth_nothing_is_answered() {
    let lab = Lab::new();
    let agq = start(&lab);
    for command in Command::all() {
        let reply = RawConnection::bare(&agq).ask(&line(command));
        if BEFORE_AUTH.contains(&command.name) {
            assert!(!reply.contains("NOAUTH"), "{}: {reply}", command.name);
        } else if command.name == "CLIENT" {
            // Only client libraries of Redis send CLIENT, so the reply is the error that these
            // libraries recognise.
            assert_eq!(reply, "-NOAUTH Authentication required.");
        } else {
            assert_eq!(reply, "-ERR NOAUTH Authentication required", "{}", command.name);
        }
    }
}

#[test]
fn access_to_commands_of_workers_and_clients_stays_separate() {
    let access = |name: &str| Command::find(name).unwrap_or_else(|| panic!("there is no {name}")).access;
    for name in NOT_FOR_WORKERS {
        assert!(matches!(access(name), CommandAccess::Client | CommandAccess::Admin), "{name}");
    }
    for name in NOT_FOR_CLIENTS {
        assert!(matches!(access(name), CommandAccess::Worker | CommandAccess::Admin), "{name}");
    }
}

/// Opens a connection and logs in with `key`.
fn with_key(agq: &Agq, key: &str) -> RawConnection {
    let mut raw = RawConnection::bare(agq);
    assert_eq!(raw.ask(&format!("AUTH {key}")), "+OK");
    raw
}

#[test]
fn key_of_a_worker_speaks_for_that_worker_alone() {
    let lab = Lab::new();
    let agq = start(&lab);
    let mut w1 = with_key(&agq, &"w".repeat(64));
    let refused = "-NOPERM This key is worker w1's and may not act for w2";
    let register = |id: &str| format!(r#"WORKER.REGISTER '{{"worker_id":"{id}","capabilities":["true"]}}'"#);
    assert_eq!(w1.ask(&register("w2")), refused);
    assert_eq!(w1.ask("WORKER.HEARTBEAT w2"), refused);
    assert_eq!(w1.ask("WORKER.UNREGISTER w2"), refused);
    assert!(w1.ask(&register("w1")).starts_with("+OK worker_id=w1"));
    let report = w1.ask(r#"JOB.UPDATE job-1 '{"status":"running","worker_id":"w2"}'"#);
    assert_eq!(report, "-ERR Invalid job update: worker_id is w2, this connection is w1");
}

#[test]
fn name_is_no_key() {
    let lab = Lab::new();
    let agq = start(&lab);
    lab.submit_plan(&agq, &crate::support::plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut w1 = with_key(&agq, &"w".repeat(64));
    assert!(w1.ask(r#"WORKER.REGISTER '{"worker_id":"w1","capabilities":["true"]}'"#).starts_with("+OK"));
    let mut client = with_key(&agq, &"c".repeat(64));
    assert_eq!(client.ask("CLIENT SETNAME w1"), "+OK");
    client.send("RPOP queue:ready\n");
    let job = client.bulk().split('"').nth(3).unwrap().to_owned();
    client.send(&format!("HGET job:{job} worker_id\n"));
    let holder = client.bulk();
    assert!(holder.starts_with("connection:"), "{holder}");
}

#[test]
fn key_that_is_shown_later_counts_alone() {
    let lab = Lab::new();
    let agq = start(&lab);
    lab.submit_plan(&agq, &crate::support::plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut raw = with_key(&agq, lab.key());
    assert!(raw.ask(r#"WORKER.REGISTER '{"worker_id":"w9","capabilities":["true"]}'"#).starts_with("+OK"));
    assert_eq!(raw.ask(&format!("AUTH {}", "c".repeat(64))), "+OK");
    raw.send("RPOP queue:ready\n");
    let job = raw.bulk().split('"').nth(3).unwrap().to_owned();
    raw.send(&format!("HGET job:{job} worker_id\n"));
    let holder = raw.bulk();
    assert!(holder.starts_with("connection:"), "{holder}");
}

#[test]
fn literal_variables_of_a_plan_are_hidden_from_other_keys() {
    let lab = Lab::new();
    let (alice, bob) = ("a".repeat(64), "b".repeat(64));
    let config = lab.file("agq.toml", &format!("[clients]\nalice = '{alice}'\nbob = '{bob}'\n"));
    let agq = lab.agq(&["--config", config.to_str().unwrap()]);
    let ask = |key: &str, command: &str| {
        let mut raw = RawConnection::bare(&agq);
        assert_eq!(raw.ask(&format!("AUTH {key}")), "+OK");
        raw.send(&format!("{command}\n"));
        raw.bulk()
    };
    let env = r#"{"TOKEN": "hunter2", "FILE": "{{input.file}}"}"#;
    let plan = format!(r#"{{"plan_id":"p","tasks":[{{"task_number":1,"command":"env","env":{env}}}]}}"#);
    let mut raw = RawConnection::bare(&agq);
    assert_eq!(raw.ask(&format!("AUTH {alice}")), "+OK");
    assert_eq!(raw.ask(&format!("PLAN.SUBMIT '{plan}'")), "+OK plan_id=p");
    for owner in [&*alice, lab.key()] {
        assert!(ask(owner, "PLAN.GET p").contains("hunter2"));
    }
    for command in ["PLAN.GET p", "GET plan:p"] {
        let hidden = ask(&bob, command);
        assert!(hidden.contains(r#""TOKEN":"***""#) && hidden.contains("{{input.file}}"), "{hidden}");
    }
    let as_bob = |args: &[&str]| {
        let mut command = lab.command("agx");
        command.env("AGQ_ADDR", agq.address()).env("AGQ_SESSION_KEY", &bob);
        command.env("EDITOR", "true").env_remove("VISUAL");
        Ran::from(command.arg("plan").args(args).output().unwrap())
    };
    let refused = as_bob(&["edit", "p"]).expect(2).err;
    assert!(refused.contains("shows *** for TOKEN\n"), "{refused}");
    as_bob(&["get", "p-2"]).expect(4);
    lab.file("copy.json", &as_bob(&["get", "p"]).expect(0).out.replace("\"p\"", "\"copy\""));
    let noted = as_bob(&["submit", "copy.json"]).expect(0).err;
    assert!(noted.contains("*** becomes the value of TOKEN;"), "{noted}");
}

#[test]
fn doctor_shows_all_findings_with_every_kind_of_key_and_without_one() {
    let lab = Lab::new();
    let agq = start(&lab);
    let _agw = lab.agw(&agq, "w9", &[]);
    let doctor = |key: &str| {
        let mut command = lab.command("agx");
        command.env("AGQ_ADDR", agq.address()).env("AGQ_SESSION_KEY", key).arg("doctor");
        Ran::from(command.output().unwrap())
    };
    for holder in everyone(&lab) {
        let found = doctor(&holder.key).expect(0).out;
        assert!(found.contains("ok    install") && found.contains(" sandbox "), "{}: {found}", holder.name);
    }
    let of_worker = doctor(&"w".repeat(64)).expect(0).out;
    assert!(of_worker.contains("ok    workers not checked"), "{of_worker}");
    let without = doctor("").expect(1).out;
    assert!(
        without.contains("ok    install") && without.contains("WRONG agq     there is no session key"),
        "{without}"
    );
}

#[test]
fn worker_says_that_it_does_not_use_its_key_file() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let file = lab.file("worker.key", &"w".repeat(64)).display().to_string();
    let agw = lab.agw(&agq, "w1", &["--session-key-file", &file]);
    let expected = format!("AGQ_SESSION_KEY is set, so the key in {file} is not used");
    assert!(agw.log().contains(&expected), "{}", agw.log());
}
