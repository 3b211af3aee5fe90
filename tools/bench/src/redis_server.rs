//! Starts redis-server for a section, and finds redis-benchmark.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use agenix_harness::resp::Resp;
use anyhow::{Context, bail};
use e2e::within;

/// Time within which a server has to listen.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// Persistence of a redis-server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Persistence {
    /// Nothing is written
    Off,
    /// An append-only file, synced every second
    EverySec,
    /// An append-only file, synced before each answer
    Always,
}

impl Persistence {
    fn lines(self) -> &'static str {
        match self {
            Self::Off => "appendonly no\n",
            Self::EverySec => "appendonly yes\nappendfsync everysec\n",
            Self::Always => "appendonly yes\nappendfsync always\n",
        }
    }
}

/// A redis-server on loopback with a password. The drop kills the server.
pub(crate) struct RedisServer {
    child: Child,
    port: u16,
}

impl RedisServer {
    /// Starts `tools/bin/redis-server` with the password `key`, and its data in `directory`, which
    /// is created. Waits until the server listens.
    pub(crate) fn start(
        tools: &Path,
        directory: &Path,
        key: &str,
        persistence: Persistence,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(directory)?;
        let port = free_port()?;
        let (lines, dir) = (persistence.lines(), directory.display());
        // The append-only file is never rewritten, because that would run while another contender
        // is measured.
        let config = format!(
            "bind 127.0.0.1\nport {port}\nrequirepass {key}\ndir \"{dir}\"\nsave \"\"\nauto-aof-rewrite-percentage 0\n{lines}"
        );
        let file = directory.join("redis.conf");
        fs::write(&file, config)?;
        let log = File::create(directory.join("redis.log"))?;
        let program = tools.join("bin/redis-server");
        let child = Command::new(&program)
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut redis = Self { child, port };
        redis.listens(key).with_context(|| {
            let log = fs::read_to_string(directory.join("redis.log")).unwrap_or_default();
            format!("redis-server does not listen: {}", log.lines().last().unwrap_or("its log is empty"))
        })?;
        Ok(redis)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn listens(&mut self, key: &str) -> anyhow::Result<()> {
        let address = format!("127.0.0.1:{}", self.port);
        let listening = within(STARTS_WITHIN, || match self.child.try_wait() {
            Ok(None) => Resp::open(&address, key).ok().map(|_| Ok(())),
            ended => Some(Err(ended)),
        });
        match listening {
            Some(Ok(())) => Ok(()),
            Some(Err(ended)) => bail!("it has exited: {ended:?}"),
            None => bail!("it has not answered for {} s", STARTS_WITHIN.as_secs()),
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Returns the path of redis-benchmark: beside redis-cli, to which `tools` has a link, or on PATH.
pub(crate) fn redis_benchmark(tools: &Path) -> Option<PathBuf> {
    let cli = fs::canonicalize(tools.join("bin/redis-cli")).ok();
    let beside = cli.map(|cli| cli.with_file_name("redis-benchmark")).filter(|program| program.is_file());
    beside.or_else(|| agenix_harness::tools::on_path("redis-benchmark"))
}

/// Returns a port on which no process listens. If another process takes the port first, the server
/// fails.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
