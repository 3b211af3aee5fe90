//! A running agq.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    process::{Child, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::Lab;

/// An agq; killed when dropped.
pub struct Agq {
    child: Child,
    port: u16,
    args: Vec<String>,
}

impl Agq {
    pub(crate) fn start(lab: &Lab, args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let (child, port) = spawn(lab, 0, &args);
        Self { child, port, args }
    }

    /// Where it listens on TCP.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and nothing is left of it but its files.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Starts it again on the same data and the same port.
    pub fn start_again(&mut self, lab: &Lab) {
        (self.child, self.port) = spawn(lab, self.port, &self.args);
    }

    /// SIGHUP: it reads its keys and certificates again.
    pub fn reload(&self) {
        signal(&self.child, Signal::HUP);
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        signal(&self.child, Signal::TERM);
        self.child.wait().expect("a child can be waited for")
    }
}

impl Drop for Agq {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a child has a process id");
    kill_process(pid, signal).expect("a child that was not waited for can be signalled");
}

fn spawn(lab: &Lab, port: u16, args: &[String]) -> (Child, u16) {
    let log = File::options()
        .create(true)
        .append(true)
        .open(lab.path().join("agq.log"))
        .expect("the log can be opened");
    let mut child = lab
        .command("agq")
        .args(["--port", &port.to_string(), "--data-dir"])
        .arg(lab.path().join("data"))
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
        // Without TCP, there is at least a Unix socket.
        .or_else(|| line.contains("listens on unix:").then_some(0));
    let log = || std::fs::read_to_string(lab.path().join("agq.log")).unwrap_or_default();
    (child, port.unwrap_or_else(|| panic!("agq did not say where it listens: '{line}'\n{}", log())))
}
