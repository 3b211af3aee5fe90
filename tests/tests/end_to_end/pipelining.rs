//! Pipelines: replies arrive in order, and waiting commands are served first come, first served.

use e2e::Lab;

use crate::support::{RawConnection, plan};

#[test]
fn pipelined_commands_are_answered_in_order() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    let commands: String = (0..100).map(|n| format!("LPUSH list {n}\nPING {n}\n")).collect();
    raw.send(&commands);
    for n in 0..100 {
        assert_eq!(raw.line(), format!(":{}", n + 1));
        assert_eq!(raw.bulk(), n.to_string());
    }
}

#[test]
fn each_of_many_writes_at_once_is_answered_for_itself() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    let counts: String = "INCR n\n".repeat(40);
    raw.send(&format!(
        "SET k 1\nINCR k\nLPUSH k x\nNOSUCH\nINCR k\nSET plan:p v\nRPOP none\nINCR k\nGET k\n{counts}MULTI\nINCR n\nEXEC\nINCR n\n"
    ));
    assert_eq!([raw.line(), raw.line()], ["+OK", ":2"]);
    assert!(raw.line().starts_with("-WRONGTYPE "));
    assert!(raw.line().starts_with("-ERR Unknown command"));
    assert_eq!(raw.line(), ":3");
    assert!(raw.line().starts_with("-ERR "), "keys of agq's own are not written");
    assert_eq!([raw.line(), raw.line()], ["$-1", ":4"]);
    assert_eq!(raw.bulk(), "4");
    for n in 1..=40 {
        assert_eq!(raw.line(), format!(":{n}"));
    }
    let last: [String; 5] = std::array::from_fn(|_| raw.line());
    assert_eq!(last, ["+OK", "+QUEUED", "*1", ":41", ":42"]);
}

#[test]
fn read_sees_the_writes_before_it_and_an_action_its_plan() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    let (plan, action) = (plan("p", "true", &[]), r#"{"action_id":"a","plan_id":"p","inputs":[{}]}"#);
    raw.send(&format!("SET k v\nGET k\nPLAN.SUBMIT '{plan}'\nACTION.SUBMIT '{action}'\nLLEN queue:ready\n"));
    assert_eq!(raw.line(), "+OK");
    assert_eq!(raw.bulk(), "v");
    assert_eq!(raw.line(), "+OK plan_id=p");
    assert_eq!(raw.line(), "+OK action_id=a jobs_created=1");
    assert_eq!(raw.line(), ":1");
}

#[test]
fn waiters_on_a_list_are_served_in_the_order_they_came() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut waiters: Vec<RawConnection> = Vec::new();
    let mut watcher = RawConnection::open(&lab, &agq);
    for _ in 0..5 {
        let mut waiter = RawConnection::open(&lab, &agq);
        waiter.send("PING\nBRPOP list 0\n");
        assert_eq!(waiter.line(), "+PONG");
        // PING and BRPOP are one packet, so the reply to PING proves that agq has read the BRPOP.
        waiters.push(waiter);
    }
    assert_eq!(watcher.ask("LPUSH list 0 1 2 3 4"), ":5");
    for (n, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(waiter.bulk(), n.to_string());
    }
}

#[test]
fn acknowledged_write_is_there_after_a_kill() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    let commands: String = (0..1000).map(|n| format!("SET k{n} v{n}\n")).collect();
    raw.send(&commands);
    for _ in 0..1000 {
        assert_eq!(raw.line(), "+OK");
    }
    agq.kill();
    agq.start_again(&lab);
    let mut raw = RawConnection::open(&lab, &agq);
    for n in 0..1000 {
        raw.send(&format!("GET k{n}\n"));
        assert_eq!(raw.bulk(), format!("v{n}"));
    }
}

#[test]
fn client_that_has_closed_its_writing_side_still_gets_its_replies() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let commands = format!("AUTH {}\nSET k v\nGET k\nPING\n", lab.key());
    assert_eq!(RawConnection::bare(&agq).send_last(&commands), "+OK\r\n+OK\r\n$1\r\nv\r\n+PONG\r\n");
}

#[test]
fn agq_stops_though_a_client_does_not_read() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    let megabyte = "x".repeat(1_000_000);
    raw.send_bytes(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{megabyte}\r\n").as_bytes());
    assert_eq!(raw.line(), "+OK");
    // The replies exceed every socket buffer.
    raw.send(&"GET k\n".repeat(100));
    assert!(agq.stop().success());
}

#[test]
fn read_does_not_see_the_write_behind_it() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-commands-per-second", "0"]);
    let mut raw = RawConnection::open(&lab, &agq);
    for _ in 0..200 {
        raw.send("RPUSH list a\nLRANGE list 0 -1\nDEL list\n");
        assert_eq!(raw.line(), ":1");
        assert_eq!(raw.line(), "*1", "the list was there when it was asked for");
        assert_eq!((raw.line().as_str(), raw.line().as_str(), raw.line().as_str()), ("$1", "a", ":1"));
    }
}

#[test]
fn so_much_behind_a_command_that_waits_ends_the_connection_and_loses_nothing() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-pipeline", "10"]);
    let mut crowded = RawConnection::open(&lab, &agq);
    crowded.send(&format!("BRPOP list 0\n{}", "PING\n".repeat(20)));
    assert_eq!(crowded.line(), "-ERR Too many commands behind one that waits");
    assert!(crowded.is_closed());
    let mut other = RawConnection::open(&lab, &agq);
    assert_eq!(other.ask("LPUSH list v"), ":1");
    assert_eq!(other.ask("LLEN list"), ":1");
}

#[test]
fn empty_arguments_behind_a_command_that_waits_count_as_well() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut crowded = RawConnection::open(&lab, &agq);
    crowded.send("BRPOP list 0\n");
    // Two commands take more than 16 MiB of memory, but have hardly any bytes of arguments.
    for _ in 0..2 {
        let keys = "$0\r\n\r\n".repeat(300_000);
        crowded.send_bytes(format!("*300001\r\n$3\r\nDEL\r\n{keys}").as_bytes());
    }
    assert_eq!(crowded.line(), "-ERR Too many commands behind one that waits");
    assert!(crowded.is_closed());
}

#[test]
fn client_that_is_refused_for_its_rate_while_it_waits_takes_no_element() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-commands-per-second", "10"]);
    let mut fast = RawConnection::open(&lab, &agq);
    // agq delays each command by 100 ms, and refuses the client after ten seconds.
    fast.send(&format!("BRPOP list 0\n{}", "PING\n".repeat(200)));
    assert_eq!(fast.line(), "-ERR Too many commands: max 10 a second");
    let mut other = RawConnection::open(&lab, &agq);
    assert_eq!(other.ask("LPUSH list v"), ":1");
    assert!(fast.is_closed());
    assert_eq!(other.ask("LLEN list"), ":1");
}

#[test]
fn claim_takes_its_place_behind_the_writes_before_it_and_what_is_behind_it_waits() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-commands-per-second", "0"]);
    let mut raw = RawConnection::open(&lab, &agq);
    assert_eq!(raw.ask(&format!("PLAN.SUBMIT '{}'", plan("p", "true", &[]))), "+OK plan_id=p");
    raw.send("ACTION.SUBMIT '{\"plan_id\":\"p\",\"inputs\":[{}]}'\nRPOP queue:ready\n");
    for n in 0..100 {
        assert!(raw.line().starts_with("+OK"), "a job was submitted, or reported");
        let job: serde_json::Value = serde_json::from_str(&raw.bulk()).unwrap();
        let job_id = job["job_id"].as_str().unwrap();
        let pop = if n % 2 == 0 { "RPOP queue:ready" } else { "BRPOP queue:ready 60" };
        raw.send(&format!(
            "JOB.UPDATE {job_id} '{{\"status\":\"completed\"}}'\nRPOP queue:ready\nLLEN queue:ready\n\
             ACTION.SUBMIT '{{\"plan_id\":\"p\",\"inputs\":[{{}}]}}'\n{pop}\n"
        ));
        assert_eq!((raw.line().as_str(), raw.line().as_str(), raw.line().as_str()), ("+OK", "$-1", ":0"));
    }
    // A waiting command gets no reply, but the command before it does.
    let rest = RawConnection::open(&lab, &agq).send_last("SET a 1\nBRPOP queue:other 60\n");
    assert_eq!(rest, "+OK\r\n");
}

#[test]
fn action_behind_its_own_plan_keeps_its_place() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    for n in 0..20 {
        let plan = crate::support::plan(&format!("p{n}"), "true", &[]);
        let action = format!(r#"{{"action_id":"a{n}","plan_id":"p{n}","open":true}}"#);
        raw.send(&format!(
            "PLAN.SUBMIT '{plan}'\nACTION.SUBMIT '{action}'\nACTION.CLOSE a{n}\nPLAN.DELETE p{n}\n"
        ));
        assert_eq!(raw.line(), format!("+OK plan_id=p{n}"));
        assert_eq!(raw.line(), format!("+OK action_id=a{n} jobs_created=0"));
        assert_eq!((raw.line().as_str(), raw.line().as_str()), ("+OK", ":1"));
    }
}

#[test]
fn ready_reply_is_sent_though_the_client_sends_no_more() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-pipeline", "1"]);
    let rest = RawConnection::open(&lab, &agq).send_last("SET a 1\nBRPOP queue:x y 1\nPING\n");
    let mixed = "-ERR Invalid arguments: queues and lists cannot be waited for in one command";
    assert_eq!(rest, format!("+OK\r\n{mixed}\r\n+PONG\r\n"));
    // A connection may wait even with the smallest limit of commands in flight.
    let mut waiting = RawConnection::open(&lab, &agq);
    waiting.send("BRPOP list 1.5\n");
    assert_eq!(waiting.line(), "$-1");
}
