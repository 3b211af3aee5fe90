//! Ours: an agq and one worker with two slots, idle; measured is agx, from its start until it knows the last result.

use std::{cell::Cell, process::Stdio, time::Instant};

use anyhow::ensure;
use e2e::{Agq, Agw};

use super::{
    SLOTS,
    desk::{Desk, Work},
};
use crate::measure::per_second;

/// We come as fast as we can.
const AGQ: [&str; 2] = ["--max-commands-per-second", "0"];
const PLANS: [&str; 2] = [
    r#"{"plan_id":"true","tasks":[{"task_number":1,"command":"true","args":["{{input.line}}"]}]}"#,
    r#"{"plan_id":"sort_uniq","tasks":[
        {"task_number":1,"command":"sort","args":["{{input.line}}"]},
        {"task_number":2,"command":"uniq","args":["-c"],"input_from_task":1,"stream":true}]}"#,
];

pub(super) struct Ours {
    agw: Agw,
    agq: Agq,
    actions: Cell<usize>,
}

impl Ours {
    pub(super) fn start(desk: &Desk) -> Self {
        let agq = desk.lab.agq(&AGQ);
        for plan in PLANS {
            desk.lab.submit_plan(&agq, plan);
        }
        // As `agx up` and the package start it: with its key in a file, and not in its environment.
        let key = desk.lab.file("session.key", desk.lab.key());
        let mut agw = desk.lab.command("agw");
        agw.env_remove("AGQ_SESSION_KEY").env("AGQ_ADDR", agq.address()).arg("--session-key-file").arg(key);
        agw.args(["--max-concurrent-jobs", SLOTS]);
        let agw = desk.lab.agw_by("worker", agw);
        Self { agw, agq, actions: Cell::new(0) }
    }

    /// Ends both as a person would.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.agw.terminate();
        for (name, status) in [("agw", self.agw.wait()), ("agq", self.agq.stop())] {
            ensure!(status.success(), "{name} ended with {status}");
        }
        Ok(())
    }

    pub(super) fn run(&self, desk: &Desk, work: Work, count: usize) -> anyhow::Result<f64> {
        let list = desk.list(work, count)?.display().to_string();
        let action = format!("action-{}", self.actions.replace(self.actions.get() + 1));
        let mut agx = desk.lab.command("agx");
        agx.env("AGQ_ADDR", self.agq.address())
            .args(["action", "submit", work.id(), "--lines", &list, "--id", &action, "--wait"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let started = Instant::now();
        let output = agx.output()?;
        let took = started.elapsed();
        ensure!(output.status.success(), "agx: {}", String::from_utf8_lossy(&output.stderr).trim());
        let results = desk.lab.agx(&self.agq, &["action", "results", &action]);
        ensure!(results.code == 0, "agx action results: {}", results.err.trim());
        desk.check(work, count, results.out.len())?;
        Ok(per_second(count, took))
    }
}
