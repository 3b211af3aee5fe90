//! task-spooler: a server that every `tsp` talks to, and a `tsp` in the background for each task that waits.

use std::{
    cell::Cell,
    path::PathBuf,
    process::{Command, Stdio},
};

use agenix_harness::{report::Report, tools};
use anyhow::{Context, ensure};

use super::{
    SLOTS, SPOOLER,
    desk::{Desk, Work},
};

pub(super) struct Spooler {
    directory: PathBuf,
    /// How many tasks its server was given: it numbers them from 0.
    tasks: Cell<usize>,
}

impl Spooler {
    /// Whether it is installed in the end.
    pub(super) fn is_there(report: &mut Report) -> bool {
        tools::on_path("tsp").is_some() || tools::debian_package(report, "tsp", SPOOLER)
    }

    pub(super) fn start(desk: &Desk) -> anyhow::Result<Self> {
        let spooler = Self { directory: desk.lab.path().to_owned(), tasks: Cell::new(0) };
        // The first that is asked starts the server.
        spooler.ask(&["-S", SLOTS])?;
        Ok(spooler)
    }

    pub(super) fn run(&self, desk: &Desk, work: Work, count: usize) -> anyhow::Result<f64> {
        self.ask(&["-C"])?;
        // Dropped: the tasks write on it by its name.
        drop(desk.sheet()?);
        let line = desk.appending_line();
        desk.rate(work, count, || {
            for number in 0..count {
                match work {
                    Work::True => self.ask(&["-n", "true", &desk.argument(work, number)])?,
                    Work::Count => self.ask(&["-n", "sh", "-c", &line])?,
                }
            }
            let first = self.tasks.replace(self.tasks.get() + count);
            // They end almost in the order in which they began.
            for number in (first..first + count).rev().take(3) {
                self.ask(&["-w", &number.to_string()])?;
            }
            Ok(())
        })
    }

    fn ask(&self, args: &[&str]) -> anyhow::Result<()> {
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
            // Its server and its background would keep a pipe open.
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        tsp
    }
}

impl Drop for Spooler {
    fn drop(&mut self) {
        // The server is no child of ours: it is asked to end.
        let _asked = self.command(&["-K"]).status();
    }
}
