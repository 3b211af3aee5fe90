//! PostgreSQL as a queue: one table and SKIP LOCKED, a cycle as pgbench does it (tools/bench/assets/pgbench). A cluster of its own, as
//! it is set out of the box but for its memory, reached by TCP on the loopback, as all others are.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use e2e::Postgres;

use super::{server::file, setting::Setting, texts::Texts};

/// Beyond that a cluster is as it is shipped. Many clients want a connection each.
const SETTINGS: [&str; 2] = ["shared_buffers=256MB", "max_connections=300"];

/// A cluster of its own.
pub(super) fn cluster(library: Option<&Path>) -> Arc<Postgres> {
    Arc::new(Postgres::start_on_loopback(&SETTINGS, library))
}

fn run_script(cluster: &Postgres, name: &str, variables: &[String]) -> anyhow::Result<()> {
    let mut psql = cluster.client("psql");
    psql.args(["--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1"]);
    for variable in variables {
        psql.args(["-v", variable]);
    }
    succeed(psql.arg("-f").arg(file(name))).map(drop)
}

/// The queue in a cluster, and its clients.
pub(super) struct Queue {
    cluster: Arc<Postgres>,
    texts: Arc<Texts>,
    clients: usize,
}

/// A queue with so many jobs that wait.
pub(super) fn queue(cluster: Arc<Postgres>, setting: Setting) -> anyhow::Result<Queue> {
    let texts = Texts::new(setting.input_bytes);
    run_script(&cluster, "pgbench/schema.sql", &[])?;
    if setting.queued > 0 {
        let variables = [format!("jobs={}", setting.queued), format!("payload={}", texts.input(0))];
        run_script(&cluster, "pgbench/preload.sql", &variables)?;
    }
    Ok(Queue { cluster, texts, clients: setting.clients })
}

impl Queue {
    /// How many cycles a second all clients together do for so long.
    pub(super) fn cycles_per_sec(&mut self, span: Duration) -> anyhow::Result<f64> {
        let clients = self.clients.to_string();
        let mut pgbench = self.cluster.client("pgbench");
        pgbench
            .args(["--no-vacuum", "--protocol=prepared", "--client", &clients])
            .args(["--jobs", &self.clients.min(2).to_string(), "--time", &span.as_secs().to_string()])
            .args(["-D", &format!("payload={}", self.texts.input(1))])
            .args(["-D", &format!("result={}", self.texts.result(1))])
            .arg("--file")
            .arg(file("pgbench/cycle.sql"));
        let said = succeed(&mut pgbench)?;
        rate(&said).with_context(|| format!("pgbench told no rate: {said}"))
    }

    /// The server's process.
    pub(super) fn pid(&self) -> Option<u32> {
        self.cluster.pid()
    }
}

/// `tps = 4279.123456 (without initial connection time)`
fn rate(said: &str) -> Option<f64> {
    let (_, behind) = said.split_once("tps = ")?;
    behind.split_whitespace().next()?.parse().ok()
}

/// Runs a command to its end; what it printed, or an error with its complaint.
fn succeed(command: &mut Command) -> anyhow::Result<String> {
    let name = PathBuf::from(command.get_program());
    let output = command.output().with_context(|| format!("cannot start {}", name.display()))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}", name.display(), output.status, complaint.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn the_rate_is_what_pgbench_says_it_is() {
        let said = "latency average = 1.9 ms\ntps = 4279.25 (without initial connection time)\n";
        assert_eq!(rate(said), Some(4279.25));
        assert_eq!(rate("pgbench: error"), None);
    }
}
