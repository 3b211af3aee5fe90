//! How long a job takes from the moment at which it is submitted to the moment at which its process is there, where nothing
//! else goes on.

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
    SECTION, again,
    stand::{Stand, must},
    watch::{self, Watch},
};
use crate::{
    Place,
    contest::{Better, Contest},
    measure::Bench,
};

const PLAN: &str = r#"{"plan_id":"now","tasks":[{"task_number":1,"command":"date","args":["+%s.%N"]}]}"#;
/// More than all writes to it.
const BYTES: u64 = 1 << 20;
/// Between two jobs everybody comes to rest.
const REST: Duration = Duration::from_millis(10);
const NOTE: &str = "one job at a time, all idle before it: from the sending of ACTION.SUBMIT to the time that the job's `date` \
    prints, so that the start of `date` is in it; the job is on disk before it is handed out; beside it, where 99 of 100 are counted, what a disk that rests takes for 1 KiB";

/// An agq and a worker that have nothing to do.
struct Idle {
    resp: Resp,
    watch: Watch,
    jobs: usize,
    _agw: Agw,
    // Dropped last.
    stand: Stand,
}

pub(super) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let jobs = bench.scaled(200, 100);
    let mut idle = Idle::start(place)?;
    let late = RefCell::new(Vec::new());
    let contest = title("median", jobs).bounded(5.0, 2.0).with("agq, agw", || {
        let mut times = idle.times_ms(jobs)?;
        times.sort_by(f64::total_cmp);
        late.borrow_mut().push(percentile(&times, 99));
        Ok(percentile(&times, 50))
    });
    bench.hold(SECTION, contest)?;
    let (late, disk) = (late.into_inner(), Disk::new(&idle.stand)?);
    let contest = title("99 of 100 within", jobs).bounded(25.0, 10.0).with("agq, agw", again(&late));
    bench.hold(SECTION, contest.with("a write and its sync", || disk.late_ms(jobs)))
}

/// The disk with nothing before it.
struct Disk(File);

impl Disk {
    fn new(stand: &Stand) -> anyhow::Result<Self> {
        let file = File::create(stand.lab.path().join("alone"))?;
        file.set_len(BYTES)?;
        Ok(Self(file))
    }

    /// Within how long 99 of 100 writes are on it.
    fn late_ms(&self, count: usize) -> anyhow::Result<f64> {
        let mut times = Vec::with_capacity(count);
        for at in 0..count {
            rest();
            let begun = Instant::now();
            self.0.write_all_at(&[1; 1024], at as u64 * 1024)?;
            self.0.sync_data()?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        Ok(percentile(&times, 99))
    }
}

fn title<'a>(which: &str, jobs: usize) -> Contest<'a> {
    Contest::new(format!("submit to process start, {which}, of {jobs} jobs"), "ms", Better::Less).noting(NOTE)
}

impl Idle {
    fn start(place: &Place) -> anyhow::Result<Self> {
        let stand = Stand::new(&place.bin);
        stand.lab.submit_plan(&stand.agq, PLAN);
        let agw = stand.lab.agw(&stand.agq, "worker", &["--max-concurrent-jobs", "2"]);
        let watch = Watch::open(&stand.agq.address(), stand.lab.key())?;
        Ok(Self { resp: stand.connect()?, watch, jobs: 0, _agw: agw, stand })
    }

    fn times_ms(&mut self, jobs: usize) -> anyhow::Result<Vec<f64>> {
        (0..jobs).map(|_| self.time_ms()).collect()
    }

    fn time_ms(&mut self) -> anyhow::Result<f64> {
        rest();
        self.jobs += 1;
        let action = format!("now-{}", self.jobs);
        let submission = format!(r#"{{"action_id":"{action}","plan_id":"now","inputs":[{{}}]}}"#);
        let sent = now()?;
        must(&mut self.resp, &["ACTION.SUBMIT", &submission])?;
        let completed = self.watch.completed(&action, 1)?;
        let printed = watch::stdout(&mut self.resp, &completed[0])?;
        let there = parsed(&printed).with_context(|| format!("`date` printed '{printed}'"))?;
        let took = there.checked_sub(sent).context("the clock was set back meanwhile")?;
        Ok(took.as_secs_f64() * 1e3)
    }
}

/// The time that `date` knows, too.
#[expect(
    clippy::disallowed_methods,
    reason = "another process says when it was there: only the time of day is the same"
)]
fn now() -> anyhow::Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

#[expect(clippy::disallowed_methods, reason = "that nothing happens meanwhile is what is wanted")]
fn rest() {
    thread::sleep(REST);
}

/// What `date +%s.%N` prints.
fn parsed(printed: &str) -> Option<Duration> {
    let (secs, nanos) = printed.trim().split_once('.')?;
    Some(Duration::new(secs.parse().ok()?, nanos.parse().ok()?))
}

/// What so many of a hundred stay within; the times are in order, and there are some.
fn percentile(times: &[f64], percent: usize) -> f64 {
    times[(times.len() * percent).div_ceil(100).saturating_sub(1)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{parsed, percentile};

    #[test]
    fn what_date_prints_is_read() {
        assert_eq!(parsed("1700000000.000000042\n"), Some(Duration::new(1_700_000_000, 42)));
        assert_eq!(parsed("1700000000.N"), None);
    }

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<f64> = (1..=200_u32).map(f64::from).collect();
        assert_eq!([percentile(&times, 50), percentile(&times, 99)], [100.0, 198.0]);
        assert_eq!([percentile(&[7.0], 50), percentile(&[7.0], 99)], [7.0, 7.0]);
    }
}
