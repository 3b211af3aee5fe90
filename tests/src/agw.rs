//! Worker under test.

use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
};

use rustix::process::Signal;

use crate::{Agq, Lab, agq::signal, eventually};

/// A running agw, which the drop kills.
pub struct Agw {
    child: Child,
    log: PathBuf,
}

impl Agw {
    pub(crate) fn start(lab: &Lab, agq: &Agq, id: &str, args: &[&str]) -> Self {
        let mut command = lab.command("agw");
        command.env("AGQ_ADDR", agq.address()).args(args);
        Self::start_by(lab, id, command)
    }

    pub(crate) fn start_by(lab: &Lab, id: &str, mut command: Command) -> Self {
        let log = lab.path().join(format!("{id}.log"));
        let child = command
            .args(["--worker-id", id])
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("the log can be made"))
            .spawn()
            .expect("agw can be started");
        let agw = Self { child, log };
        eventually("the worker registers", || agw.log().contains("is registered").then_some(()));
        agw
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the worker with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Sends SIGTERM, and does not wait for the end.
    pub fn terminate(&self) {
        signal(&self.child, Signal::TERM);
    }

    /// Waits for the end of the worker, and returns its exit status.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("a child can be waited for")
    }
}

impl Drop for Agw {
    fn drop(&mut self) {
        // The worker may have ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
