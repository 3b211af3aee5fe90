//! A server of a contender, in its own process group. The drop kills the whole group.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use e2e::within;
use rustix::process::{Pid, Signal, kill_process_group};

use super::workspace::Workspace;

/// Time within which a server has to be ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

pub(super) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts the command in the directory of the workspace, with a log there.
    pub(super) fn start(name: &str, workspace: &Workspace, mut command: Command) -> anyhow::Result<Self> {
        let log = workspace.lab.path().join(format!("{name}.log"));
        let out = File::create(&log)?;
        let child = command
            .current_dir(workspace.lab.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("{name} cannot be started"))?;
        Ok(Self { child, log })
    }

    /// Waits until `is_ready` returns true. The error has the last line of the log.
    pub(super) fn wait(&self, is_ready: impl Fn() -> bool) -> anyhow::Result<()> {
        let is_ready = within(READY_WITHIN, || is_ready().then_some(())).is_some();
        ensure!(is_ready, "it was not ready within {} s: {}", READY_WITHIN.as_secs(), self.last_line());
        Ok(())
    }

    fn last_line(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.trim_end().lines().last().unwrap_or("its log is empty").to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // The group may have exited already.
            let _ended = kill_process_group(group, Signal::KILL);
        }
        let _ended = self.child.wait();
    }
}
