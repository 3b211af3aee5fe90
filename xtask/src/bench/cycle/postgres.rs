//! PostgreSQL as a queue: one table and SKIP LOCKED, a cycle as pgbench does it (xtask/bench/pgbench). A cluster of its own, as
//! it is set out of the box but for its memory, reached by a socket in its directory.

use std::{
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use super::{
    server::{Server, directory, file, preload},
    setting::Setting,
    texts::Texts,
};

/// PostgreSQL does not run as root.
const NOBODY: u32 = 65_534;
const SETTINGS: [&str; 2] = ["listen_addresses=", "shared_buffers=256MB"];

/// A running PostgreSQL.
pub(super) struct Cluster {
    // The first to be dropped: it writes into the directory.
    server: Server,
    dir: TempDir,
    bin: PathBuf,
}

impl Cluster {
    pub(super) fn start(bin: &Path, library: Option<&Path>) -> anyhow::Result<Self> {
        let dir = directory()?;
        if geteuid().is_root() {
            chown(dir.path(), Some(NOBODY), Some(NOBODY))?;
        }
        let data = dir.path().join("data");
        let mut init = unprivileged(&bin.join("initdb"), dir.path());
        init.args([
            "--username=bench",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "--pgdata",
        ])
        .arg(&data);
        succeed(&mut init)?;
        let mut serve = unprivileged(&bin.join("postgres"), dir.path());
        serve.arg("-D").arg(&data);
        for setting in SETTINGS {
            serve.args(["-c", setting]);
        }
        serve.arg("-c").arg(format!("unix_socket_directories={}", dir.path().display()));
        preload(&mut serve, library);
        // At SIGKILL its children would go on for a while.
        let server = Server::start(&mut serve, &dir.path().join("log"))?.ended_by(Signal::QUIT);
        let mut cluster = Self { server, dir, bin: bin.to_owned() };
        let mut is_ready = cluster.client("pg_isready");
        is_ready.arg("--quiet").stdout(Stdio::null());
        cluster.server.until("an answer of PostgreSQL", || {
            is_ready.status().is_ok_and(|status| status.success()).then_some(())
        })?;
        Ok(cluster)
    }

    /// How a client reaches it.
    pub(super) fn url(&self) -> String {
        format!("postgres://bench@localhost/postgres?host={}", self.dir.path().display())
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// A program of PostgreSQL's that knows where the cluster is.
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.env("PGHOST", self.dir.path()).env("PGUSER", "bench").env("PGDATABASE", "postgres");
        command.env_remove("PGPORT").stdin(Stdio::null());
        command
    }

    fn run_script(&self, name: &str, variables: &[String]) -> anyhow::Result<()> {
        let mut psql = self.client("psql");
        psql.args(["--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1"]);
        for variable in variables {
            psql.args(["-v", variable]);
        }
        succeed(psql.arg("-f").arg(file(name))).map(drop)
    }
}

/// The queue in a cluster, and its clients.
pub(super) struct Queue {
    cluster: Cluster,
    texts: Arc<Texts>,
    clients: usize,
}

/// A cluster with so many jobs that wait.
pub(super) fn queue(bin: &Path, setting: Setting, library: Option<&Path>) -> anyhow::Result<Queue> {
    let cluster = Cluster::start(bin, library)?;
    let texts = Texts::new(setting.input_bytes);
    cluster.run_script("pgbench/schema.sql", &[])?;
    if setting.queued > 0 {
        let variables = [format!("jobs={}", setting.queued), format!("payload={}", texts.input(0))];
        cluster.run_script("pgbench/preload.sql", &variables)?;
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

    pub(super) fn server(&self) -> &Server {
        self.cluster.server()
    }
}

/// `tps = 4279.123456 (without initial connection time)`
fn rate(said: &str) -> Option<f64> {
    let (_, behind) = said.split_once("tps = ")?;
    behind.split_whitespace().next()?.parse().ok()
}

/// A program in a directory, as one who may not do everything.
fn unprivileged(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).stdin(Stdio::null());
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
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
