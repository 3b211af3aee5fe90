//! Tasks end to end: thousands of times `true`, thousands of times `sort FILE | uniq -c`, from the submission to the last
//! result, every process started. Ours is held against others that start processes for people, and against the system itself.

mod daemon;
mod desk;
mod hyperqueue;
mod hyperqueue_package;
mod limit;
mod ours;
mod python;
mod shell;
mod spooler;

use self::{
    desk::{Desk, Work},
    hyperqueue::HyperQueue,
    hyperqueue_package::HyperQueuePackage,
    ours::Ours,
    python::Team,
    spooler::Spooler,
};
use super::{
    Place,
    contest::{Better, Contest},
    measure::Bench,
};

/// How many tasks everybody runs at once.
const SLOTS: &str = "2";
const XARGS: &str = "xargs -P2";
const XARGS_SH: &str = "xargs -P2 sh -c";
const HYPERQUEUE: &str = "HyperQueue";
const PARALLEL: &str = "GNU Parallel";
const SPOOLER: &str = "task-spooler";
const CELERY: &str = "Celery";
const RQ: &str = "RQ";
const LIMIT: &str = "spawn limit";
const NOTE: &str = "two at a time; ours is durable: submissions and results are on disk before they are acknowledged; \
    Celery (acknowledging late) and RQ keep theirs in a Redis with appendfsync always, and the start of their Python does \
    not count; the others sync nothing, HyperQueue keeps no journal and nothing of what tasks write; slow peers do fewer \
    tasks: the rate is compared; the limit is two threads that start processes and wait for them, without a shell";

/// How many tasks each does.
#[derive(Clone, Copy)]
struct Counts {
    all: usize,
    slow: usize,
    slowest: usize,
}

pub(crate) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    // Dropped last: everybody works in its directory.
    let desk = Desk::new(&place.bin)?;
    let ours = Ours::start(&desk);
    let peers = Peers::start(bench, place, &desk);
    let counts = Counts {
        all: bench.scaled(10_000, 1_000),
        slow: bench.scaled(1_000, 200),
        slowest: bench.scaled(200, 30),
    };
    for work in [Work::True, Work::Count] {
        let title = format!("{} × {}", counts.all, work.name());
        if !bench.wants(&title) {
            continue;
        }
        let contest = Contest::new(title, "tasks/s", Better::More)
            .noting(NOTE)
            .with("agx, agq, agw", || ours.run(&desk, work, counts.all));
        bench.hold("tasks", peers.beside(contest, work, counts, &desk))?;
    }
    Ok(())
}

/// Runs tasks on all three programs, so that instrumented ones record their profile.
pub(crate) fn pgo_workload(bin: &std::path::Path) -> anyhow::Result<()> {
    let desk = Desk::new(bin)?;
    let ours = Ours::start(&desk);
    ours.run(&desk, Work::True, 6_000)?;
    ours.run(&desk, Work::Count, 2_000)?;
    ours.stop()
}

/// A HyperQueue, wherever it is from.
enum AnyHyperQueue {
    /// The program that somebody has named.
    Program(HyperQueue),
    /// Else the one that pip has.
    Package(HyperQueuePackage),
}

impl AnyHyperQueue {
    fn start(bench: &mut Bench, place: &Place, desk: &Desk) -> Option<Self> {
        if let Some(hq) = bench.hq.clone() {
            return noted(bench, HYPERQUEUE, HyperQueue::start(hq, desk)).map(Self::Program);
        }
        let packages = python::packages(&mut bench.report, &place.tools, &python::HYPERQUEUE)?;
        noted(bench, HYPERQUEUE, HyperQueuePackage::start(packages, desk)).map(Self::Package)
    }

    fn run(&self, desk: &Desk, work: Work, count: usize) -> anyhow::Result<f64> {
        match self {
            Self::Program(program) => program.run(desk, work, count),
            Self::Package(package) => package.run(desk, work, count),
        }
    }
}

/// Those who are measured beside us, as far as they are here.
struct Peers {
    has_parallel: bool,
    spooler: Option<Spooler>,
    hyperqueue: Option<AnyHyperQueue>,
    celery: Option<Team>,
    rq: Option<Team>,
}

impl Peers {
    /// Installs what is missing, starts what has to be there beforehand, and names who cannot take part.
    fn start(bench: &mut Bench, place: &Place, desk: &Desk) -> Self {
        let packages = python::packages(&mut bench.report, &place.tools, &python::QUEUES);
        let packages = packages.as_deref();
        Self {
            has_parallel: shell::has_parallel(&mut bench.report),
            spooler: Spooler::is_there(&mut bench.report)
                .then(|| Spooler::start(desk))
                .and_then(|started| noted(bench, SPOOLER, started)),
            hyperqueue: AnyHyperQueue::start(bench, place, desk),
            celery: packages
                .and_then(|packages| noted(bench, CELERY, Team::celery(packages, &place.tools, desk))),
            rq: packages.and_then(|packages| noted(bench, RQ, Team::rq(packages, &place.tools, desk))),
        }
    }

    /// The contest with all of them in it, and what is owed to whom.
    fn beside<'a>(
        &'a self,
        mut contest: Contest<'a>,
        work: Work,
        Counts { all, slow, slowest }: Counts,
        desk: &'a Desk,
    ) -> Contest<'a> {
        contest = match work {
            Work::True => contest
                .with(XARGS, move || shell::xargs(desk, work, all))
                .against(XARGS, 1.0, 1.15)
                .against(HYPERQUEUE, 2.0, 2.5)
                .against(PARALLEL, 5.0, 6.0)
                .against(LIMIT, 0.6, 0.68),
            Work::Count => contest
                .with(XARGS_SH, move || shell::xargs(desk, work, all))
                .against(XARGS_SH, 1.15, 1.3)
                .against(HYPERQUEUE, 1.6, 2.0)
                .against(LIMIT, 0.75, 0.87),
        };
        if let Some(hyperqueue) = &self.hyperqueue {
            contest = contest.with(HYPERQUEUE, move || hyperqueue.run(desk, work, all));
        }
        if self.has_parallel {
            contest = contest.with(PARALLEL, move || shell::parallel(desk, work, slow));
        }
        if let Some(spooler) = &self.spooler {
            contest = contest.with(SPOOLER, move || spooler.run(desk, work, slow));
        }
        if let Some(celery) = &self.celery {
            contest = contest.with(CELERY, move || celery.run(desk, work, slow));
        }
        if let Some(rq) = &self.rq {
            contest = contest.with(RQ, move || rq.run(desk, work, slowest));
        }
        contest.with(LIMIT, move || limit::run(desk, work, all))
    }
}

/// What was started; what was not is named.
fn noted<T>(bench: &mut Bench, name: &str, started: anyhow::Result<T>) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(error) => {
            bench.skip(name, &format!("{error:#}"));
            None
        }
    }
}
