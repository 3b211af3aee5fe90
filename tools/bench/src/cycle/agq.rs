//! An agq process of a comparison.

use std::{fs, io, path::Path, process::Command};

use e2e::Lab;

use super::{
    server::{ServerProcess, preload},
    wire::BufferedConnection,
};

/// All clients have one address, and send as fast as they can, but no heartbeats.
const ARGS: [&str; 6] = [
    "--max-connections-per-ip",
    "0",
    "--max-commands-per-second",
    "0",
    // A worker without a heartbeat for three of these intervals counts as dead.
    "--heartbeat-interval",
    "3600",
];
/// Plan of all jobs, whose task no worker runs.
const PLAN: &str = r#"{"plan_id":"cycle","tasks":[{"task_number":1,"command":"true"}]}"#;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SyncMode {
    /// Each answer waits for the disk, as those of the peers do
    Always,
    /// The default of agq
    AsShipped,
}

pub(super) struct AgqServer {
    // The server is dropped first, because it writes into the directory of the lab.
    server: ServerProcess,
    lab: Lab,
    address: String,
    http: String,
}

impl AgqServer {
    pub(super) fn start(bin: &Path, durability: SyncMode, library: Option<&Path>) -> anyhow::Result<Self> {
        let lab = Lab::with_binaries(bin.to_owned());
        let mut command = lab.command("agq");
        command.arg("--data-dir").arg(lab.path().join("data"));
        if durability == SyncMode::Always {
            command.args(["--durability", "always"]);
        }
        preload(&mut command, library);
        let agq = Self::run(lab, command)?;
        agq.connect()?.call(&["PLAN.SUBMIT", PLAN])?;
        Ok(agq)
    }

    /// Starts `count` nodes on one PostgreSQL.
    pub(super) fn start_nodes(bin: &Path, count: usize, url: &str) -> anyhow::Result<Vec<Self>> {
        let node = |_| {
            let lab = Lab::with_binaries(bin.to_owned());
            let mut command = lab.command("agq");
            command.args(["--store", url]);
            Self::run(lab, command)
        };
        let nodes = (0..count).map(node).collect::<anyhow::Result<Vec<_>>>()?;
        if let Some(first) = nodes.first() {
            first.connect()?.call(&["PLAN.SUBMIT", PLAN])?;
        }
        Ok(nodes)
    }

    fn run(lab: Lab, mut command: Command) -> anyhow::Result<Self> {
        command.args(["--port", "0"]).args(ARGS);
        let log = lab.path().join("agq.log");
        let mut server = ServerProcess::start(&mut command, &log)?;
        let (address, http) = server.wait_for("the addresses of agq", || {
            let text = fs::read_to_string(&log).ok()?;
            Some((address(&text)?, http_address(&text)?))
        })?;
        Ok(Self { server, lab, address, http })
    }

    /// Opens a connection over RESP, and logs in.
    pub(super) fn connect(&self) -> io::Result<BufferedConnection> {
        let mut wire = BufferedConnection::open(&self.address)?;
        wire.call(&["AUTH", self.lab.key()])?;
        Ok(wire)
    }

    /// Opens a connection to the HTTP port, and returns it with the key.
    pub(super) fn connect_http(&self) -> io::Result<(BufferedConnection, String)> {
        Ok((BufferedConnection::open(&self.http)?, self.lab.key().to_owned()))
    }

    /// Opens a connection over RESP, and registers a worker on it.
    pub(super) fn connect_worker(&self, number: usize) -> io::Result<BufferedConnection> {
        let mut wire = self.connect()?;
        let worker =
            format!(r#"{{"worker_id":"b-{number}","capabilities":["true"],"max_concurrent_jobs":1}}"#);
        wire.call(&["WORKER.REGISTER", &worker])?;
        Ok(wire)
    }

    /// Sends SIGTERM, and waits for the exit.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.server.stop()
    }

    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }
}

/// Parses the address for RESP from `agq 0.1.0 listens on 127.0.0.1:6380, data in …`.
fn address(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("listens on ")?;
    let (address, _) = rest.split_once(',')?;
    Some(address.to_owned())
}

/// Parses the address for HTTP from `…, http://127.0.0.1:6381, data in …`.
fn http_address(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("http://")?;
    let (address, _) = rest.split_once(',')?;
    Some(address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn address_is_none_until_the_line_is_complete() {
        let log = "agq 0.1.0 listens on 127.0.0.1:6380, data in x\n";
        assert_eq!(address(log).as_deref(), Some("127.0.0.1:6380"));
        assert_eq!(address("agq 0.1.0 listens on 127.0.0.1:63"), None);
    }
}
