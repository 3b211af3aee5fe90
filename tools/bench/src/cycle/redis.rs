//! A Redis that syncs each write before its answer. It never rewrites its append-only file, because
//! that would only slow it down.

use std::{io, path::Path, process::Command};

use tempfile::TempDir;

use super::{
    server::{Server, directory, free_port, preload},
    wire::Wire,
};

pub(super) struct Redis {
    // Dropped first, because it writes into the directory.
    server: Server,
    _dir: TempDir,
    port: u16,
}

impl Redis {
    pub(super) fn start(program: &Path, library: Option<&Path>) -> anyhow::Result<Self> {
        let (dir, port) = (directory()?, free_port()?);
        let mut command = Command::new(program);
        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"])
            .arg(dir.path())
            .args(["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]);
        preload(&mut command, library);
        let mut server = Server::start(&mut command, &dir.path().join("log"))?;
        let address = format!("127.0.0.1:{port}");
        server.wait_for("an answer of Redis", || Wire::open(&address).ok()?.call(&["PING"]).ok())?;
        Ok(Self { server, _dir: dir, port })
    }

    pub(super) fn connect(&self) -> io::Result<Wire> {
        Wire::open(&format!("127.0.0.1:{}", self.port))
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }
}
