//! Section `sandbox`: the same tasks in the sandbox of agw, on a worker without a sandbox, and in a
//! bubblewrap for each task.

use super::{
    agenix::Agenix,
    shell,
    workspace::{TaskKind, Workspace},
};
use crate::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    measure::Bench,
};

const PLAIN: &str = "without a sandbox";
const BUBBLEWRAP: &str = "xargs -P2 bwrap";
const NOTE: &str = "two at a time; without a sandbox is another worker of the same kind; bubblewrap makes a \
    sandbox for each task, and runs fewer tasks";

pub(crate) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    // The workspaces are dropped last, because the contenders work in their directories.
    let (workspace, readable) = (Workspace::new(&programs.bin)?, Workspace::new(&programs.bin)?);
    readable.permit_others()?;
    let (plain, sandboxed) = (Agenix::start(&workspace), Agenix::start_sandboxed(&readable));
    let has_bubblewrap = shell::has_bubblewrap(&mut bench.report);
    let (all, slow) = (bench.scaled(10_000, 1_000), bench.scaled(1_000, 200));
    for (work, floor, aim) in [(TaskKind::True, 0.9, 0.95), (TaskKind::Count, 0.95, 1.0)] {
        let title = format!("{all} × {}, sandboxed", work.name());
        if !bench.wants(&title) {
            continue;
        }
        let mut comparison = ContenderComparison::new(title, "tasks/s", Better::More)
            .with_note(NOTE)
            .with("agx, agq, agw --sandbox reader", || sandboxed.run(&readable, work, all))
            .with(PLAIN, || plain.run(&workspace, work, all))
            .with_goal(PLAIN, floor, aim);
        if has_bubblewrap {
            comparison = comparison
                .with(BUBBLEWRAP, || shell::bubblewrap(&workspace, work, slow))
                .with_goal(BUBBLEWRAP, 5.0, 10.0);
        }
        bench.compare("sandbox", comparison)?;
    }
    Ok(())
}
