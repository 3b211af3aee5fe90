//! AGEniX as a contender: an agq and a worker with two slots are idle, and agx is measured from its
//! start until it has the last result.

use std::{cell::Cell, process::Stdio, time::Instant};

use anyhow::ensure;
use e2e::{Agq, Agw};

use super::{
    SLOTS,
    workspace::{TaskKind, Workspace},
};
use crate::measure::per_second;

/// The benchmark sends commands as fast as it can.
const AGQ: [&str; 2] = ["--max-commands-per-second", "0"];
const PLANS: [&str; 2] = [
    r#"{"plan_id":"true","tasks":[{"task_number":1,"command":"true","args":["{{input.line}}"]}]}"#,
    r#"{"plan_id":"sort_uniq","tasks":[
        {"task_number":1,"command":"sort","args":["{{input.line}}"]},
        {"task_number":2,"command":"uniq","args":["-c"],"input_from_task":1,"stream":true}]}"#,
];

pub(super) struct Agenix {
    agw: Agw,
    agq: Agq,
    actions: Cell<usize>,
}

impl Agenix {
    pub(super) fn start(workspace: &Workspace) -> Self {
        Self::with(workspace, "worker", &[])
    }

    /// Starts a worker that runs all tasks in the sandbox profile `reader`. The tasks read the
    /// workspace.
    pub(super) fn start_sandboxed(workspace: &Workspace) -> Self {
        let readable = workspace.lab.path().display().to_string();
        Self::with(workspace, "sandboxed", &["--sandbox", "reader", "--sandbox-read", &readable])
    }

    fn with(workspace: &Workspace, id: &str, options: &[&str]) -> Self {
        let agq = workspace.lab.agq(&AGQ);
        for plan in PLANS {
            workspace.lab.submit_plan(&agq, plan);
        }
        // The key is in a file, as with `agx up` and in the package, instead of in the environment.
        let key = workspace.lab.file("session.key", workspace.lab.key());
        let mut agw = workspace.lab.command("agw");
        agw.env_remove("AGQ_SESSION_KEY").env("AGQ_ADDR", agq.address()).arg("--session-key-file").arg(key);
        agw.args(["--max-concurrent-jobs", SLOTS]).args(options);
        let agw = workspace.lab.agw_by(id, agw);
        Self { agw, agq, actions: Cell::new(0) }
    }

    /// Ends agq and the worker with SIGTERM, so that both exit by themselves.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.agw.terminate();
        for (name, status) in [("agw", self.agw.wait()), ("agq", self.agq.stop())] {
            ensure!(status.success(), "{name} ended with {status}");
        }
        Ok(())
    }

    pub(super) fn run(&self, workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
        let list = workspace.list(work, count)?.display().to_string();
        let action = format!("action-{}", self.actions.replace(self.actions.get() + 1));
        let mut agx = workspace.lab.command("agx");
        agx.env("AGQ_ADDR", self.agq.address())
            .args(["action", "submit", work.id(), "--lines", &list, "--id", &action, "--wait"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let started = Instant::now();
        let output = agx.output()?;
        let took = started.elapsed();
        ensure!(output.status.success(), "agx: {}", String::from_utf8_lossy(&output.stderr).trim());
        let results = workspace.lab.agx(&self.agq, &["action", "results", &action]);
        ensure!(results.code == 0, "agx action results: {}", results.err.trim());
        workspace.check(work, count, results.out.len())?;
        Ok(per_second(count, took))
    }
}
