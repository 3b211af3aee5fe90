//! An agq of a contest.

use std::{fs, io, path::Path, process::Command};

use e2e::Lab;

use super::{
    server::{Server, preload},
    wire::Wire,
};

/// We come from one address, as fast as we can, and send no heartbeats.
const ARGS: [&str; 6] = [
    "--max-connections-per-ip",
    "0",
    "--max-commands-per-second",
    "0",
    // Workers that are silent for three of these are dead.
    "--heartbeat-interval",
    "3600",
];
/// The plan of every job; what it would do nobody does.
const PLAN: &str = r#"{"plan_id":"cycle","tasks":[{"task_number":1,"command":"true"}]}"#;

/// When agq answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Durability {
    /// When it is on disk, whatever it is: what the peers do.
    Always,
    /// As it does where nobody says anything.
    AsShipped,
}

/// A running agq, with the plan.
pub(super) struct Agq {
    // The first to be dropped: it writes into the lab's directory.
    server: Server,
    lab: Lab,
    address: String,
    http: String,
}

impl Agq {
    pub(super) fn start(bin: &Path, durability: Durability, library: Option<&Path>) -> anyhow::Result<Self> {
        let lab = Lab::with_binaries(bin.to_owned());
        let mut command = lab.command("agq");
        command.arg("--data-dir").arg(lab.path().join("data"));
        if durability == Durability::Always {
            command.args(["--durability", "always"]);
        }
        preload(&mut command, library);
        let agq = Self::run(lab, command)?;
        agq.connect()?.done(&["PLAN.SUBMIT", PLAN])?;
        Ok(agq)
    }

    /// So many of them on one PostgreSQL.
    pub(super) fn start_nodes(bin: &Path, count: usize, url: &str) -> anyhow::Result<Vec<Self>> {
        let node = |_| {
            let lab = Lab::with_binaries(bin.to_owned());
            let mut command = lab.command("agq");
            command.args(["--store", url]);
            Self::run(lab, command)
        };
        let nodes = (0..count).map(node).collect::<anyhow::Result<Vec<_>>>()?;
        if let Some(first) = nodes.first() {
            first.connect()?.done(&["PLAN.SUBMIT", PLAN])?;
        }
        Ok(nodes)
    }

    fn run(lab: Lab, mut command: Command) -> anyhow::Result<Self> {
        command.args(["--port", "0"]).args(ARGS);
        let log = lab.path().join("agq.log");
        let mut server = Server::start(&mut command, &log)?;
        let (address, http) = server.until("the addresses of agq", || {
            let said = fs::read_to_string(&log).ok()?;
            Some((address(&said)?, http_address(&said)?))
        })?;
        Ok(Self { server, lab, address, http })
    }

    /// A connection that is logged in.
    pub(super) fn connect(&self) -> io::Result<Wire> {
        let mut wire = Wire::open(&self.address)?;
        wire.done(&["AUTH", self.lab.key()])?;
        Ok(wire)
    }

    /// A connection where HTTP is spoken, and the key.
    pub(super) fn connect_http(&self) -> io::Result<(Wire, String)> {
        Ok((Wire::open(&self.http)?, self.lab.key().to_owned()))
    }

    /// A connection that is a worker's.
    pub(super) fn connect_worker(&self, number: usize) -> io::Result<Wire> {
        let mut wire = self.connect()?;
        let worker =
            format!(r#"{{"worker_id":"b-{number}","capabilities":["true"],"max_concurrent_jobs":1}}"#);
        wire.done(&["WORKER.REGISTER", &worker])?;
        Ok(wire)
    }

    /// Ends it as a person would, and waits until it has ended.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.server.stop()
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }
}

/// `agq 0.1.0 listens on 127.0.0.1:6380, data in …`
fn address(said: &str) -> Option<String> {
    let (_, behind) = said.split_once("listens on ")?;
    let (address, _) = behind.split_once(',')?;
    Some(address.to_owned())
}

/// `…, http://127.0.0.1:6381, data in …`
fn http_address(said: &str) -> Option<String> {
    let (_, behind) = said.split_once("http://")?;
    let (address, _) = behind.split_once(',')?;
    Some(address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn the_address_is_told_whole_or_not_yet() {
        let said = "agq 0.1.0 listens on 127.0.0.1:6380, data in x\n";
        assert_eq!(address(said).as_deref(), Some("127.0.0.1:6380"));
        assert_eq!(address("agq 0.1.0 listens on 127.0.0.1:63"), None);
    }
}
