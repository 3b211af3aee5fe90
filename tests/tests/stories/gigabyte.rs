//! A gigabyte passes through a pipeline without filling the memory of agw.

use e2e::Lab;

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
    let peak_mb = peak_memory_kb(agw.pid()) / 1024;
    assert!(peak_mb < 100, "agw used {peak_mb} MB");
}

/// Returns the peak memory of a process in kilobytes, as the kernel reports it.
#[cfg(target_os = "linux")]
fn peak_memory_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns the current memory of a process, because other systems do not report the peak.
#[cfg(not(target_os = "linux"))]
fn peak_memory_kb(pid: u32) -> u64 {
    let ps = std::process::Command::new("ps").args(["-o", "rss=", "-p", &pid.to_string()]).output().unwrap();
    String::from_utf8(ps.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn spooled() {
    through("");
}

#[test]
fn streamed() {
    through(r#","stream":true"#);
}
