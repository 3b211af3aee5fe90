//! HyperQueue: a server without a journal and a worker with two processors, both idle; measured is `hq submit --wait`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{
    HYPERQUEUE, SLOTS,
    daemon::Daemon,
    desk::{Desk, Work},
};

pub(super) struct HyperQueue {
    // The first to be dropped.
    _worker: Daemon,
    _server: Daemon,
    hq: PathBuf,
    directory: PathBuf,
}

impl HyperQueue {
    pub(super) fn start(hq: PathBuf, desk: &Desk) -> anyhow::Result<Self> {
        let directory = desk.lab.path().join("hq");
        // It listens wherever it likes, behind keys that it makes; we talk to it on this machine.
        let mut server = command(&hq, &directory);
        server.args(["server", "start", "--host", "127.0.0.1"]);
        let server = Daemon::start("hq-server", desk, server)?;
        server.wait(|| {
            let asked = command(&hq, &directory).args(["server", "info"]).output();
            asked.is_ok_and(|output| output.status.success())
        })?;
        let mut worker = command(&hq, &directory);
        worker.args(["worker", "start", "--cpus", SLOTS]);
        let worker = Daemon::start("hq-worker", desk, worker)?;
        worker.wait(|| {
            let listed = command(&hq, &directory).args(["--output-mode", "json", "worker", "list"]).output();
            let workers = listed.ok().and_then(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
            workers.is_some_and(|workers| workers.as_array().is_some_and(|workers| !workers.is_empty()))
        })?;
        Ok(Self { _worker: worker, _server: server, hq, directory })
    }

    pub(super) fn run(&self, desk: &Desk, work: Work, count: usize) -> anyhow::Result<f64> {
        // Dropped: the tasks write on it by its name. Files of HyperQueue's own would cost it more.
        drop(desk.sheet()?);
        let mut submit = command(&self.hq, &self.directory);
        submit
            .args(["--output-mode", "quiet", "submit", "--array", &format!("1-{count}")])
            .args(["--stdout", "none", "--stderr", "none", "--wait", "--"])
            .current_dir(desk.lab.path());
        match work {
            Work::True => submit.args(["true", "word"]),
            Work::Count => submit.args(["sh", "-c", &desk.appending_line()]),
        };
        desk.rate(work, count, || {
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
