//! Section `tasks`: runs thousands of `true` and of `sort FILE | uniq -c`, from the submission to
//! the last result. AGEniX is compared with other tools that run processes, and with a plain loop
//! of spawns.

mod agenix;
mod daemon;
mod hyperqueue;
mod hyperqueue_package;
mod hypershell;
mod jobd;
mod limit;
mod python;
pub(crate) mod sandbox;
mod shell;
mod spooler;
mod workspace;

use self::{
    agenix::Agenix,
    hyperqueue::HyperQueue,
    hyperqueue_package::HyperQueuePackage,
    hypershell::HyperShell,
    jobd::Jobd,
    python::Team,
    spooler::Spooler,
    workspace::{TaskKind, Workspace},
};
use super::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    measure::Bench,
};

/// Number of tasks that each contender runs at once.
const SLOTS: &str = "2";
const XARGS: &str = "xargs -P2";
const XARGS_SH: &str = "xargs -P2 sh -c";
const HYPERQUEUE: &str = "HyperQueue";
const HYPERSHELL: &str = "HyperShell";
const JOBD: &str = "jobd";
const PARALLEL: &str = "GNU Parallel";
const SPOOLER: &str = "task-spooler";
const CELERY: &str = "Celery";
const RQ: &str = "RQ";
const LIMIT: &str = "spawn limit";
const NOTE: &str = "two at a time; AGEniX is durable: submissions and results are on disk before the \
    acknowledgement; Celery (late acknowledgement) and RQ store tasks in a Redis with appendfsync always, \
    and the start of Python is not measured; the others sync nothing, and HyperQueue runs without a \
    journal and stores no output of tasks; HyperShell runs without its database and without TLS, and its start is \
    measured; jobd stores tasks in SQLite, and its workers ask for one task after the other; slow peers run fewer tasks, and rates are compared; the spawn \
    limit is two threads that start processes and wait for them, without a shell";

/// Numbers of tasks, by the speed of the contender.
#[derive(Clone, Copy)]
struct TaskCounts {
    all: usize,
    slow: usize,
    slowest: usize,
    /// Tasks of jobd, which begins two tasks a second.
    jobd: usize,
}

pub(crate) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    // The workspace is dropped last, because all contenders work in its directory.
    let workspace = Workspace::new(&programs.bin)?;
    let agenix = Agenix::start(&workspace);
    let peers = Peers::start(bench, programs, &workspace);
    let counts = TaskCounts {
        all: bench.scaled(10_000, 1_000),
        slow: bench.scaled(1_000, 200),
        slowest: bench.scaled(200, 30),
        jobd: 20,
    };
    for work in [TaskKind::True, TaskKind::Count] {
        let title = format!("{} × {}", counts.all, work.name());
        if !bench.wants(&title) {
            continue;
        }
        let comparison = ContenderComparison::new(title, "tasks/s", Better::More)
            .with_note(NOTE)
            .with("agx, agq, agw", || agenix.run(&workspace, work, counts.all));
        bench.compare("tasks", peers.add_to(comparison, work, counts, &workspace))?;
    }
    Ok(())
}

/// Runs tasks on all three programs, so that instrumented ones record their profile.
pub(crate) fn pgo_workload(bin: &std::path::Path) -> anyhow::Result<()> {
    let workspace = Workspace::new(bin)?;
    let agenix = Agenix::start(&workspace);
    agenix.run(&workspace, TaskKind::True, 6_000)?;
    agenix.run(&workspace, TaskKind::Count, 2_000)?;
    agenix.stop()
}

/// HyperQueue from one of two sources.
enum AnyHyperQueue {
    /// A program that the user named
    Program(HyperQueue),
    /// The Python package
    Package(HyperQueuePackage),
}

impl AnyHyperQueue {
    fn start(bench: &mut Bench, programs: &ProgramDirs, workspace: &Workspace) -> Option<Self> {
        if let Some(hq) = bench.hq.clone() {
            return started_or_skipped(bench, HYPERQUEUE, HyperQueue::start(hq, workspace))
                .map(Self::Program);
        }
        let packages = python::packages(&mut bench.report, &programs.tools, &python::HYPERQUEUE)?;
        started_or_skipped(bench, HYPERQUEUE, HyperQueuePackage::start(packages, workspace))
            .map(Self::Package)
    }

    fn run(&self, workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
        match self {
            Self::Program(program) => program.run(workspace, work, count),
            Self::Package(package) => package.run(workspace, work, count),
        }
    }
}

/// Contenders that could be started.
struct Peers {
    has_parallel: bool,
    spooler: Option<Spooler>,
    hyperqueue: Option<AnyHyperQueue>,
    hypershell: Option<HyperShell>,
    jobd: Option<Jobd>,
    celery: Option<Team>,
    rq: Option<Team>,
}

impl Peers {
    /// Installs missing programs, starts servers, and reports contenders that cannot take part.
    fn start(bench: &mut Bench, programs: &ProgramDirs, workspace: &Workspace) -> Self {
        let packages = python::packages(&mut bench.report, &programs.tools, &python::QUEUES);
        let packages = packages.as_deref();
        Self {
            has_parallel: shell::has_parallel(&mut bench.report),
            spooler: Spooler::is_installed(&mut bench.report)
                .then(|| Spooler::start(workspace))
                .and_then(|started| started_or_skipped(bench, SPOOLER, started)),
            hyperqueue: AnyHyperQueue::start(bench, programs, workspace),
            hypershell: python::packages(&mut bench.report, &programs.tools, &python::HYPERSHELL).and_then(
                |packages| started_or_skipped(bench, HYPERSHELL, HyperShell::start(&packages, workspace)),
            ),
            jobd: python::packages(&mut bench.report, &programs.tools, &python::JOBD)
                .and_then(|packages| started_or_skipped(bench, JOBD, Jobd::start(&packages, workspace))),
            celery: packages.and_then(|packages| {
                started_or_skipped(bench, CELERY, Team::celery(packages, &programs.tools, workspace))
            }),
            rq: packages.and_then(|packages| {
                started_or_skipped(bench, RQ, Team::rq(packages, &programs.tools, workspace))
            }),
        }
    }

    /// Adds all peers and the goals to a comparison.
    fn add_to<'a>(
        &'a self,
        mut comparison: ContenderComparison<'a>,
        work: TaskKind,
        TaskCounts { all, slow, slowest, jobd: of_jobd }: TaskCounts,
        workspace: &'a Workspace,
    ) -> ContenderComparison<'a> {
        comparison = match work {
            TaskKind::True => comparison
                .with(XARGS, move || shell::xargs(workspace, work, all))
                .with_goal(XARGS, 1.0, 1.15)
                .with_goal(HYPERQUEUE, 2.0, 2.5)
                .with_goal(PARALLEL, 5.0, 6.0)
                .with_goal(LIMIT, 0.6, 0.68),
            TaskKind::Count => comparison
                .with(XARGS_SH, move || shell::xargs(workspace, work, all))
                .with_goal(XARGS_SH, 1.15, 1.3)
                .with_goal(HYPERQUEUE, 1.6, 2.0)
                .with_goal(LIMIT, 0.75, 0.87),
        };
        if let Some(hyperqueue) = &self.hyperqueue {
            comparison = comparison.with(HYPERQUEUE, move || hyperqueue.run(workspace, work, all));
        }
        if let Some(hypershell) = &self.hypershell {
            comparison = comparison.with(HYPERSHELL, move || hypershell.run(workspace, work, all));
        }
        if self.has_parallel {
            comparison = comparison.with(PARALLEL, move || shell::parallel(workspace, work, slow));
        }
        if let Some(spooler) = &self.spooler {
            comparison = comparison.with(SPOOLER, move || spooler.run(workspace, work, slow));
        }
        if let Some(celery) = &self.celery {
            comparison = comparison.with(CELERY, move || celery.run(workspace, work, slow));
        }
        if let Some(rq) = &self.rq {
            comparison = comparison.with(RQ, move || rq.run(workspace, work, slowest));
        }
        if let Some(jobd) = &self.jobd {
            comparison = comparison.with(JOBD, move || jobd.run(workspace, work, of_jobd));
        }
        comparison.with(LIMIT, move || limit::run(workspace, work, all))
    }
}

/// Returns the started contender. A failure goes into the report.
fn started_or_skipped<T>(bench: &mut Bench, name: &str, started: anyhow::Result<T>) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(error) => {
            bench.skip(name, &format!("{error:#}"));
            None
        }
    }
}
