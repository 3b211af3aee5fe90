//! A server that someone needs who is measured, in a process group of its own: the whole group is killed when it is dropped.

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

use super::desk::Desk;

/// How long a server may take to be there.
const START: Duration = Duration::from_secs(30);

pub(super) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it in the desk's directory; what it says goes into a file there.
    pub(super) fn start(name: &str, desk: &Desk, mut command: Command) -> anyhow::Result<Self> {
        let log = desk.lab.path().join(format!("{name}.log"));
        let out = File::create(&log)?;
        let child = command
            .current_dir(desk.lab.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("{name} cannot be started"))?;
        Ok(Self { child, log })
    }

    /// Waits until it is there; the error has its last words.
    pub(super) fn wait(&self, is_there: impl Fn() -> bool) -> anyhow::Result<()> {
        let is_there = within(START, || is_there().then_some(())).is_some();
        ensure!(is_there, "it was not there within {} s: {}", START.as_secs(), self.last_words());
        Ok(())
    }

    fn last_words(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        said.trim_end().lines().last().unwrap_or("it said nothing").to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended already, with all that it started.
            let _ended = kill_process_group(group, Signal::KILL);
        }
        let _ended = self.child.wait();
    }
}
