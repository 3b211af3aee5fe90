//! HyperQueue from its Python package, with a server without a journal and a worker with two
//! processors. The server always listens on all interfaces. So it gets a network namespace with
//! loopback only.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use agenix_harness::report::root;
use anyhow::{Context, ensure};

use super::{
    python,
    workspace::{TaskKind, Workspace},
};

/// Script that enters the namespace. The host name has to resolve, because the client connects by
/// it.
const ALONE: &str = r#"ip link set lo up && hostname localhost && exec "$@""#;

pub(super) struct HyperQueuePackage {
    packages: PathBuf,
}

impl HyperQueuePackage {
    /// Runs one task, to check that the package works.
    pub(super) fn start(packages: PathBuf, workspace: &Workspace) -> anyhow::Result<Self> {
        let package = Self { packages };
        package.run(workspace, TaskKind::True, 1)?;
        Ok(package)
    }

    pub(super) fn run(&self, workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
        // The tasks append to the file by its name, because files of HyperQueue itself would cost
        // more.
        drop(workspace.results_file()?);
        let mut run = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            run.arg("--map-root-user");
        }
        run.args(["--net", "--uts", "sh", "-c", ALONE, "sh", "python3"])
            .arg(root().join("tools/bench/assets/python/hyperqueue_run.py"))
            .arg(count.to_string())
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(workspace.lab.path())
            .stdin(Stdio::null());
        match work {
            TaskKind::True => run.args(["true", "word"]),
            TaskKind::Count => run.args(["sh", "-c", &workspace.appending_line()]),
        };
        let output = run.output().context("cannot start unshare, which makes the network namespace")?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{}",
            why.trim().lines().last().unwrap_or("hyperqueue_run.py failed")
        );
        // The script runs one more task to warm up.
        workspace.check(work, count + 1, usize::try_from(fs::metadata(workspace.results_path())?.len())?)?;
        python::rate(count, &output.stdout)
    }
}
