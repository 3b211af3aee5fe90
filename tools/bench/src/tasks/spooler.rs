//! task-spooler as a contender: each `tsp` talks to a server, and each waiting task has a `tsp` in
//! the background.

use std::{
    cell::Cell,
    path::PathBuf,
    process::{Command, Stdio},
};

use agenix_harness::{report::RunReport, tools};
use anyhow::{Context, ensure};

use super::{
    SLOTS, SPOOLER,
    workspace::{TaskKind, Workspace},
};

pub(super) struct Spooler {
    directory: PathBuf,
    /// Number of tasks so far, which the server numbers from 0.
    tasks: Cell<usize>,
}

impl Spooler {
    /// Installs a missing task-spooler. Returns true if task-spooler is there.
    pub(super) fn is_installed(report: &mut RunReport) -> bool {
        tools::on_path("tsp").is_some() || tools::debian_package(report, "tsp", SPOOLER)
    }

    pub(super) fn start(workspace: &Workspace) -> anyhow::Result<Self> {
        let spooler = Self { directory: workspace.lab.path().to_owned(), tasks: Cell::new(0) };
        // The first command starts the server.
        spooler.tsp(&["-S", SLOTS])?;
        Ok(spooler)
    }

    pub(super) fn run(&self, workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
        self.tsp(&["-C"])?;
        // The tasks append to the file by its name.
        drop(workspace.results_file()?);
        let line = workspace.appending_line();
        workspace.rate(work, count, || {
            for number in 0..count {
                match work {
                    TaskKind::True => self.tsp(&["-n", "true", &workspace.argument(work, number)])?,
                    TaskKind::Count => self.tsp(&["-n", "sh", "-c", &line])?,
                }
            }
            let first = self.tasks.replace(self.tasks.get() + count);
            // Two tasks run at once, so the last three include the one that ends last.
            for number in (first..first + count).rev().take(3) {
                self.tsp(&["-w", &number.to_string()])?;
            }
            Ok(())
        })
    }

    fn tsp(&self, args: &[&str]) -> anyhow::Result<()> {
        let status = self.command(args).status().context("tsp cannot be started")?;
        ensure!(status.success(), "tsp {} ended with {status}", args.join(" "));
        Ok(())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut tsp = Command::new("tsp");
        tsp.args(args)
            .env("TS_SOCKET", self.directory.join("spooler"))
            .env("TMPDIR", &self.directory)
            .current_dir(&self.directory)
            // The server and background processes would keep a pipe open.
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        tsp
    }
}

impl Drop for Spooler {
    fn drop(&mut self) {
        // The server is not a child of this process, so a command has to end it.
        let _ended = self.command(&["-K"]).status();
    }
}
