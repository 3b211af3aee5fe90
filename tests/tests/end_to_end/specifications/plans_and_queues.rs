//! The AGQ API spec §2, §6, §7: plans, queues, metrics.

use super::{converse, says};

says! {
    plan_submit_ok: r#"
        > PLAN.SUBMIT '{"plan_id":"uuid-5678","plan_description":"Sort and deduplicate data","tasks":[{"task_number":1,"command":"sort","args":["-r"],"timeout_secs":30},{"task_number":2,"command":"uniq","args":[],"input_from_task":1,"timeout_secs":30}]}'
        < +OK plan_id=uuid-5678"#
    plan_submit_invalid_schema: r#"
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[]}'
        < -ERR Invalid plan schema: tasks is empty: a plan has at least one task
        > PLAN.SUBMIT nonsense
        < -ERR Invalid plan schema: …
        > PLAN.SUBMIT '{"tasks":[{"task_number":2,"command":"sort"}]}'
        < -ERR Invalid plan schema: tasks[0].task_number is 2, expected 1: …
        > PLAN.SUBMIT '{"tasks":[{"task_number":1,"command":"sort","input_from_task":3}]}'
        < -ERR Invalid plan schema: tasks[0].input_from_task is 3: …
        > PLAN.SUBMIT '{"tasks":[{"task_number":1,"command":""}]}'
        < -ERR Invalid plan schema: tasks[0].command is empty"#
    plan_submit_exists: r#"
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=p
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}'
        < -ERR Plan already exists: p"#
    plan_get: r#"
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=p
        > PLAN.GET p
        < $…
        < {"plan_id":"p","tasks":[…]}
        > PLAN.GET nothing
        < $-1"#
    plan_list: r#"
        > PLAN.LIST
        < *0
        > PLAN.SUBMIT '{"plan_id":"ocr-1","tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=ocr-1
        > PLAN.SUBMIT '{"plan_id":"other","tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=other
        > PLAN.LIST ocr-*
        < *1
        < $5
        < ocr-1
        > PLAN.LIST LIMIT 1 OFFSET 1
        < *1
        < $5
        < other"#
    plan_delete: r#"
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=p
        > ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{}]}'
        < +OK action_id=a jobs_created=1
        > PLAN.DELETE p
        < -ERR Cannot delete plan with active jobs
        > ACTION.CANCEL a
        < +OK cancelled=1
        > PLAN.DELETE p
        < :1
        > PLAN.DELETE p
        < :0"#
    queue_stats: r#"
        > QUEUE.STATS
        < $…
        < {"queue:ready":{"length":0,"oldest_job_age_seconds":null,"newest_job_age_seconds":null,…},"queue:scheduled":{"length":0,"next_job_due_in_seconds":null},"workers":{"total":0,"active":0,"idle":0}}
        > QUEUE.STATS queue:ready
        < $…
        < {"queue:ready":{"length":0,…}}"#
    queue_peek: r#"
        > QUEUE.PEEK queue:ready
        < *0
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=p
        > ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{},{},{}]}'
        < +OK action_id=a jobs_created=3
        > QUEUE.PEEK queue:ready 1
        < *1
        < $…
        < job-…"#
    queue_peek_of_scheduled_jobs: r#"
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=p
        > ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{}],"delay_secs":1000}'
        < +OK action_id=a jobs_created=1
        > QUEUE.PEEK queue:ready
        < *0
        > QUEUE.PEEK queue:scheduled
        < *1
        < $…
        < job-…
        > LLEN queue:scheduled
        < :1"#
    action_submit_with_another_time_is_refused: r#"
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=p
        > ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{}],"run_at":"2099-01-01T00:00:00Z"}'
        < +OK action_id=a jobs_created=1
        > ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{}],"run_at":"2099-01-01T00:00:00Z"}'
        < +OK action_id=a jobs_created=1
        > ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{}],"run_at":"2098-01-01T00:00:00Z"}'
        < -ERR Action already exists with other content: a"#
    jobs_search: r#"
        > JOBS.SEARCH
        < *0
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=p
        > ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{},{}]}'
        < +OK action_id=a jobs_created=2
        > JOBS.SEARCH pending p LIMIT 1
        < *1
        < $…
        < job-…
        > JOBS.SEARCH failed
        < *0
        > JOBS.SEARCH pending other
        < *0
        > JOBS.SEARCH bogus
        < -ERR Invalid arguments: 'bogus' is not a status: …"#
    metrics: r#"
        > METRICS json
        < $…
        < {"jobs_total":{"cancelled":0,"completed":0,…"queue_length":{"ready":0,"scheduled":0},…}"#
}

#[test]
fn metrics_show_the_content_of_heartbeats() {
    let lab = e2e::Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = crate::support::RawConnection::open(&lab, &agq);
    assert!(raw.ask(r#"WORKER.REGISTER '{"worker_id":"w","capabilities":["true"]}'"#).starts_with("+OK"));
    let stats = r#"{"completed_jobs_total":150,"failed_jobs_total":3,"avg_job_duration_ms":2500,"cpu_usage_percent":45.2}"#;
    assert_eq!(raw.ask(&format!("WORKER.HEARTBEAT w '{stats}'")), "+OK");
    raw.send("METRICS\n");
    let text = raw.bulk();
    for line in [
        "agq_worker_completed_jobs_total{worker=\"w\"} 150",
        "agq_worker_failed_jobs_total{worker=\"w\"} 3",
        "agq_worker_avg_job_duration_ms{worker=\"w\"} 2500",
        "agq_worker_cpu_usage_percent{worker=\"w\"} 45.2",
        "agq_workers_active 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn metrics_for_prometheus() {
    let lab = e2e::Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = crate::support::RawConnection::open(&lab, &agq);
    raw.send("METRICS\n");
    let text = raw.bulk();
    for line in [
        "# TYPE agq_jobs_total counter",
        "agq_jobs_total{status=\"completed\"} 0",
        "agq_jobs_total{status=\"failed\"} 0",
        "# TYPE agq_workers_active gauge",
        "agq_workers_active 0",
        "# TYPE agq_queue_length gauge",
        "agq_queue_length{queue=\"ready\"} 0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is missing in\n{text}");
    }
}

/// Name, labels and value of a series.
type Sample<'t> = (&'t str, Vec<(&'t str, &'t str)>, f64);

/// Returns the sample of a line in the text format of Prometheus: name, labels and value.
fn sample(line: &str) -> Sample<'_> {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    assert!(name.starts_with("agq_") && !name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let labels = labels.strip_suffix('}').unwrap().split(',').filter(|label| !label.is_empty());
    let pairs = labels.map(|label| {
        let (name, quoted) = label.split_once('=').unwrap();
        (name, quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap())
    });
    (name, pairs.collect(), value.parse().unwrap())
}

/// Checks that `text` is what a scraper reads: each family has one type, before its samples.
fn scrape(text: &str) -> Vec<Sample<'_>> {
    let mut families: Vec<(&str, &str)> = Vec::new();
    let mut samples = Vec::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(families.iter().all(|(other, _)| *other != name), "{line} is there twice");
            families.push((name, kind));
        } else if !line.starts_with('#') {
            let found = sample(line);
            let (family, kind) = *families.last().unwrap();
            let suffix = found.0.strip_prefix(family).unwrap_or_else(|| panic!("{line} after {family}"));
            let is_part = matches!((kind, suffix), ("histogram", "_bucket" | "_sum" | "_count"));
            assert!(is_part || (kind != "histogram" && suffix.is_empty()), "{line} of a {kind}");
            samples.push(found);
        }
    }
    samples
}

#[test]
fn metrics_have_histograms_of_waits_and_run_times_by_queue() {
    let lab = e2e::Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = crate::support::RawConnection::open(&lab, &agq);
    assert!(raw.ask(r#"WORKER.REGISTER '{"worker_id":"w","capabilities":["true"]}'"#).starts_with("+OK"));
    let plan = crate::support::plan("p", "true", &[]);
    assert!(raw.ask(&format!("PLAN.SUBMIT '{plan}'")).starts_with("+OK"));
    let action = r#"{"action_id":"a","plan_id":"p","queue":"q","inputs":[{},{}]}"#;
    assert!(raw.ask(&format!("ACTION.SUBMIT '{action}'")).starts_with("+OK"));
    raw.send("RPOP queue:q\n");
    let job: serde_json::Value = serde_json::from_str(&raw.bulk()).unwrap();
    let report = format!(r#"JOB.UPDATE {} '{{"status":"completed"}}'"#, job["job_id"].as_str().unwrap());
    assert_eq!(raw.ask(&report), "+OK");
    raw.send("METRICS\n");
    let text = raw.bulk();
    let samples = scrape(&text);
    for name in ["agq_job_wait_seconds", "agq_job_run_seconds"] {
        let of = |suffix: &str, wanted: &[(&str, &str)]| -> Vec<f64> {
            let has = |labels: &[(&str, &str)]| wanted.iter().all(|label| labels.contains(label));
            let own = samples
                .iter()
                .filter(|(other, labels, _)| *other == format!("{name}{suffix}") && has(labels));
            own.map(|(_, _, value)| *value).collect()
        };
        assert_eq!(of("_count", &[("queue", "q")]), [1.0], "{text}");
        assert_eq!(of("_count", &[("queue", "ready")]), [0.0], "{text}");
        assert_eq!(of("_bucket", &[("queue", "q"), ("le", "+Inf")]), [1.0], "{text}");
        let buckets = of("_bucket", &[("queue", "q")]);
        assert!(buckets.len() == 15 && buckets.is_sorted(), "{text}");
    }
    let ages = samples.iter().filter(|(name, ..)| *name == "agq_queue_oldest_job_age_seconds");
    let queues: Vec<_> = ages.flat_map(|(_, labels, _)| labels).map(|(_, queue)| *queue).collect();
    assert_eq!(queues, ["q", "ready"], "{text}");
}

#[test]
fn more_than_a_hundred_tasks_or_a_megabyte_is_refused() {
    let tasks: Vec<String> =
        (1..=101).map(|n| format!(r#"{{"task_number":{n},"command":"true"}}"#)).collect();
    let plan = format!(r#"{{"tasks":[{}]}}"#, tasks.join(","));
    converse(
        &[],
        &format!("> PLAN.SUBMIT '{plan}'\n< -ERR Invalid plan schema: tasks has 101 tasks, max 100"),
    );
}

#[test]
fn plan_list_has_a_hundred_where_it_does_not_say() {
    let lab = e2e::Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = crate::support::RawConnection::open(&lab, &agq);
    for n in 0..101 {
        let plan = crate::support::plan(&format!("p{n:03}"), "true", &[]);
        assert!(raw.ask(&format!("PLAN.SUBMIT '{plan}'")).starts_with("+OK"));
    }
    raw.send("PLAN.LIST\n");
    assert_eq!(raw.line(), "*100");
    let ids: Vec<String> = (0..100).map(|_| raw.bulk()).collect();
    assert_eq!((ids[0].as_str(), ids[99].as_str()), ("p000", "p099"));
    raw.send("PLAN.LIST OFFSET 100\n");
    assert_eq!((raw.line().as_str(), raw.bulk().as_str()), ("*1", "p100"));
}

#[test]
fn queue_stats_with_jobs_and_workers() {
    converse(
        &[],
        r#"
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=p
        > WORKER.REGISTER '{"worker_id":"w","capabilities":["sort"]}'
        < +OK worker_id=w heartbeat_interval=30
        > ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{},{}]}'
        < +OK action_id=a jobs_created=2
        > QUEUE.STATS
        < $…
        < {"queue:ready":{"length":2,"oldest_job_age_seconds":0,"newest_job_age_seconds":0,"needs":[{"tools":["sort"],"length":2,"workers":1}]},…"workers":{"total":1,"active":1,"idle":1}}"#,
    );
}
