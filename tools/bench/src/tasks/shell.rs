//! What people use in a shell: xargs and GNU Parallel.

use std::{fs::File, path::Path, process::Command};

use agenix_harness::{report::Report, tools};
use anyhow::{Context, ensure};

use super::{
    SLOTS,
    desk::{Desk, Work},
};

pub(super) fn xargs(desk: &Desk, work: Work, count: usize) -> anyhow::Result<f64> {
    let mut xargs = Command::new("xargs");
    xargs.args(["-P", SLOTS]);
    match work {
        Work::True => xargs.args(["-n1", "true"]),
        Work::Count => xargs.args(["-I{}", "sh", "-c", "sort {} | uniq -c"]),
    };
    fed(&mut xargs, desk, work, count)
}

/// Whether GNU Parallel is there in the end; another program of that name is another program.
pub(super) fn has_parallel(report: &mut Report) -> bool {
    if !tools::debian_program(report, "parallel", "parallel") {
        return false;
    }
    let said = Command::new("parallel").arg("--version").output();
    let is_gnu = said.is_ok_and(|output| output.stdout.starts_with(b"GNU parallel"));
    if !is_gnu {
        report.skip("GNU Parallel", "the `parallel` on PATH is another one");
    }
    is_gnu
}

pub(super) fn parallel(desk: &Desk, work: Work, count: usize) -> anyhow::Result<f64> {
    let mut parallel = Command::new("parallel");
    // Its own directory would be in the user's home.
    parallel.env("PARALLEL_HOME", desk.lab.path()).args(["--will-cite", "-j", SLOTS]);
    match work {
        Work::True => parallel.args(["true", "{}"]),
        Work::Count => parallel.arg("sort {} | uniq -c"),
    };
    fed(&mut parallel, desk, work, count)
}

/// Gives a command the list of tasks, and the sheet to write on.
fn fed(command: &mut Command, desk: &Desk, work: Work, count: usize) -> anyhow::Result<f64> {
    let name = Path::new(command.get_program()).display().to_string();
    let list = File::open(desk.list(work, count)?)?;
    command.current_dir(desk.lab.path()).stdin(list).stdout(desk.sheet()?);
    desk.rate(work, count, || {
        let status = command.status().with_context(|| format!("{name} cannot be started"))?;
        ensure!(status.success(), "{name} ended with {status}");
        Ok(())
    })
}
