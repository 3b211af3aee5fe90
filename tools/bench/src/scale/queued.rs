//! Measures with millions of queued jobs: a claim and its report, the memory of agq, and the time
//! to start again after SIGKILL.

use std::path::Path;

use agenix_harness::resp::Resp;
use anyhow::Context;

use super::{
    SECTION,
    bulk::Bulk,
    cycles,
    fixture::{ScaleFixture, expect_ready},
    number, reopen,
};
use crate::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    load::process_stats,
    measure::Bench,
    table::grouped,
};

/// Numbers of queued jobs, the largest first. All of these queues exist at once.
const LEVELS: [usize; 4] = [5_000_000, FEW, 100_000, 1_000_000];
const QUICK_LEVELS: [usize; 2] = [100_000, FEW];
const FEW: usize = 1000;
/// Name of the contender with the fewest jobs.
const FEW_QUEUED: &str = "1,000 queued";
/// Cycles of a round. As many jobs are added before, so that the length of the queue does not
/// change.
const CYCLES: usize = 1000;
const NOTE: &str = "one connection, one command at a time; claims are not durable, completions are; floor \
    and aim are 2 and 1.3 times the cost with 1,000 queued jobs";
const QUICK_NOTE: &str = "a quick run queues 100,000 jobs instead of 5,000,000; one connection, one \
    command at a time; claims are not durable, completions are";
const MEMORY_NOTE: &str = "measured once, with all jobs queued: growth of agq's memory, including caches";

/// An agq with a long queue.
struct LongQueue {
    length: usize,
    fixture: ScaleFixture,
    bulk: Bulk,
    resp: Resp,
    /// Growth of the memory of agq for each job.
    bytes_per_job: Option<f64>,
}

pub(super) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let levels: &[usize] = if bench.is_quick { &QUICK_LEVELS } else { &LEVELS };
    let mut queues = levels
        .iter()
        .map(|&length| LongQueue::fill(&programs.bin, length))
        .collect::<anyhow::Result<Vec<_>>>()?;
    compare_cycles(bench, &mut queues)?;
    memory(bench, &queues)?;
    let Some(longest) = queues.into_iter().next() else { return Ok(()) };
    restart(bench, longest)
}

fn compare_cycles(bench: &mut Bench, queues: &mut [LongQueue]) -> anyhow::Result<()> {
    let longest = grouped(queues[0].length);
    let note = if bench.is_quick { QUICK_NOTE } else { NOTE };
    let mut comparison = ContenderComparison::new(
        format!("claim and complete a job while {longest} are queued"),
        "µs",
        Better::Less,
    )
    .with_goal(FEW_QUEUED, 0.5, 0.77)
    .with_note(note);
    for queue in queues {
        comparison = comparison.with(format!("{} queued", grouped(queue.length)), move || queue.cycles());
    }
    bench.compare(SECTION, comparison)
}

fn memory(bench: &mut Bench, queues: &[LongQueue]) -> anyhow::Result<()> {
    let title = "memory of agq for each of many queued jobs";
    // The memory of a thousand jobs is below the noise.
    let long = queues.iter().filter(|queue| queue.length > FEW);
    let grown: Option<Vec<_>> = long.map(|queue| Some((queue.length, queue.bytes_per_job?))).collect();
    let Some(grown) = grown else {
        bench.skip(title, "only Linux shows the memory of a process");
        return Ok(());
    };
    let mut comparison = ContenderComparison::new(title, "bytes", Better::Less)
        .with_bound(1000.0, 200.0)
        .with_note(MEMORY_NOTE);
    for (length, bytes) in grown {
        // A figure has to be positive, and memory may have shrunk.
        comparison = comparison.with(format!("{} queued", grouped(length)), move || Ok(bytes.max(1.0)));
    }
    bench.compare(SECTION, comparison)
}

fn restart(bench: &mut Bench, queue: LongQueue) -> anyhow::Result<()> {
    let LongQueue { length, mut fixture, .. } = queue;
    let title = format!("restart after SIGKILL with {} jobs queued", grouped(length));
    let comparison = ContenderComparison::new(title, "s", Better::Less)
        .with("agq", || reopen::restart(&mut fixture))
        .with_note("killed directly after an acknowledgement; the files are in the page cache");
    bench.compare(SECTION, comparison)
}

impl LongQueue {
    fn fill(bin: &Path, length: usize) -> anyhow::Result<Self> {
        println!("  queueing {} jobs", grouped(length));
        let fixture = ScaleFixture::new(bin);
        let mut bulk = Bulk::open(&fixture)?;
        let mut resp = fixture.connect()?;
        let before = process_stats::resident_mb(fixture.agq.pid());
        bulk.add(length).context("the jobs cannot be queued")?;
        let after = process_stats::resident_mb(fixture.agq.pid());
        expect_ready(&mut resp, length)?;
        let grown = after.zip(before).map(|(after, before)| (after - before) * 1e6);
        let bytes_per_job = grown.map(|bytes| bytes / number(length));
        Ok(Self { length, fixture, bulk, resp, bytes_per_job })
    }

    fn cycles(&mut self) -> anyhow::Result<f64> {
        self.bulk.add(CYCLES)?;
        cycles::claim_and_complete(&mut self.resp, CYCLES)
    }
}
