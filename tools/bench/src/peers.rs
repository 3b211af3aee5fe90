//! Redis, whom others compare themselves with: a redis-server that is there for one section, and the program that loads it.

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

/// How long a server may take to listen.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// What a redis-server has on disk, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Persistence {
    /// Nothing.
    Off,
    /// Everything, synced every second.
    EverySec,
    /// Everything, synced before it is answered.
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

/// A redis-server on loopback, logged in to by the key that our own agq has; killed when dropped.
pub(crate) struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    /// Starts `tools/bin/redis-server` with its data in a directory, which is made.
    pub(crate) fn start(
        tools: &Path,
        directory: &Path,
        key: &str,
        persistence: Persistence,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(directory)?;
        let port = free_port()?;
        let (lines, dir) = (persistence.lines(), directory.display());
        // It rewrites its AOF never: that would go on while somebody else is measured.
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
            format!("redis-server does not listen: {}", log.lines().last().unwrap_or("it says nothing"))
        })?;
        Ok(redis)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn listens(&mut self, key: &str) -> anyhow::Result<()> {
        let address = format!("127.0.0.1:{}", self.port);
        let looked = within(STARTS_WITHIN, || match self.child.try_wait() {
            Ok(None) => Resp::open(&address, key).ok().map(|_| Ok(())),
            ended => Some(Err(ended)),
        });
        match looked {
            Some(Ok(())) => Ok(()),
            Some(Err(ended)) => bail!("it has ended: {ended:?}"),
            None => bail!("it has not answered for {} s", STARTS_WITHIN.as_secs()),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// redis-benchmark: beside redis-cli, to which the tools have a link, or on PATH.
pub(crate) fn redis_benchmark(tools: &Path) -> Option<PathBuf> {
    let cli = fs::canonicalize(tools.join("bin/redis-cli")).ok();
    let beside = cli.map(|cli| cli.with_file_name("redis-benchmark")).filter(|program| program.is_file());
    beside.or_else(|| agenix_harness::tools::on_path("redis-benchmark"))
}

/// A port that nobody listens on; somebody may before it is used, and then the server says so.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
