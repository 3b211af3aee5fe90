//! Tests of parsing and encoding requests.

use bytes::Bytes;

use super::{BlockingWait, Command, Concurrency, Request};
use crate::limits::MAX_CLAIMED_QUEUES;

fn words(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

pub(super) fn parse(line: &str) -> Result<Request, String> {
    Request::parse(&words(line)).map(|(_, request)| request).map_err(|error| error.line())
}

fn concurrency(line: &str) -> Concurrency {
    let words = words(line);
    let (command, request) = Request::parse(&words).unwrap();
    request.concurrency(command)
}

#[test]
fn requests_round_trip_through_their_arguments() {
    let lines = "AUTH k|HELLO|HELLO 3 AUTH default k SETNAME n|CLIENT SETNAME w|CLIENT GETNAME|CLIENT ID|CLIENT LIST\
        |CLIENT INFO|CLIENT SETINFO lib-name x|PING|PING m|ECHO m|SELECT 0|RESET|QUIT|COMMAND|COMMAND COUNT\
        |COMMAND INFO get|COMMAND DOCS get set|INFO server|MULTI|EXEC|DISCARD|SUBSCRIBE a b|PSUBSCRIBE a*\
        |UNSUBSCRIBE|PUNSUBSCRIBE a*|PUBLISH c m|PLAN.SUBMIT {}|PLAN.GET p|PLAN.STATUS p|PLAN.ORDER p|PLAN.APPROVE p d|PLAN.REJECT p d|APPROVAL.LIST|PLAN.LIST|PLAN.LIST a* LIMIT 3 OFFSET 4\
        |PLAN.DELETE p|ACTION.SUBMIT {}|ACTION.STATUS a|ACTION.LIST OFFSET 1|ACTION.LIST a* LIMIT 3 LABEL night=2026-01-01 LABEL team= OFFSET 4|ACTION.ADD a [] AT 7|ACTION.ADD a []\
        |ACTION.CLOSE a|ACTION.CANCEL a|ACTION.CANCEL a UNSTARTED|ACTION.RETRY a|JOB.CLAIM 0 COUNT 1 ready|JOB.CLAIM 1.5 COUNT 32 queue:gpu ready\
        |JOB.STATUS j|JOB.UPDATE j {}|JOB.LIST a failed|JOB.RETRY j\
        |JOB.LIST a|JOB.LIST a LIMIT 3 OFFSET 4|JOB.LIST a failed OFFSET 4|JOB.RETRY j FORCE|JOB.CANCEL j|JOB.FORGET j|JOB.EXPLAIN j|JOB.OUTPUT j|JOB.OUTPUT j {}|JOB.RESULT j 1 stdout|JOB.FILE j 1 stderr|JOB.RESULT j 2 stderr 5 6\
        |OUTPUT.WRITE j 1 2 stdout 3 x|OUTPUT.COPY j 1 2 stdout 3 4 5 6 7|OUTPUT.COPY j 1 2 stdout 3 4 5 6 7 KEEP|OUTPUT.COMMIT j 1 2 stderr 9 d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24|INPUT.WRITE u 3 x|INPUT.COMMIT u 9 d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24|JOB.INPUT j 1 d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24 5 6|JOBS.SEARCH|JOBS.SEARCH failed p LIMIT 5\
        |JOBS.SEARCH ACTION a WORKER w SINCE 2026-01-01T00:00:00.000Z UNTIL 2026-01-02T00:00:00.000Z\
        |WORKER.REGISTER {}|WORKER.HEARTBEAT w {}|WORKER.UNREGISTER w|WORKER.ANSWER c {}|WORKER.OUTPUT r {}|WORKER.LIST|WORKER.GET w\
        |WORKER.DRAIN w|WORKER.DRAIN w BY agx-scale|WORKER.TERMINATE w|WORKER.RESUME w|WORKER.VERIFY sort {} WORKER w\
        |CAPABILITY.SEARCH read text LIMIT 3|CAPABILITY.LIST|CAPABILITY.LIST LIMIT 3 MATCH zip|BUDGET.GET|BUDGET.GET claude-1|QUEUE.STATS queue:ready|QUEUE.PEEK gpu 5|QUEUE.PAUSE queue:gpu\
        |QUEUE.RESUME gpu|SCHEDULE.SET {}|SCHEDULE.GET n|SCHEDULE.LIST n* LIMIT 2|SCHEDULE.DELETE n|WORKFLOW.SUBMIT {}\
        |WORKFLOW.STATUS w|WORKFLOW.LIST|WORKFLOW.CANCEL w|METRICS|METRICS json|BACKUP BEGIN|BACKUP READ b 5|BACKUP END b\
        |BACKUP BLOB b d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24 5";
    for line in lines.split('|') {
        let request = parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let encoded = request.encode();
        assert_eq!(Request::parse(&encoded).map(|(_, again)| again), Ok(request), "{line}: {encoded:?}");
    }
}

#[test]
fn every_command_is_in_the_table_once_with_a_summary() {
    let names: Vec<&str> = Command::all().map(|command| command.name).collect();
    let once: std::collections::HashSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), once.len());
    for command in Command::all() {
        assert!(command.summary.ends_with('.') && command.arity != 0, "{}", command.name);
        assert!(!command.takes(0), "{}", command.name);
    }
}

#[test]
fn errors_have_the_texts_of_the_specification() {
    assert_eq!(parse("INVALID").unwrap_err(), "ERR Unknown command 'INVALID'");
    for wrong in ["AUTH", "AUTH a b", "AUTH default b c"] {
        assert_eq!(parse(wrong).unwrap_err(), "ERR AUTH requires exactly one argument");
    }
    assert_eq!(parse("AUTH ").unwrap_err(), "ERR AUTH key cannot be empty");
    assert_eq!(parse("AUTH default ").unwrap_err(), "ERR AUTH key cannot be empty");
    assert_eq!(parse("GET").unwrap_err(), "ERR Invalid arguments: use GET <key>");
    assert_eq!(parse("HELLO 4").unwrap_err(), "NOPROTO unsupported protocol version");
    assert_eq!(parse("SELECT 1").unwrap_err(), "ERR DB index is out of range");
    assert_eq!(
        parse("WORKER.LIST x").unwrap_err(),
        "ERR Invalid arguments: use WORKER.LIST without arguments"
    );
    assert!(
        parse("JOBS.SEARCH SINCE yesterday").unwrap_err().contains("'yesterday' is not an RFC 3339 time")
    );
    assert!(
        parse("PLAN.LIST a b").unwrap_err().starts_with("ERR Invalid arguments: use PLAN.LIST [pattern]")
    );
}

#[test]
fn drain_names_its_program_with_at_most_64_characters() {
    let by = |name: &str| parse(&format!("WORKER.DRAIN w BY {name}"));
    assert!(by(&"a".repeat(64)).is_ok());
    for wrong in ["", "Agx", "agx\n", &"a".repeat(65)] {
        assert!(by(wrong).unwrap_err().contains("is not a name: use 1 to 64 lower-case letters"), "{wrong}");
    }
    for wrong in ["WORKER.DRAIN w x", "WORKER.DRAIN w BY", "WORKER.DRAIN w BY x y"] {
        let usage = "ERR Invalid arguments: use WORKER.DRAIN <worker_id> [BY <name>]";
        assert_eq!(parse(wrong).unwrap_err(), usage);
    }
}

#[test]
fn nul_byte_in_a_name_or_an_id_is_refused() {
    for line in ["JOBS.SEARCH WORKER a\0b", "WORKFLOW.CANCEL a\0b", "SCHEDULE.GET a\0b", "JOB.STATUS a\0b"] {
        assert_eq!(
            parse(line).unwrap_err(),
            "ERR Invalid arguments: an argument contains a NUL byte",
            "{line}"
        );
    }
    // A value may contain any bytes.
    assert!(parse("SET a\0b c\0d").is_ok());
}

#[test]
fn job_list_is_whole_without_a_limit() {
    let listed = |line| match parse(line) {
        Ok(Request::JobList { status, slice, .. }) => (status.is_some(), slice.limit, slice.offset),
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(listed("JOB.LIST a"), (false, usize::MAX, 0));
    assert_eq!(listed("JOB.LIST a failed limit 2"), (true, 2, 0));
    assert_eq!(listed("JOB.LIST a OFFSET 7"), (false, usize::MAX, 7));
    let usage = "ERR Invalid arguments: use JOB.LIST <action_id> [status] [LIMIT <count>] [OFFSET <start>]";
    for wrong in ["JOB.LIST a LIMIT", "JOB.LIST a failed x", "JOB.LIST a LIMIT 1 failed 2"] {
        assert_eq!(parse(wrong).unwrap_err(), usage, "{wrong}");
    }
    assert!(parse("JOB.LIST a done").unwrap_err().contains("'done' is not a status"));
}

#[test]
fn lmove_runs_alone_on_its_connection() {
    assert_eq!(concurrency("LMOVE l l LEFT RIGHT"), Concurrency::Alone);
}

#[test]
fn close_of_an_action_runs_alone_because_it_waits_for_the_inputs_that_are_being_stored() {
    for line in ["ACTION.ADD a []", "ACTION.CLOSE a", "ACTION.CANCEL a"] {
        assert_eq!(concurrency(line), Concurrency::Alone, "{line}");
    }
}

#[test]
fn pop_of_a_queue_is_a_claim_with_and_without_blocking() {
    let pops = ["RPOP queue:ready", "LPOP queue:gpu", "BRPOP queue:gpu queue:ready 1", "BLPOP queue:ready 0"];
    for claim in pops.into_iter().chain(["JOB.CLAIM 0 COUNT 1 ready"]) {
        assert_eq!(concurrency(claim), Concurrency::Claim, "{claim}");
    }
    assert_eq!(concurrency("RPOP list"), Concurrency::Write);
    assert_eq!(concurrency("BRPOP list 1"), Concurrency::Alone);
}

#[test]
fn command_names_match_in_any_case_and_timeouts_may_be_fractions() {
    assert_eq!(parse("ping").unwrap(), Request::Ping { message: None });
    let Request::BlockingPop(pop) = parse("brpop l 0.0001").unwrap() else { panic!("not a pop") };
    assert_eq!(pop.timeout, BlockingWait::Ms(1));
    // 2.007 times 1000 is a little more than 2007, and must not become 2008.
    let Request::BlockingPop(pop) = parse("brpop l 2.007").unwrap() else { panic!("not a pop") };
    assert_eq!(pop.timeout, BlockingWait::Ms(2007));
    assert_eq!(parse("brpop l -1").unwrap_err(), "ERR timeout is negative");
    assert_eq!(parse("brpop l nan").unwrap_err(), "ERR timeout is not a float or out of range");
}

#[test]
fn claim_needs_a_count_and_a_queue() {
    let usage =
        "ERR Invalid arguments: use JOB.CLAIM <timeout_seconds> COUNT <count> <queue_name> [queue_name ...]";
    for wrong in ["JOB.CLAIM 1 COUNT 1", "JOB.CLAIM 1 LIMIT 1 ready"] {
        assert_eq!(parse(wrong).unwrap_err(), usage, "{wrong}");
    }
    let error = |line| parse(line).unwrap_err();
    assert_eq!(error("JOB.CLAIM -1 COUNT 1 ready"), "ERR timeout is negative");
    assert_eq!(error("JOB.CLAIM 1 COUNT 0 ready"), "ERR value is out of range, must be positive");
    assert!(error("JOB.CLAIM 1 COUNT few ready").ends_with("a count is not a whole number, 0 or more"));
    assert!(error("JOB.CLAIM 1 COUNT 1 a*b").contains("queue 'a*b' is not valid"));
}

#[test]
fn queues_of_a_claim_are_bounded() {
    let (queues, lists) = (|count: usize| " queue:q".repeat(count), " list".repeat(MAX_CLAIMED_QUEUES + 1));
    let refused = "ERR Invalid arguments: a claim has 1001 queues, max 1000: use several claims";
    for (before, after) in [("JOB.CLAIM 1 COUNT 1", ""), ("BRPOP", " 1"), ("BLPOP", " 1")] {
        let claim = |count: usize| parse(&format!("{before}{}{after}", queues(count)));
        assert!(claim(MAX_CLAIMED_QUEUES).is_ok(), "{before}");
        assert_eq!(claim(MAX_CLAIMED_QUEUES + 1), Err(refused.to_owned()), "{before}");
    }
    assert!(parse(&format!("BRPOP{lists} 1")).is_ok(), "lists are not claimed");
}

#[test]
fn debug_output_hides_session_keys() {
    for line in ["AUTH k3y", "AUTH default k3y", "HELLO 3 AUTH default k3y"] {
        let shown = format!("{:?}", parse(line).unwrap());
        assert!(!shown.contains("k3y"), "{shown}");
    }
}
