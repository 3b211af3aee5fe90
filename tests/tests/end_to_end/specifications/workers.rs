//! The worker spec: workers from registration to unregistration, and their virtual keys.

use super::says;

says! {
    worker_register_ok_as_seed_000_has_it: r#"
        > WORKER.REGISTER '{"worker_id":"worker-macbook-001","hostname":"macbook-pro.local","platform":"darwin-arm64","agw_version":"0.1.0","capabilities":{"tools":["sort","uniq","grep","cut","jq"],"agentic_units":["agx-ocr"]},"max_concurrent_jobs":4,"tags":{"environment":"local","tier":"development"}}'
        < +OK worker_id=worker-macbook-001 heartbeat_interval=30"#
    worker_register_ok_as_seed_001_has_it: r#"
        > WORKER.REGISTER '{"worker_id":"worker-local-001","hostname":"macbook-pro.local","capabilities":["sort","uniq","grep","agx-ocr"],"max_concurrent_jobs":4,"agw_version":"0.1.0"}'
        < +OK worker_id=worker-local-001 heartbeat_interval=30"#
    worker_register_invalid_capabilities_format: r#"
        > WORKER.REGISTER '{"worker_id":"w","capabilities":7}'
        < -ERR Invalid capabilities format"#
    worker_register_invalid_capabilities: r#"
        > WORKER.REGISTER '{"worker_id":"w","capabilities":["a/b"]}'
        < -ERR Invalid capabilities: tools[0] is not the name of a program"#
    worker_register_invalid_registration: r#"
        > WORKER.REGISTER '{"worker_id":"a b","capabilities":["sort"]}'
        < -ERR Invalid worker registration: worker_id: worker_id 'a b' is not valid: …
        > WORKER.REGISTER '{"worker_id":"w","capabilities":["sort"],"max_concurrent_jobs":0}'
        < -ERR Invalid worker registration: max_concurrent_jobs is 0: …"#
    worker_heartbeat: r#"
        > WORKER.HEARTBEAT w
        < -ERR Worker not registered: w
        > WORKER.REGISTER '{"worker_id":"w","capabilities":["sort"]}'
        < +OK worker_id=w heartbeat_interval=30
        > WORKER.HEARTBEAT w
        < +OK
        > WORKER.HEARTBEAT w '{"active_jobs":2,"completed_jobs_total":150,"failed_jobs_total":3,"uptime_seconds":3600,"cpu_usage_percent":45.2,"memory_mb":512,"disk_available_gb":120}'
        < +OK
        > WORKER.HEARTBEAT w '{"active_jobs":2,"completed_jobs_since_start":150,"uptime_seconds":3600,"cpu_usage_percent":45.2,"memory_mb":512}'
        < +OK"#
    worker_unregister: r#"
        > WORKER.UNREGISTER w
        < -ERR Worker not registered
        > WORKER.REGISTER '{"worker_id":"w","capabilities":["sort"]}'
        < +OK worker_id=w heartbeat_interval=30
        > WORKER.UNREGISTER w
        < +OK"#
    windows_on_a_worker: r#"
        > WORKER.REGISTER '{"worker_id":"worker-001","capabilities":["agx-ocr","sort"]}'
        < +OK worker_id=worker-001 heartbeat_interval=30
        > WORKER.HEARTBEAT worker-001 '{"active_jobs":2,"completed_jobs_total":150}'
        < +OK
        > KEYS worker:*:alive
        < *1
        < $23
        < worker:worker-001:alive
        > GET worker:worker-001:stats
        < $…
        < {"active_jobs":2,"completed_jobs_total":150}
        > GET worker:worker-001:metadata
        < $…
        < {"worker_id":"worker-001",…}
        > TTL worker:worker-001:metadata
        < :-1
        > SMEMBERS capability:agx-ocr:workers
        < *1
        < $10
        < worker-001
        > SISMEMBER capability:sort:workers worker-001
        < :1
        > SET worker:worker-001:alive 1
        < -ERR 'worker:worker-001:alive' is kept by agq and cannot be written: …"#
    windows_on_a_job_and_its_plan: r#"
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=p
        > GET plan:p
        < $…
        < {"plan_id":"p","tasks":[…]}
        > TYPE plan:p
        < +string
        > GET job:nothing:worker
        < $-1
        > TTL job:nothing:worker
        < :-2"#
    worker_verify_without_a_worker: r#"
        > WORKER.VERIFY agx-ocr '{"command":"agx-ocr","args":["--version"]}'
        < -ERR No worker has capability: agx-ocr
        > WORKER.VERIFY agx-ocr '{"command":"rm","args":["-r"]}'
        < -ERR Invalid challenge: command is 'rm', it must be 'agx-ocr'"#
}

#[test]
fn windows_on_a_worker_last_as_long_as_the_seed_says() {
    let lab = e2e::Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = crate::support::RawConnection::open(&lab, &agq);
    assert!(raw.ask(r#"WORKER.REGISTER '{"worker_id":"w","capabilities":["sort"]}'"#).starts_with("+OK"));
    assert_eq!(raw.ask("WORKER.HEARTBEAT w '{}'"), "+OK");
    for (part, seconds) in [("alive", 90), ("stats", 120)] {
        let left: i64 = raw.ask(&format!("TTL worker:w:{part}")).trim_start_matches(':').parse().unwrap();
        // The bound is wide, so that the test also passes on slow machines.
        assert!((seconds - 30..=seconds).contains(&left), "{part}: {left}");
    }
}

#[test]
fn worker_id_already_registered() {
    let lab = e2e::Lab::new();
    let agq = lab.agq(&[]);
    let register = r#"WORKER.REGISTER '{"worker_id":"w","capabilities":["sort"]}'"#;
    let (mut one, mut other) =
        (crate::support::RawConnection::open(&lab, &agq), crate::support::RawConnection::open(&lab, &agq));
    assert!(one.ask(register).starts_with("+OK"));
    assert_eq!(other.ask(register), "-ERR Worker ID already registered");
}

#[test]
fn worker_verify_comes_back_with_the_answer() {
    let lab = e2e::Lab::new();
    let agq = lab.agq(&[]);
    let mut worker = crate::support::RawConnection::open(&lab, &agq);
    let register =
        r#"WORKER.REGISTER '{"worker_id":"w","capabilities":{"tools":[],"agentic_units":["agx-ocr"]}}'"#;
    assert!(worker.ask(register).starts_with("+OK"));
    assert_eq!(worker.ask("WORKER.HEARTBEAT w"), "+OK");
    let mut asker = crate::support::RawConnection::open(&lab, &agq);
    asker.send(r#"WORKER.VERIFY agx-ocr '{"command":"agx-ocr","args":["--version"]}'"#);
    asker.send("\n");
    let directives = e2e::eventually("the challenge comes", || {
        let reply = worker.ask("WORKER.HEARTBEAT w");
        reply
            .strip_prefix("+OK orders=")
            .map(|directives| serde_json::from_str::<serde_json::Value>(directives).unwrap())
    });
    let challenge = &directives["verify"][0];
    assert_eq!((&challenge["command"], &challenge["args"][0]), (&"agx-ocr".into(), &"--version".into()));
    let id = challenge["challenge_id"].as_str().unwrap();
    assert_eq!(
        worker.ask(&format!(r#"WORKER.ANSWER {id} '{{"exit_code":0,"output":"agx-ocr 0.1.0\n"}}'"#)),
        "+OK"
    );
    assert_eq!(asker.line(), r#"+OK output="agx-ocr 0.1.0""#);
    assert_eq!(
        worker.ask(&format!(r#"WORKER.ANSWER {id} '{{"exit_code":0}}'"#)),
        format!("-ERR Challenge not found: {id}")
    );
}
