//! Bound on the jobs of an action that run at once.

use std::{fs, path::Path, process::Command};

use e2e::{Lab, Ran};

/// Command of a job that writes the times of its start and of its end into a file of its own.
const MEASURED: &str = "sh -c 'echo $(date +%s%N) > $1.start; sleep 0.05; date +%s%N > $1.end' sh";

/// Returns the largest number of jobs that ran at one time.
fn most_at_once(dir: &Path, jobs: u32) -> usize {
    let time = |name: String| -> u128 { fs::read_to_string(dir.join(name)).unwrap().trim().parse().unwrap() };
    let runs: Vec<_> =
        (1..=jobs).map(|job| (time(format!("{job}.start")), time(format!("{job}.end")))).collect();
    // The number is largest at the start of a job.
    let running = |at: u128| runs.iter().filter(|(start, end)| *start <= at && at < *end).count();
    runs.iter().map(|(start, _)| running(*start)).max().unwrap()
}

/// Runs 20 jobs with `agx`, and checks their times.
fn check(lab: &Lab, mut agx: Command, more: &[&str]) {
    let dir = lab.path().join("times");
    fs::create_dir_all(&dir).unwrap();
    let dir = dir.display().to_string();
    agx.args(["map", "--max-running", "2", "--cwd", &dir]).args(more);
    agx.args(["--", &format!("{MEASURED} {{}}"), ":::"]).args((1..=20).map(|job| job.to_string()));
    Ran::from(agx.output().unwrap()).expect(0);
    assert!(most_at_once(Path::new(&dir), 20) <= 2);
}

#[test]
fn max_running_bounds_the_jobs_of_an_action_on_a_large_worker() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "8"]);
    let mut agx = lab.command("agx");
    agx.env("AGQ_ADDR", agq.address());
    check(&lab, agx, &[]);
}

#[test]
fn max_running_bounds_the_jobs_of_a_map_without_a_server() {
    let lab = Lab::on_files();
    let mut agx = lab.command("agx");
    agx.env("TMPDIR", lab.path());
    check(&lab, agx, &["-j", "8"]);
}
