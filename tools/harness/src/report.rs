//! Runs commands and steps, and reports at the end the time of each step, what was installed, and
//! what was skipped.

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::environment::is_set_by_cargo;

/// Environment variable with the file to which a command that runs below another one appends what
/// it has installed and skipped. The outer command shows these lines at its own end.
const INNER_REPORT: &str = "AGENIX_INNER_REPORT";
const INSTALLED: &str = "INSTALLED ";
const SKIPPED: &str = "SKIPPED ";

/// Steps that ran, tools that were installed, and checks that were skipped.
#[derive(Default)]
pub struct RunReport {
    steps: Vec<(String, Duration)>,
    skipped: Vec<String>,
    installed: Vec<String>,
}

impl RunReport {
    /// Runs a step and records its time. An error gets the name of the step.
    pub fn step(
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

    /// Prints and records that something was skipped, and why.
    pub fn skip(&mut self, subject: &str, why: &str) {
        println!("SKIPPED {subject}: {why}");
        let line = format!("{subject}: {why}");
        tell_outer(SKIPPED, &line);
        self.skipped.push(line);
    }

    /// Records that something was installed.
    pub fn installed(&mut self, tool: &str) {
        tell_outer(INSTALLED, tool);
        self.installed.push(tool.to_owned());
    }

    /// Runs a command as [`must`] does. Installed and skipped tools are added to this
    /// report.
    pub fn run(&mut self, command: &mut Command) -> anyhow::Result<()> {
        let lines = tempfile::NamedTempFile::new()?;
        let done = must(command.env(INNER_REPORT, lines.path()));
        self.add(&fs::read_to_string(lines.path())?);
        done
    }

    fn add(&mut self, lines: &str) {
        for line in lines.lines() {
            self.installed.extend(line.strip_prefix(INSTALLED).map(str::to_owned));
            self.skipped.extend(line.strip_prefix(SKIPPED).map(str::to_owned));
        }
    }

    /// Prints the time of each step, and everything that was installed or skipped.
    pub fn print(&self) {
        println!();
        for (name, took) in &self.steps {
            println!("{:>7.1} s  {name}", took.as_secs_f64());
        }
        for tool in &self.installed {
            println!("INSTALLED {tool}");
        }
        for line in &self.skipped {
            println!("SKIPPED {line}");
        }
        let skipped =
            if self.skipped.is_empty() { "nothing was skipped" } else { "see what was skipped above" };
        println!("all steps passed; {skipped}");
    }
}

/// Appends a line to the report of the command that runs this one, if there is one.
fn tell_outer(kind: &str, text: &str) {
    let Some(path) = std::env::var_os(INNER_REPORT) else { return };
    let appended =
        OpenOptions::new().append(true).open(&path).and_then(|mut file| writeln!(file, "{kind}{text}"));
    if let Err(error) = appended {
        println!("cannot write {}: {error}", path.display());
    }
}

/// Runs a command and waits for its end. The output is not captured.
///
/// # Errors
///
/// The command cannot be started, or does not exit with 0.
pub fn must(command: &mut Command) -> anyhow::Result<()> {
    let line = format!("{command:?}");
    let status = command.status().with_context(|| format!("cannot start {line}"))?;
    if !status.success() {
        bail!("{line} ended with {status}");
    }
    Ok(())
}

/// Returns a cargo command that runs in the repository, without the variables that an outer
/// `cargo run` has set. Build scripts, such as the one of ring, run again if those variables
/// change, and everything above them is then built again.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = cargo_anywhere();
    command.args(args).current_dir(root());
    command
}

fn cargo_anywhere() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_set_by_cargo(name)) {
        command.env_remove(name);
    }
    command
}

/// Returns the command that runs a program of `tools/`, which cargo builds if it has changed. The
/// program runs in the directory of this process, because `args` may have paths relative to it.
pub fn tool<A: AsRef<OsStr>>(program: &str, args: &[A]) -> Command {
    let mut command = cargo_anywhere();
    command.args(["run", "--quiet", "--locked", "--bin", program, "--manifest-path"]);
    command.arg(root().join("Cargo.toml")).arg("--").args(args);
    command
}

/// Returns the directory of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[cfg(test)]
mod tests {
    use super::{RunReport, cargo};

    #[test]
    fn report_takes_over_what_an_inner_command_installed_and_skipped() {
        let mut report = RunReport::default();
        report.add("INSTALLED a with apt-get\nSKIPPED b: it is missing\nelse\n");
        assert_eq!(report.installed, ["a with apt-get"]);
        assert_eq!(report.skipped, ["b: it is missing"]);
    }

    #[test]
    fn cargo_runs_without_the_variables_of_an_outer_cargo() {
        let removed = cargo(&["build"]).get_envs().filter(|(_, value)| value.is_none()).count();
        assert!(removed > 0, "this test runs below cargo, which sets CARGO_MANIFEST_DIR");
    }
}
