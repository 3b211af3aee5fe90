//! HyperQueue as a contender: a server without a journal and a worker with two processors are idle,
//! and `hq submit --wait` is measured.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{
    HYPERQUEUE, SLOTS,
    daemon::Daemon,
    workspace::{TaskKind, Workspace},
};

pub(super) struct HyperQueue {
    // The worker is dropped first.
    _worker: Daemon,
    _server: Daemon,
    hq: PathBuf,
    directory: PathBuf,
}

impl HyperQueue {
    pub(super) fn start(hq: PathBuf, workspace: &Workspace) -> anyhow::Result<Self> {
        let directory = workspace.lab.path().join("hq");
        // The server listens on all interfaces, and generates keys. The client connects over
        // loopback.
        let mut server = command(&hq, &directory);
        server.args(["server", "start", "--host", "127.0.0.1"]);
        let server = Daemon::start("hq-server", workspace, server)?;
        server.wait(|| {
            let info = command(&hq, &directory).args(["server", "info"]).output();
            info.is_ok_and(|output| output.status.success())
        })?;
        let mut worker = command(&hq, &directory);
        worker.args(["worker", "start", "--cpus", SLOTS]);
        let worker = Daemon::start("hq-worker", workspace, worker)?;
        worker.wait(|| {
            let listed = command(&hq, &directory).args(["--output-mode", "json", "worker", "list"]).output();
            let workers = listed.ok().and_then(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
            workers.is_some_and(|workers| workers.as_array().is_some_and(|workers| !workers.is_empty()))
        })?;
        Ok(Self { _worker: worker, _server: server, hq, directory })
    }

    pub(super) fn run(&self, workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
        // The tasks append to the file by its name, because files of HyperQueue itself would cost
        // more.
        drop(workspace.results_file()?);
        let mut submit = command(&self.hq, &self.directory);
        submit
            .args(["--output-mode", "quiet", "submit", "--array", &format!("1-{count}")])
            .args(["--stdout", "none", "--stderr", "none", "--wait", "--"])
            .current_dir(workspace.lab.path());
        match work {
            TaskKind::True => submit.args(["true", "word"]),
            TaskKind::Count => submit.args(["sh", "-c", &workspace.appending_line()]),
        };
        workspace.rate(work, count, || {
            let output = submit.output().with_context(|| format!("{HYPERQUEUE} cannot be started"))?;
            ensure!(output.status.success(), "hq: {}", String::from_utf8_lossy(&output.stderr).trim());
            Ok(())
        })
    }
}

fn command(hq: &Path, directory: &Path) -> Command {
    let mut command = Command::new(hq);
    command.arg("--server-dir").arg(directory).stdin(Stdio::null());
    command
}
