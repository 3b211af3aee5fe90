//! Measures the time from the submission of a job to the start of its process on an idle agq and
//! worker.

use std::{
    cell::RefCell,
    fs::File,
    os::unix::fs::FileExt,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use agenix_harness::resp::Resp;
use anyhow::Context;
use e2e::Agw;

use super::{
    SECTION,
    fixture::{ScaleFixture, expect_ok},
    job_events::{self, JobEvents},
    replay,
};
use crate::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    measure::Bench,
};

const PLAN: &str = r#"{"plan_id":"now","tasks":[{"task_number":1,"command":"date","args":["+%s.%N"]}]}"#;
/// Size of the file, which is larger than all writes to it.
const BYTES: u64 = 1 << 20;
/// Time between two jobs, in which all processes become idle.
const PAUSE: Duration = Duration::from_millis(10);
const NOTE: &str = "one job at a time on an idle system: from sending ACTION.SUBMIT to the time that the \
    job's `date` prints, including the start of `date`; the job is durable before the claim; for \
    comparison with the 99th percentile, the time of an idle disk for 1 KiB";

/// An idle agq and worker.
struct IdleSystem {
    resp: Resp,
    job_events: JobEvents,
    jobs: usize,
    _agw: Agw,
    // The fixture is dropped last.
    fixture: ScaleFixture,
}

pub(super) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let jobs = bench.scaled(200, 100);
    let mut idle = IdleSystem::start(programs)?;
    let p99 = RefCell::new(Vec::new());
    let comparison = title("median", jobs).with_bound(5.0, 2.0).with("agq, agw", || {
        let mut times = idle.times_ms(jobs)?;
        times.sort_by(f64::total_cmp);
        p99.borrow_mut().push(percentile(&times, 99));
        Ok(percentile(&times, 50))
    });
    bench.compare(SECTION, comparison)?;
    let (p99, disk) = (p99.into_inner(), IdleDisk::new(&idle.fixture)?);
    let comparison = title("99th percentile", jobs).with_bound(25.0, 10.0).with("agq, agw", replay(&p99));
    bench.compare(SECTION, comparison.with("a write and its sync", || disk.p99_ms(jobs)))
}

struct IdleDisk(File);

impl IdleDisk {
    fn new(fixture: &ScaleFixture) -> anyhow::Result<Self> {
        let file = File::create(fixture.lab.path().join("alone"))?;
        file.set_len(BYTES)?;
        Ok(Self(file))
    }

    /// Returns the 99th percentile of a write and its sync, in ms.
    fn p99_ms(&self, count: usize) -> anyhow::Result<f64> {
        let mut times = Vec::with_capacity(count);
        for at in 0..count {
            pause();
            let begun = Instant::now();
            self.0.write_all_at(&[1; 1024], at as u64 * 1024)?;
            self.0.sync_data()?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        Ok(percentile(&times, 99))
    }
}

fn title<'a>(which: &str, jobs: usize) -> ContenderComparison<'a> {
    ContenderComparison::new(format!("submit to process start, {which}, of {jobs} jobs"), "ms", Better::Less)
        .with_note(NOTE)
}

impl IdleSystem {
    fn start(programs: &ProgramDirs) -> anyhow::Result<Self> {
        let fixture = ScaleFixture::new(&programs.bin);
        fixture.lab.submit_plan(&fixture.agq, PLAN);
        let agw = fixture.lab.agw(&fixture.agq, "worker", &["--max-concurrent-jobs", "2"]);
        let job_events = JobEvents::open(&fixture.agq.address(), fixture.lab.key())?;
        Ok(Self { resp: fixture.connect()?, job_events, jobs: 0, _agw: agw, fixture })
    }

    fn times_ms(&mut self, jobs: usize) -> anyhow::Result<Vec<f64>> {
        (0..jobs).map(|_| self.time_ms()).collect()
    }

    fn time_ms(&mut self) -> anyhow::Result<f64> {
        pause();
        self.jobs += 1;
        let action = format!("now-{}", self.jobs);
        let submission = format!(r#"{{"action_id":"{action}","plan_id":"now","inputs":[{{}}]}}"#);
        let sent = now()?;
        expect_ok(&mut self.resp, &["ACTION.SUBMIT", &submission])?;
        let completed = self.job_events.completed(&action, 1)?;
        let printed = job_events::stdout(&mut self.resp, &completed[0])?;
        let started = parsed(&printed).with_context(|| format!("`date` printed '{printed}'"))?;
        let took = started.checked_sub(sent).context("the clock was set back")?;
        Ok(took.as_secs_f64() * 1e3)
    }
}

/// Returns the time of day, which the process `date` reads as well.
#[expect(
    clippy::disallowed_methods,
    reason = "another process reports its start: both share only the time of day"
)]
fn now() -> anyhow::Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

#[expect(clippy::disallowed_methods, reason = "the processes have to be idle")]
fn pause() {
    thread::sleep(PAUSE);
}

/// Parses the output of `date +%s.%N`.
fn parsed(printed: &str) -> Option<Duration> {
    let (secs, nanos) = printed.trim().split_once('.')?;
    Some(Duration::new(secs.parse().ok()?, nanos.parse().ok()?))
}

/// Returns a percentile of sorted times, of which there must be one at least.
fn percentile(times: &[f64], percent: usize) -> f64 {
    times[(times.len() * percent).div_ceil(100).saturating_sub(1)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{parsed, percentile};

    #[test]
    fn parsed_reads_the_output_of_date() {
        assert_eq!(parsed("1700000000.000000042\n"), Some(Duration::new(1_700_000_000, 42)));
        assert_eq!(parsed("1700000000.N"), None);
    }

    #[test]
    fn percentile_is_one_of_the_measured_times() {
        let times: Vec<f64> = (1..=200_u32).map(f64::from).collect();
        assert_eq!([percentile(&times, 50), percentile(&times, 99)], [100.0, 198.0]);
        assert_eq!([percentile(&[7.0], 50), percentile(&[7.0], 99)], [7.0, 7.0]);
    }
}
