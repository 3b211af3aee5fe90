//! Millions of jobs wait: what a claim and its end report cost beside so many, what agq's memory grows by, how long it takes to
//! come back.

use std::path::Path;

use agenix_harness::resp::Resp;
use anyhow::Context;

use super::{
    SECTION,
    bulk::Bulk,
    grouped, number, reopen,
    stand::{Stand, expect_ready},
    turns,
};
use crate::{
    Place,
    contest::{Better, Contest},
    load::gauge,
    measure::Bench,
};

/// How many jobs wait, the many first; all of these are there at once.
const LEVELS: [usize; 4] = [5_000_000, FEW, 100_000, 1_000_000];
const QUICK_LEVELS: [usize; 2] = [100_000, FEW];
const FEW: usize = 1000;
/// What the contender with the fewest is called.
const FEW_QUEUED: &str = "1,000 queued";
/// Turns of a round; so many jobs are added before it, that the queue stays as long as it is.
const TURNS: usize = 1000;
const NOTE: &str = "one connection, one command at a time; claims are on disk soon after, each completion before it is \
    acknowledged; the floor and the aim are 2 and 1.3 times the cost with 1,000 queued";
const QUICK_NOTE: &str = "a quick run queues 100,000 in the place of 5,000,000; one connection, one command at a time; claims \
    are on disk soon after, each completion before it is acknowledged";
const MEMORY_NOTE: &str =
    "measured once, when all were queued: what agq's memory had grown by, its caches included";

/// An agq with a long queue.
struct Queue {
    length: usize,
    stand: Stand,
    bulk: Bulk,
    resp: Resp,
    /// What its memory grew by for each job.
    bytes_per_job: Option<f64>,
}

pub(super) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let levels: &[usize] = if bench.is_quick { &QUICK_LEVELS } else { &LEVELS };
    let mut queues =
        levels.iter().map(|&length| Queue::fill(&place.bin, length)).collect::<anyhow::Result<Vec<_>>>()?;
    turns_beside(bench, &mut queues)?;
    memory(bench, &queues)?;
    let Some(longest) = queues.into_iter().next() else { return Ok(()) };
    come_back(bench, longest)
}

fn turns_beside(bench: &mut Bench, queues: &mut [Queue]) -> anyhow::Result<()> {
    let longest = grouped(queues[0].length);
    let note = if bench.is_quick { QUICK_NOTE } else { NOTE };
    let mut contest =
        Contest::new(format!("claim and complete a job while {longest} are queued"), "µs", Better::Less)
            .against(FEW_QUEUED, 0.5, 0.77)
            .noting(note);
    for queue in queues {
        contest = contest.with(format!("{} queued", grouped(queue.length)), move || queue.turns());
    }
    bench.hold(SECTION, contest)
}

fn memory(bench: &mut Bench, queues: &[Queue]) -> anyhow::Result<()> {
    let title = "memory of agq for each of many queued jobs";
    // What a thousand jobs need is lost in what comes and goes.
    let long = queues.iter().filter(|queue| queue.length > FEW);
    let grown: Option<Vec<_>> = long.map(|queue| Some((queue.length, queue.bytes_per_job?))).collect();
    let Some(grown) = grown else {
        bench.skip(title, "only Linux says how much memory a process has");
        return Ok(());
    };
    let mut contest = Contest::new(title, "bytes", Better::Less).bounded(1000.0, 200.0).noting(MEMORY_NOTE);
    for (length, bytes) in grown {
        // Memory that became less is not negative, it is nothing to compare.
        contest = contest.with(format!("{} queued", grouped(length)), move || Ok(bytes.max(1.0)));
    }
    bench.hold(SECTION, contest)
}

fn come_back(bench: &mut Bench, queue: Queue) -> anyhow::Result<()> {
    let Queue { length, mut stand, .. } = queue;
    let title = format!("listen again after SIGKILL with {} jobs queued", grouped(length));
    let contest = Contest::new(title, "s", Better::Less)
        .with("agq", || reopen::again(&mut stand))
        .noting("killed right after a job was acknowledged; the files are in the page cache");
    bench.hold(SECTION, contest)
}

impl Queue {
    fn fill(bin: &Path, length: usize) -> anyhow::Result<Self> {
        println!("  queueing {} jobs", grouped(length));
        let stand = Stand::new(bin);
        let mut bulk = Bulk::open(&stand)?;
        let mut resp = stand.connect()?;
        let before = gauge::resident_mb(stand.agq.pid());
        bulk.add(length).context("the jobs cannot be queued")?;
        let after = gauge::resident_mb(stand.agq.pid());
        expect_ready(&mut resp, length)?;
        let grown = after.zip(before).map(|(after, before)| (after - before) * 1e6);
        let bytes_per_job = grown.map(|bytes| bytes / number(length));
        Ok(Self { length, stand, bulk, resp, bytes_per_job })
    }

    fn turns(&mut self) -> anyhow::Result<f64> {
        self.bulk.add(TURNS)?;
        turns::claim_and_complete(&mut self.resp, TURNS)
    }
}
