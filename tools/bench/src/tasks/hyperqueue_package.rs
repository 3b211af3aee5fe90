//! HyperQueue as pip has it: its Python package holds the whole of it, a server without a journal and a worker with two processors.
//! It listens on every interface, whatever one says; so it gets a network of its own, which has the loopback and nothing else.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use agenix_harness::report::root;
use anyhow::{Context, ensure};

use super::{
    desk::{Desk, Work},
    python,
};

/// It finds itself by the name of its host.
const ALONE: &str = r#"ip link set lo up && hostname localhost && exec "$@""#;

pub(super) struct HyperQueuePackage {
    packages: PathBuf,
}

impl HyperQueuePackage {
    /// Has it do a task.
    pub(super) fn start(packages: PathBuf, desk: &Desk) -> anyhow::Result<Self> {
        let package = Self { packages };
        package.run(desk, Work::True, 1)?;
        Ok(package)
    }

    pub(super) fn run(&self, desk: &Desk, work: Work, count: usize) -> anyhow::Result<f64> {
        // Dropped: the tasks write on it by its name. Files of HyperQueue's own would cost it more.
        drop(desk.sheet()?);
        let mut run = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            run.arg("--map-root-user");
        }
        run.args(["--net", "--uts", "sh", "-c", ALONE, "sh", "python3"])
            .arg(root().join("tools/bench/assets/python/hyperqueue_run.py"))
            .arg(count.to_string())
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(desk.lab.path())
            .stdin(Stdio::null());
        match work {
            Work::True => run.args(["true", "word"]),
            Work::Count => run.args(["sh", "-c", &desk.appending_line()]),
        };
        let output = run.output().context("there is no unshare to give it a network of its own")?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{}",
            why.trim().lines().last().unwrap_or("hyperqueue_run.py failed")
        );
        // One more than was asked for: it warms up.
        desk.check(work, count + 1, usize::try_from(fs::metadata(desk.sheet_path())?.len())?)?;
        python::rate(count, &output.stdout)
    }
}
