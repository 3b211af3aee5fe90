//! Runs a script of Node with eight producers and eight consumers (tools/bench/assets/node). The
//! script reads the time of a round from stdin, and prints jobs and seconds to stdout.

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, ChildStdout, Command},
    time::Duration,
};

use anyhow::Context;
use tempfile::TempDir;

use super::{
    server::{ServerProcess, directory, file},
    tools::NodeTools,
};

pub(super) struct Node {
    // The server is dropped first, because it writes into the directory.
    server: ServerProcess,
    _dir: TempDir,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Node {
    /// Starts a script with an argument, and waits until it is ready.
    pub(super) fn start(tools: &NodeTools, script: &str, argument: &str) -> anyhow::Result<Self> {
        let dir = directory()?;
        let mut command = Command::new(&tools.program);
        command.arg(file("node").join(script)).arg(argument).env("NODE_PATH", &tools.modules);
        let (server, stdin, stdout) = ServerProcess::start_piped(&mut command, &dir.path().join("log"))?;
        let mut node = Self { server, _dir: dir, stdin, stdout: BufReader::new(stdout) };
        node.line()?;
        Ok(node)
    }

    /// Runs the script for `span`, and returns its jobs per second.
    pub(super) fn jobs_per_sec(&mut self, span: Duration) -> anyhow::Result<f64> {
        writeln!(self.stdin, "{}", span.as_secs_f64())?;
        let line = self.line()?;
        rate(&line).with_context(|| format!("the script printed no rate: {line}"))
    }

    /// Reads the next line. The script exits if a round takes too long.
    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err(self.server.error("a figure of the script"));
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Parses `JOBS SECONDS`, and returns jobs per second.
fn rate(line: &str) -> Option<f64> {
    let (jobs, seconds) = line.split_once(' ')?;
    Some(jobs.parse::<f64>().ok()? / seconds.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rate_is_jobs_per_second() {
        assert_eq!(rate("300 1.5"), Some(200.0));
        assert_eq!(rate("ready"), None);
    }
}
