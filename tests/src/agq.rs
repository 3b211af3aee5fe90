//! Server under test.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Lab, port::unused_port};

/// A running agq, which the drop kills.
pub struct Agq {
    child: Child,
    port: u16,
    http: Option<u16>,
    args: Vec<String>,
}

/// Resource limit that the system enforces on an agq.
#[derive(Debug, Clone, Copy)]
pub enum ResourceLimit {
    /// Maximum number of bytes of each file, including the database and the log, as on a full disk.
    FileBytes(u64),
    /// Maximum number of file descriptors.
    Descriptors(u64),
}

impl Agq {
    pub(crate) fn start(lab: &Lab, args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let (child, port, http) = spawn(lab, (unused_port(), None), &args);
        Self { child, port, http, args }
    }

    /// Returns the TCP address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the HTTP address.
    pub fn http_address(&self) -> String {
        format!("127.0.0.1:{}", self.http.expect("it speaks HTTP"))
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills agq with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Starts agq again on the same data and the same port.
    pub fn start_again(&mut self, lab: &Lab) {
        (self.child, self.port, self.http) = spawn(lab, (self.port, self.http), &self.args);
    }

    /// Starts agq again as [`Self::start_again`] does, within `limit` if there is one. Returns the
    /// reason if agq does not start.
    pub fn try_start_again(&mut self, lab: &Lab, limit: Option<ResourceLimit>) -> Result<(), String> {
        (self.child, self.port, self.http) = try_spawn(lab, (self.port, self.http), &self.args, limit)?;
        Ok(())
    }

    /// Returns the exit status, or `None` while agq runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Stops agq with SIGSTOP. The connections of agq stay open.
    pub fn suspend(&self) {
        signal(&self.child, Signal::STOP);
    }

    /// Continues agq with SIGCONT.
    pub fn resume(&self) {
        signal(&self.child, Signal::CONT);
    }

    /// Sends SIGHUP, so that agq reads its keys and certificates again.
    pub fn reload(&self) {
        signal(&self.child, Signal::HUP);
    }

    /// Sends SIGTERM, waits for the end, and returns the exit status.
    pub fn stop(&mut self) -> ExitStatus {
        signal(&self.child, Signal::TERM);
        self.child.wait().expect("a child can be waited for")
    }
}

impl Drop for Agq {
    fn drop(&mut self) {
        // agq may have ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a child has a process id");
    kill_process(pid, signal).expect("a child that was not waited for can be signalled");
}

/// Process, RESP port and HTTP port of a running agq.
type Spawned = (Child, u16, Option<u16>);

fn spawn(lab: &Lab, ports: (u16, Option<u16>), args: &[String]) -> Spawned {
    try_spawn(lab, ports, args, None).unwrap_or_else(|why| panic!("{why}"))
}

fn try_spawn(
    lab: &Lab,
    (port, http): (u16, Option<u16>),
    args: &[String],
    limit: Option<ResourceLimit>,
) -> Result<Spawned, String> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(lab.path().join("agq.log"))
        .expect("the log can be opened");
    let has = |name: &str| args.iter().any(|arg| arg == name);
    let in_lab = ["--data-dir".to_owned(), lab.path().join("data").display().to_string()];
    let data_dir = (!has("--data-dir")).then_some(in_lab);
    let has_blobs = has("--blobs");
    let mut child = limit
        .map_or_else(|| lab.command("agq"), |limit| limited(lab, limit))
        .args(["--port", &port.to_string()])
        .args(data_dir.into_iter().flatten())
        .args(lab.database().into_iter().flat_map(|database| {
            // The lease is short, because tests wait for its end.
            let store = ["--store".to_owned(), database.url(), "--store-lease".to_owned(), "2".to_owned()];
            let blobs = ["--blob-dir".to_owned(), lab.path().join("blobs").display().to_string()];
            store.into_iter().chain(blobs.into_iter().filter(move |_| !has_blobs))
        }))
        .args(http.iter().flat_map(|http| ["--http".to_owned(), format!("127.0.0.1:{http}")]))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("agq can be started");
    let mut line = String::new();
    let out = child.stdout.take().expect("stdout is piped");
    BufReader::new(out).read_line(&mut line).expect("agq says where it listens");
    let port = line
        .split("127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .and_then(|port| port.parse().ok())
        // Without TCP, agq listens at least on a Unix socket.
        .or_else(|| line.contains("listens on unix:").then_some(0));
    let Some(port) = port else {
        // agq has ended, or listens nowhere.
        let _ended = child.kill();
        let ended = child.wait().expect("a child can be waited for");
        let log = lab.path().join("agq.log");
        // The log may be a FIFO, and reading a FIFO without a writer would never end.
        let log =
            if log.is_file() { std::fs::read_to_string(log).unwrap_or_default() } else { String::new() };
        return Err(format!("agq did not say where it listens: '{line}' ({ended})\n{log}"));
    };
    let http = ["http://127.0.0.1:", "https://127.0.0.1:"].iter().find_map(|start| line.split(start).nth(1));
    let http = http.and_then(|rest| rest.split(',').next()?.trim().parse().ok());
    Ok((child, port, http))
}

/// Returns a command for a shell that sets `limit` and then becomes agq, because only a process
/// itself can set its limits.
fn limited(lab: &Lab, limit: ResourceLimit) -> Command {
    let ulimit = match limit {
        // `sh` counts blocks of 512 bytes.
        ResourceLimit::FileBytes(bytes) => format!("ulimit -f {}", bytes / 512),
        ResourceLimit::Descriptors(count) => format!("ulimit -n {count}"),
    };
    let mut command = lab.command("/bin/sh");
    command.arg("-c").arg(format!(r#"{ulimit} && exec "$0" "$@""#)).arg(lab.bin().join("agq"));
    command
}
