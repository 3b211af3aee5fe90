//! A worker that disappears between claim and reply, or before it reports the start, loses no job.

use e2e::{Lab, eventually};

use crate::support::{RawConnection, action, plan};

fn lab_with_a_job() -> (Lab, e2e::Agq) {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    (lab, agq)
}

const REGISTER: &str = r#"WORKER.REGISTER '{"worker_id":"w","capabilities":["true"]}'"#;

#[test]
fn worker_that_disconnects_while_it_waits_gets_no_job() {
    let (lab, agq) = lab_with_a_job();
    let mut waiting = RawConnection::open(&lab, &agq);
    assert!(waiting.ask(REGISTER).starts_with("+OK worker_id=w"));
    waiting.send("BRPOP queue:ready 0\n");
    drop(waiting);
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut next = RawConnection::open(&lab, &agq);
    next.send("BRPOP queue:ready 0\n");
    assert!(next.bulk().contains(r#""action_id":"a""#));
}

#[test]
fn claim_that_was_never_reported_goes_back_when_the_connection_closes() {
    let (lab, agq) = lab_with_a_job();
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut worker = RawConnection::open(&lab, &agq);
    assert!(worker.ask(REGISTER).starts_with("+OK worker_id=w"));
    worker.send("BRPOP queue:ready 0\n");
    assert!(worker.bulk().contains(r#""attempt":1"#));
    drop(worker);
    let mut next = RawConnection::open(&lab, &agq);
    next.send("BRPOP queue:ready 0\n");
    assert!(next.bulk().contains(r#""attempt":2"#));
}

#[test]
fn claims_that_come_together_are_answered_in_their_order_the_next_waits_and_all_go_back_together() {
    const READY: usize = 17;
    let (lab, agq) = lab_with_a_job();
    let inputs: Vec<_> = (0..READY).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    lab.submit_action(&agq, "p", "a", &format!("[{}]", inputs.join(",")));
    let mut worker = RawConnection::open(&lab, &agq);
    assert!(worker.ask(REGISTER).starts_with("+OK worker_id=w"));
    worker.send(&format!("{}PING\n", "BRPOP queue:ready 60\n".repeat(READY + 2)));
    let first: Vec<_> = (0..READY).map(|_| worker.bulk()).collect();
    for (n, job) in first.iter().enumerate() {
        assert!(job.contains(&format!(r#""inputs":{{"n":{n}}},"attempt":1"#)), "{job}");
    }
    let mut other = RawConnection::open(&lab, &agq);
    let action = r#"ACTION.SUBMIT '{"action_id":"b","plan_id":"p","inputs":[{"n":17},{"n":18}]}'"#;
    assert_eq!(other.ask(action), "+OK action_id=b jobs_created=2");
    for n in READY..READY + 2 {
        let job = worker.bulk();
        assert!(job.contains(&format!(r#""inputs":{{"n":{n}}},"attempt":1"#)), "{job}");
    }
    assert_eq!(worker.line(), "+PONG");
    drop(worker);
    other.send(&"BRPOP queue:ready 60\n".repeat(READY + 2));
    let mut again: Vec<_> = (0..READY + 2).map(|_| other.bulk()).collect();
    let number = |job: &String| job.split(r#""n":"#).nth(1)?.split('}').next()?.parse::<usize>().ok();
    again.sort_by_key(number);
    for (n, job) in again.iter().enumerate() {
        assert!(job.contains(&format!(r#""inputs":{{"n":{n}}},"attempt":2"#)), "{job}");
    }
}

#[test]
fn jobs_of_one_claim_come_in_their_order_up_to_the_limit_and_go_back_together() {
    // Number of jobs, one more than agq gives to one claim.
    const READY: usize = 33;
    let (lab, agq) = lab_with_a_job();
    let inputs: Vec<_> = (0..READY).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    lab.submit_action(&agq, "p", "a", &format!("[{}]", inputs.join(",")));
    let mut worker = RawConnection::open(&lab, &agq);
    assert!(worker.ask(REGISTER).starts_with("+OK worker_id=w"));
    worker.send(&format!("{}PING\n", "JOB.CLAIM 60 COUNT 40 ready\n".repeat(2)));
    for (count, numbers) in [("*32", 0..READY - 1), ("*1", READY - 1..READY)] {
        assert_eq!(worker.line(), count);
        for n in numbers {
            let job = worker.bulk();
            assert!(job.contains(&format!(r#""inputs":{{"n":{n}}},"attempt":1"#)), "{job}");
        }
    }
    assert_eq!(worker.line(), "+PONG");
    drop(worker);
    let (mut other, mut again) = (RawConnection::open(&lab, &agq), Vec::new());
    while again.len() < READY {
        // The jobs go back one after the other.
        let count = other.ask("JOB.CLAIM 60 COUNT 40 ready");
        again.extend((0..count[1..].parse().unwrap()).map(|_: usize| other.bulk()));
    }
    assert!(again.iter().all(|job| job.contains(r#""attempt":2"#)), "{again:?}");
}

#[test]
fn claim_that_waits_gets_one_job_and_nothing_once_its_worker_drains() {
    let (lab, agq) = lab_with_a_job();
    let (mut worker, mut other) = (RawConnection::open(&lab, &agq), RawConnection::open(&lab, &agq));
    assert!(worker.ask(REGISTER).starts_with("+OK worker_id=w"));
    worker.send("PING\nJOB.CLAIM 0 COUNT 2 ready\n");
    assert_eq!(worker.line(), "+PONG");
    lab.submit_action(&agq, "p", "a", "[{}]");
    assert_eq!(worker.line(), "*1");
    assert!(worker.bulk().contains(r#""action_id":"a""#));
    worker.send("PING\nJOB.CLAIM 0 COUNT 2 ready\n");
    assert_eq!(worker.line(), "+PONG");
    assert_eq!(other.ask("WORKER.DRAIN w"), "+OK");
    assert_eq!(worker.line(), "*-1");
}

#[test]
fn reported_job_stays_with_its_worker_when_a_connection_closes() {
    let (lab, agq) = lab_with_a_job();
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut worker = RawConnection::open(&lab, &agq);
    assert!(worker.ask(REGISTER).starts_with("+OK worker_id=w"));
    worker.send("BRPOP queue:ready 0\n");
    let document = worker.bulk();
    let job = document.split('"').nth(3).unwrap().to_owned();
    assert_eq!(worker.ask(&format!(r#"JOB.UPDATE {job} '{{"status":"running"}}'"#)), "+OK");
    drop(worker);
    // The worker registers again under its name on another connection and continues the job.
    let mut again = RawConnection::open(&lab, &agq);
    eventually("its id is free again", || again.ask(REGISTER).starts_with("+OK").then_some(()));
    assert_eq!(action(&lab, &agq, "a")["running"], 1);
    assert_eq!(again.ask(&format!(r#"JOB.UPDATE {job} '{{"status":"completed"}}'"#)), "+OK");
}

#[test]
fn connection_that_is_no_worker_gives_its_jobs_back_when_it_closes() {
    let (lab, agq) = lab_with_a_job();
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut nobody = RawConnection::open(&lab, &agq);
    nobody.send("BRPOP queue:ready 0\n");
    let document = nobody.bulk();
    let job = document.split('"').nth(3).unwrap().to_owned();
    assert_eq!(nobody.ask(&format!(r#"JOB.UPDATE {job} '{{"status":"running"}}'"#)), "+OK");
    drop(nobody);
    let mut next = RawConnection::open(&lab, &agq);
    next.send("BRPOP queue:ready 0\n");
    assert!(next.bulk().contains(r#""attempt":2"#));
}

#[test]
fn claims_of_a_connection_go_back_when_agq_was_killed() {
    let (lab, mut agq) = lab_with_a_job();
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut nobody = RawConnection::open(&lab, &agq);
    nobody.send("BRPOP queue:ready 0\n");
    assert!(nobody.bulk().contains(r#""attempt":1"#));
    // A durable write after the claim makes the claim durable too.
    assert_eq!(nobody.ask("SET k v"), "+OK");
    agq.kill();
    agq.start_again(&lab);
    let mut next = RawConnection::open(&lab, &agq);
    next.send("BRPOP queue:ready 0\n");
    assert!(next.bulk().contains(r#""attempt":2"#));
}

#[test]
fn worker_that_was_unregistered_elsewhere_gets_no_more_jobs() {
    let (lab, agq) = lab_with_a_job();
    let mut worker = RawConnection::open(&lab, &agq);
    assert!(worker.ask(REGISTER).starts_with("+OK worker_id=w"));
    // Both commands are one packet, so the second one waits when the first is answered.
    worker.send("PING\nBRPOP queue:ready 0\n");
    assert_eq!(worker.line(), "+PONG");
    let mut other = RawConnection::open(&lab, &agq);
    assert_eq!(other.ask("WORKER.UNREGISTER w"), "+OK");
    lab.submit_action(&agq, "p", "a", "[{}]");
    let end = worker.line();
    // With PostgreSQL the lookup of the claimant takes longer, and may come after the worker has
    // gone.
    let may_be_late = Lab::is_on_postgres() && end == "-ERR Worker not registered: w";
    assert!(end == "$-1" || may_be_late, "its wait ends without a job: {end}");
    assert_eq!(worker.ask("BRPOP queue:ready 1"), "-ERR Worker not registered: w");
    other.send("BRPOP queue:ready 0\n");
    assert!(other.bulk().contains(r#""action_id":"a""#));
}

#[test]
fn claim_that_was_the_last_word_of_a_connection_goes_back() {
    let (lab, agq) = lab_with_a_job();
    lab.submit_action(&agq, "p", "a", "[{}]");
    let reply = RawConnection::open(&lab, &agq).send_last("RPOP queue:ready\n");
    assert!(reply.contains(r#""attempt":1"#), "{reply}");
    let mut next = RawConnection::open(&lab, &agq);
    next.send("BRPOP queue:ready 0\n");
    assert!(next.bulk().contains(r#""attempt":2"#));
}
