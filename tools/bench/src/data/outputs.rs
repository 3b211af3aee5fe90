//! Large outputs that return to the caller: `agx map` beside xargs with a file for each job.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, ensure};
use e2e::Lab;

use super::{check, files::WordFiles, mb_per_sec};

/// Writes the output of each job to a file, and then all files to stdout.
const SHELL: &str =
    r#"printf '%s\n' "$@" | xargs -P2 -I{} sh -c 'cat "$0" > "$0.out"' {} && for f; do cat "$f.out"; done"#;

/// Runs the jobs with `agx map`, and returns MB per second.
pub(super) fn agx(lab: &Lab, files: &WordFiles) -> anyhow::Result<f64> {
    let mut agx = lab.command("agx");
    agx.args(["map", "-k", "-j", "2", "--", "cat", "{}", ":::"]).args(&files.parts);
    timed(agx.env("TMPDIR", lab.path()), &lab.path().join("all"), files.bytes)
}

/// Runs the jobs with xargs, and returns MB per second.
pub(super) fn xargs(lab: &Lab, files: &WordFiles) -> anyhow::Result<f64> {
    let mut shell = Command::new("sh");
    shell.args(["-c", SHELL, "sh"]).args(&files.parts);
    let rate = timed(&mut shell, &lab.path().join("all"), files.bytes)?;
    for part in &files.parts {
        std::fs::remove_file(PathBuf::from(part.clone() + ".out"))?;
    }
    Ok(rate)
}

/// Runs a command whose stdout is `all`, checks the number of bytes, and returns MB per second.
fn timed(command: &mut Command, all: &Path, bytes: usize) -> anyhow::Result<f64> {
    let started = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(File::create(all)?).status();
    let status = status.context("it cannot be started")?;
    let rate = mb_per_sec(bytes, started);
    ensure!(status.success(), "it ended with {status}");
    check(usize::try_from(all.metadata()?.len())?, bytes)?;
    std::fs::remove_file(all)?;
    Ok(rate)
}
