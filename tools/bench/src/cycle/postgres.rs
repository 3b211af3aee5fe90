//! PostgreSQL as a queue with one table and SKIP LOCKED, driven by pgbench
//! (tools/bench/assets/pgbench). The private cluster has default settings except for memory and
//! connections. Clients use TCP on loopback, as those of all contenders do.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use e2e::Postgres;

use super::{payloads::Payloads, server::file, setting::Setting};

/// Settings that differ from the defaults. Each client needs a connection.
const SETTINGS: [&str; 2] = ["shared_buffers=256MB", "max_connections=300"];

pub(crate) fn cluster(library: Option<&Path>) -> Arc<Postgres> {
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

/// A queue in a cluster, and the number of its clients.
pub(super) struct PostgresQueue {
    cluster: Arc<Postgres>,
    payloads: Arc<Payloads>,
    clients: usize,
}

/// Creates a queue with `setting.queued` jobs.
pub(super) fn queue(cluster: Arc<Postgres>, setting: Setting) -> anyhow::Result<PostgresQueue> {
    let payloads = Payloads::new(setting.input_bytes);
    run_script(&cluster, "pgbench/schema.sql", &[])?;
    if setting.queued > 0 {
        let variables = [format!("jobs={}", setting.queued), format!("payload={}", payloads.input(0))];
        run_script(&cluster, "pgbench/preload.sql", &variables)?;
    }
    Ok(PostgresQueue { cluster, payloads, clients: setting.clients })
}

impl PostgresQueue {
    /// Runs all clients for `span`, and returns their cycles per second.
    pub(super) fn cycles_per_sec(&mut self, span: Duration) -> anyhow::Result<f64> {
        let clients = self.clients.to_string();
        let mut pgbench = self.cluster.client("pgbench");
        pgbench
            .args(["--no-vacuum", "--protocol=prepared", "--client", &clients])
            .args(["--jobs", &self.clients.min(2).to_string(), "--time", &span.as_secs().to_string()])
            .args(["-D", &format!("payload={}", self.payloads.input(1))])
            .args(["-D", &format!("result={}", self.payloads.result(1))])
            .arg("--file")
            .arg(file("pgbench/cycle.sql"));
        let output = succeed(&mut pgbench)?;
        rate(&output).with_context(|| format!("pgbench printed no rate: {output}"))
    }

    /// Returns the process id of the server.
    pub(super) fn pid(&self) -> Option<u32> {
        self.cluster.pid()
    }
}

/// Parses `tps = 4279.123456 (without initial connection time)`.
fn rate(output: &str) -> Option<f64> {
    let (_, rest) = output.split_once("tps = ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Runs a command, and returns its stdout. The error has the stderr of the command.
fn succeed(command: &mut Command) -> anyhow::Result<String> {
    let name = PathBuf::from(command.get_program());
    let output = command.output().with_context(|| format!("cannot start {}", name.display()))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}", name.display(), output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rate_is_the_tps_of_pgbench() {
        let output = "latency average = 1.9 ms\ntps = 4279.25 (without initial connection time)\n";
        assert_eq!(rate(output), Some(4279.25));
        assert_eq!(rate("pgbench: error"), None);
    }
}
