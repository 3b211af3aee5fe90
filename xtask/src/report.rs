//! Steps, how long they took, and what was left out, in the last lines of a run.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// What was done and what was not.
#[derive(Default)]
pub(crate) struct Report {
    steps: Vec<(String, Duration)>,
    skipped: Vec<String>,
    installed: Vec<String>,
}

impl Report {
    /// Does a step; an error ends the run.
    pub(crate) fn step(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        println!("\n=== {name}");
        let started = Instant::now();
        work(self).with_context(|| format!("{name} failed"))?;
        self.steps.push((name.to_owned(), started.elapsed()));
        Ok(())
    }

    /// Notes that something was left out, and why.
    pub(crate) fn skip(&mut self, what: &str, why: &str) {
        println!("SKIPPED {what}: {why}");
        self.skipped.push(format!("{what}: {why}"));
    }

    /// Notes that something was installed.
    pub(crate) fn installed(&mut self, what: &str) {
        self.installed.push(what.to_owned());
    }

    /// The last lines.
    pub(crate) fn print(&self) {
        println!();
        for (name, took) in &self.steps {
            println!("{:>7.1} s  {name}", took.as_secs_f64());
        }
        for what in &self.installed {
            println!("INSTALLED {what}");
        }
        for what in &self.skipped {
            println!("SKIPPED {what}");
        }
        let skipped =
            if self.skipped.is_empty() { "nothing was skipped" } else { "see what was skipped above" };
        println!("all steps passed; {skipped}");
    }
}

/// Runs a command to its end, its output shown; anything but success is an error.
pub(crate) fn must(command: &mut Command) -> anyhow::Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown} ended with {status}");
    }
    Ok(())
}

/// `cargo` with arguments.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// The repository.
pub(crate) fn root() -> &'static std::path::Path {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
