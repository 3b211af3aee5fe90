//! xargs and GNU Parallel as contenders.

use std::{fs::File, path::Path, process::Command};

use agenix_harness::{report::RunReport, tools};
use anyhow::{Context, ensure};

use super::{
    SLOTS,
    workspace::{TaskKind, Workspace},
};

/// A read-only system with namespaces of its own, which ends with its parent.
const BUBBLEWRAP: [&str; 8] =
    ["--ro-bind", "/", "/", "--proc", "/proc", "--unshare-all", "--die-with-parent", "--new-session"];

pub(super) fn xargs(workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
    let mut xargs = Command::new("xargs");
    xargs.args(["-P", SLOTS]);
    match work {
        TaskKind::True => xargs.args(["-n1", "true"]),
        TaskKind::Count => xargs.args(["-I{}", "sh", "-c", "sort {} | uniq -c"]),
    };
    run(&mut xargs, workspace, work, count)
}

/// Returns true if bubblewrap is installed, and can make its sandbox here.
pub(super) fn has_bubblewrap(report: &mut RunReport) -> bool {
    if !tools::debian_program(report, "bwrap", "bubblewrap") {
        return false;
    }
    let works =
        Command::new("bwrap").args(BUBBLEWRAP).arg("true").status().is_ok_and(|status| status.success());
    if !works {
        report.skip("bubblewrap", "it cannot make its namespaces here");
    }
    works
}

/// Runs each task in a bubblewrap of its own, without the network.
pub(super) fn bubblewrap(workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
    let mut xargs = Command::new("xargs");
    xargs.args(["-P", SLOTS]);
    match work {
        TaskKind::True => xargs.args(["-n1", "bwrap"]).args(BUBBLEWRAP).arg("true"),
        TaskKind::Count => {
            xargs.args(["-I{}", "bwrap"]).args(BUBBLEWRAP).args(["sh", "-c", "sort {} | uniq -c"])
        }
    };
    run(&mut xargs, workspace, work, count)
}

/// Returns true if GNU Parallel is installed. moreutils has another program of the same name.
pub(super) fn has_parallel(report: &mut RunReport) -> bool {
    if !tools::debian_program(report, "parallel", "parallel") {
        return false;
    }
    let version = Command::new("parallel").arg("--version").output();
    let is_gnu = version.is_ok_and(|output| output.stdout.starts_with(b"GNU parallel"));
    if !is_gnu {
        report.skip("GNU Parallel", "the `parallel` on PATH is another one");
    }
    is_gnu
}

pub(super) fn parallel(workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
    let mut parallel = Command::new("parallel");
    // The default directory of GNU Parallel is in the home of the user.
    parallel.env("PARALLEL_HOME", workspace.lab.path()).args(["--will-cite", "-j", SLOTS]);
    match work {
        TaskKind::True => parallel.args(["true", "{}"]),
        TaskKind::Count => parallel.arg("sort {} | uniq -c"),
    };
    run(&mut parallel, workspace, work, count)
}

/// Runs a command with the list of tasks as stdin, and the file of results as stdout.
pub(super) fn run(
    command: &mut Command,
    workspace: &Workspace,
    work: TaskKind,
    count: usize,
) -> anyhow::Result<f64> {
    let name = Path::new(command.get_program()).display().to_string();
    let list = File::open(workspace.list(work, count)?)?;
    command.current_dir(workspace.lab.path()).stdin(list).stdout(workspace.results_file()?);
    workspace.rate(work, count, || {
        let status = command.status().with_context(|| format!("{name} cannot be started"))?;
        ensure!(status.success(), "{name} ended with {status}");
        Ok(())
    })
}
