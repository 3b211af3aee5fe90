//! A Redis that syncs each write before its answer. The server never rewrites its append-only file,
//! because a rewrite would only slow the server down.

use std::{io, path::Path, process::Command};

use tempfile::TempDir;

use super::{
    server::{ServerProcess, directory, free_port, preload},
    wire::BufferedConnection,
};

pub(super) struct DurableRedis {
    // The server is dropped first, because it writes into the directory.
    server: ServerProcess,
    _dir: TempDir,
    port: u16,
}

impl DurableRedis {
    pub(super) fn start(program: &Path, library: Option<&Path>) -> anyhow::Result<Self> {
        let (dir, port) = (directory()?, free_port()?);
        let mut command = Command::new(program);
        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"])
            .arg(dir.path())
            .args(["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]);
        preload(&mut command, library);
        let mut server = ServerProcess::start(&mut command, &dir.path().join("log"))?;
        let address = format!("127.0.0.1:{port}");
        server.wait_for("an answer of Redis", || {
            BufferedConnection::open(&address).ok()?.call(&["PING"]).ok()
        })?;
        Ok(Self { server, _dir: dir, port })
    }

    pub(super) fn connect(&self) -> io::Result<BufferedConnection> {
        BufferedConnection::open(&format!("127.0.0.1:{}", self.port))
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn server(&self) -> &ServerProcess {
        &self.server
    }
}
