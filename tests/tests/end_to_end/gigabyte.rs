//! A gigabyte passes through a pipeline without filling the memory of agw.

use e2e::{Lab, peak_memory_kib};

use crate::support::ended;

const BYTES: u64 = 1_000_000_000;

fn through(stream: &str) {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &[]);
    let plan = format!(
        r#"{{"plan_id":"p","tasks":[{{"task_number":1,"command":"head","args":["-c","{BYTES}","/dev/zero"]}},
            {{"task_number":2,"command":"wc","args":["-c"],"input_from_task":1{stream}}}]}}"#
    );
    lab.submit_plan(&agq, &plan);
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = ended(&lab, &agq, "a");
    assert_eq!(job["stdout"].as_str().map(str::trim), Some(BYTES.to_string().as_str()), "{job}");
    let first = &job["task_results"][0];
    assert_eq!(
        (first["stdout_bytes"].as_u64(), first["stdout_truncated"].as_bool()),
        (Some(BYTES), Some(true))
    );
    let peak_mib = peak_memory_kib(agw.pid()).unwrap() / 1024;
    assert!(peak_mib < 100, "agw used {peak_mib} MiB");
}

#[test]
fn spooled() {
    through("");
}

#[test]
fn streamed() {
    through(r#","stream":true"#);
}
