//! A program in Node that works as eight who submit and eight who work off (tools/bench/assets/node): told on stdin for how long, it
//! answers on stdout how much was done.

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, ChildStdout, Command},
    time::Duration,
};

use anyhow::Context;
use tempfile::TempDir;

use super::{
    server::{Server, directory, file},
    tools::NodeTools,
};

/// The running program.
pub(super) struct Node {
    // The first to be dropped: it writes into the directory.
    server: Server,
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
        let (server, stdin, stdout) = Server::start_talking(&mut command, &dir.path().join("log"))?;
        let mut node = Self { server, _dir: dir, stdin, stdout: BufReader::new(stdout) };
        node.line()?;
        Ok(node)
    }

    /// How many jobs a second were done in a run of so long.
    pub(super) fn jobs_per_sec(&mut self, span: Duration) -> anyhow::Result<f64> {
        writeln!(self.stdin, "{}", span.as_secs_f64())?;
        let said = self.line()?;
        rate(&said).with_context(|| format!("the script told no rate: {said}"))
    }

    /// What it says next; it ends itself where that takes too long.
    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err(self.server.fault("a figure of the script"));
        }
        Ok(line.trim_end().to_owned())
    }
}

/// So many jobs, a space, so many seconds.
fn rate(said: &str) -> Option<f64> {
    let (jobs, seconds) = said.split_once(' ')?;
    Some(jobs.parse::<f64>().ok()? / seconds.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn a_rate_is_jobs_by_seconds() {
        assert_eq!(rate("300 1.5"), Some(200.0));
        assert_eq!(rate("ready"), None);
    }
}
