//! Jobs over HTTP, from their submission to their end.

use e2e::{Lab, eventually};

use super::client::Http;

#[test]
fn acknowledged_job_is_there_after_a_kill() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let done =
        http.enqueue(r#"{"type":"email.send","args":[1.50,{"to":"a"}],"meta":{"k":"v"},"colour":"red"}"#);
    let failed = http.enqueue(r#"{"type":"a","args":[],"options":{"queue":"q","retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}}"#);
    let waits = http.enqueue(r#"{"type":"a","args":[],"options":{"queue":"q"}}"#);
    assert_eq!(http.fetch("w", "default").unwrap()["id"], *done);
    http.post("/workers/ack", &format!(r#"{{"job_id":"{done}","worker_id":"w","result":{{"n":2.50}}}}"#));
    assert_eq!(http.fetch("w", "q").unwrap()["id"], *failed);
    let error = r#"{"code":"handler_error","type":"Boom","message":"it broke"}"#;
    http.post(&format!("/jobs/{failed}/nack"), &format!(r#"{{"error":{error}}}"#));
    agq.kill();
    agq.start_again(&lab);
    let job = http.ask("GET", &format!("/jobs/{done}"), "");
    assert!(job.text.contains(r#""args":[1.50,{"to":"a"}]"#), "as it came: {}", job.text);
    assert!(job.text.contains(r#""result":{"n":2.50}"#), "as it came: {}", job.text);
    assert_eq!((&job.body["job"]["colour"], &job.body["job"]["meta"]["k"]), (&"red".into(), &"v".into()));
    let dead = http.get("/dead-letter");
    assert_eq!(dead["jobs"][0]["id"], *failed);
    assert_eq!(dead["jobs"][0]["errors"][0]["type"], "Boom");
    assert_eq!(http.fetch("w2", "q").unwrap()["id"], *waits);
    let stats = http.get("/queues/q/stats");
    assert_eq!((&stats["queue"]["active"], &stats["queue"]["discarded"]), (&1.into(), &1.into()));
}

#[test]
fn attempt_that_was_given_up_on_says_nothing_any_more() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let id = http.enqueue(r#"{"type":"a","args":[],"options":{"visibility_timeout_ms":300}}"#);
    assert_eq!(http.fetch("slow", "default").unwrap()["attempt"], 1);
    let again = eventually("its time is over", || http.fetch("quick", "default"));
    assert_eq!((&again["id"], &again["attempt"]), (&id.as_str().into(), &2.into()));
    let late = http.ask("POST", "/workers/ack", &format!(r#"{{"job_id":"{id}","worker_id":"slow"}}"#));
    assert_eq!((late.status, late.code()), (409, "conflict"));
    let stale = http.ask("POST", "/workers/ack", &format!(r#"{{"job_id":"{id}","attempt":1}}"#));
    assert_eq!((stale.status, stale.code()), (409, "conflict"));
    let ack = format!(r#"{{"job_id":"{id}","worker_id":"quick","attempt":2,"result":7}}"#);
    http.post("/workers/ack", &ack);
    // The repeated request succeeds, because the first response may have been lost.
    assert_eq!(http.post("/workers/ack", &ack)["state"], "completed");
    let job = &http.get(&format!("/jobs/{id}"))["job"];
    assert_eq!((&job["result"], &job["errors"][0]["type"]), (&7.into(), &"visibility_timeout".into()));
}

#[test]
fn no_more_run_at_once_than_may_and_none_is_forgotten() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let limited =
        r#"{"type":"a","args":[],"options":{"queue":"q","rate_limit":{"key":"k","concurrency":2}}}"#;
    let jobs = format!(r#"{{"jobs":[{}]}}"#, [limited; 5].join(","));
    assert_eq!(http.post("/jobs/batch", &jobs)["count"], 5);
    let all = r#"{"queues":["q"],"count":10,"worker_id":"w"}"#;
    let mut done = 0;
    while done < 5 {
        let jobs = http.post("/workers/fetch", all)["jobs"].as_array().unwrap().clone();
        assert!((1..=2).contains(&jobs.len()), "{jobs:?}");
        assert_eq!(http.post("/workers/fetch", all)["jobs"], serde_json::json!([]));
        assert_eq!(http.get("/rate-limits/k")["concurrency"]["active"], jobs.len());
        for job in jobs {
            http.post(&format!("/jobs/{}/ack", job["id"].as_str().unwrap()), "");
            done += 1;
        }
    }
    assert_eq!(http.get("/rate-limits/k")["concurrency"]["active"], 0);
}

#[test]
fn of_many_who_submit_the_same_at_once_one_does() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let unique = r#"{"type":"a","args":[1],"options":{"unique":{"keys":["type","args"]}}}"#;
    let submit = || Http::of(&lab, &agq).ask("POST", "/jobs", unique).status;
    let mut statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12).map(|_| scope.spawn(submit)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    statuses.sort_unstable();
    assert_eq!((statuses[0], &statuses[1..]), (201, &[409; 11][..]));
}

#[test]
fn job_that_is_replaced_ends_on_its_worker_at_once() {
    let lab = Lab::new();
    // The next heartbeat is too late to end the job.
    let agq = lab.agq(&["--heartbeat-interval", "600"]);
    let _agw = lab.agw(&agq, "w", &["--max-concurrent-jobs", "1"]);
    let begun = lab.path().join("begun");
    let script = format!("echo >> {}; exec sleep 300", begun.display());
    lab.submit_plan(
        &agq,
        &format!(
            r#"{{"plan_id":"nap","tasks":[{{"task_number":1,"command":"sh","args":["-c","{script}"]}}]}}"#
        ),
    );
    let http = Http::of(&lab, &agq);
    let job =
        r#"{"type":"plan.nap","args":[{}],"options":{"unique":{"keys":["type"],"on_conflict":"replace"}}}"#;
    let submit = || http.post("/jobs", job)["job"]["id"].as_str().unwrap().to_owned();
    let begins = |count: usize| {
        eventually("the job has begun", || {
            let lines = std::fs::read_to_string(&begun).unwrap_or_default().lines().count();
            (lines == count).then_some(())
        });
    };
    let first = submit();
    begins(1);
    let second = submit();
    // The worker has one slot, so the second job starts only after the end of the first.
    begins(2);
    assert_eq!((http.state(&first), http.state(&second)), ("cancelled".into(), "active".into()));
}
