//! The workers and the agx processes: how many there have to be, and what is done to them.

use std::{
    fs::File,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use e2e::Lab;
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};

use super::{PLAN, Place, ledger::Ledger};

const WORKERS: usize = 3;
const CLIENTS: usize = 2;
/// Of so many processes one has its log on a full device, if it is a worker.
const FULL_LOG_EVERY: u64 = 3;
/// Most jobs of an action that agx submits.
const MOST_LINES: usize = 20;

/// Those that run; killed when dropped.
pub(super) struct Fleet<'a> {
    lab: &'a Lab,
    place: &'a Place,
    ledger: &'a Ledger,
    rng: Rng,
    workers: Vec<Worker>,
    clients: Vec<Client>,
    /// How many were started: the names of the next.
    started: u64,
}

struct Worker {
    child: Child,
    id: String,
    /// Whether its log can be written.
    has_log: bool,
    /// When it is to go on, where it was suspended.
    suspended_until: Option<Instant>,
}

struct Client {
    child: Child,
    id: String,
    inputs: Vec<String>,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(lab: &'a Lab, place: &'a Place, ledger: &'a Ledger, rng: Rng) -> Self {
        Self { lab, place, ledger, rng, workers: Vec::new(), clients: Vec::new(), started: 0 }
    }

    /// Resumes who was suspended for long enough, and starts new ones for those that have ended.
    pub(super) fn tend(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        for worker in &mut self.workers {
            if worker.suspended_until.is_some_and(|until| until <= now) {
                worker.resume();
            }
        }
        self.tend_workers()?;
        self.settle_clients()?;
        while self.clients.len() < CLIENTS && !self.ledger.is_over() {
            let client = self.start_client()?;
            self.clients.push(client);
        }
        Ok(())
    }

    /// Resumes everybody.
    pub(super) fn calm(&mut self) {
        self.workers.iter_mut().for_each(Worker::resume);
    }

    /// Whether an agx is still at work.
    pub(super) fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// SIGKILL to a worker.
    pub(super) fn kill_worker(&mut self) -> anyhow::Result<()> {
        let at = self.rng.usize(..self.workers.len());
        end(&mut self.workers.swap_remove(at).child)?;
        Ok(())
    }

    /// SIGSTOP to a worker; it goes on when it is tended to after so long.
    pub(super) fn suspend_worker(&mut self, duration: Duration) {
        let at = self.rng.usize(..self.workers.len());
        let worker = &mut self.workers[at];
        signal(&worker.child, Signal::STOP);
        worker.suspended_until = Some(Instant::now() + duration);
    }

    /// SIGKILL to an agx, if there is one.
    pub(super) fn kill_client(&mut self) -> anyhow::Result<bool> {
        self.settle_clients()?;
        if self.clients.is_empty() {
            return Ok(false);
        }
        let at = self.rng.usize(..self.clients.len());
        let mut client = self.clients.swap_remove(at);
        end(&mut client.child)?;
        self.take_word(client);
        Ok(true)
    }

    fn tend_workers(&mut self) -> anyhow::Result<()> {
        let mut living = Vec::new();
        for mut worker in self.workers.drain(..) {
            match worker.child.try_wait()? {
                None => living.push(worker),
                Some(status) if worker.has_log => excuse(self.ledger, self.lab, &worker.id, status),
                // A worker may give up where it has a reason, and a panic is none.
                Some(status) if status.code() == Some(1) => {
                    self.ledger.note("workers without a log that gave up");
                }
                Some(status) => {
                    self.ledger.lost(format!("{}, without a log, ended with {status}", worker.id));
                }
            }
        }
        self.workers = living;
        while self.workers.len() < WORKERS {
            let worker = self.start_worker()?;
            self.workers.push(worker);
        }
        Ok(())
    }

    fn start_worker(&mut self) -> anyhow::Result<Worker> {
        self.started += 1;
        let id = format!("worker-{}", self.started);
        let mut agw = self.command("agw", &id)?;
        agw.args(["--worker-id", &id, "--max-concurrent-jobs", "4"]);
        let has_log = !self.started.is_multiple_of(FULL_LOG_EVERY);
        if !has_log {
            agw.stderr(File::options().write(true).open("/dev/full").context("there is no /dev/full")?);
        }
        Ok(Worker {
            child: agw.spawn().context("agw cannot be started")?,
            id,
            has_log,
            suspended_until: None,
        })
    }

    fn start_client(&mut self) -> anyhow::Result<Client> {
        self.started += 1;
        let id = format!("agx-{}", self.started);
        let inputs: Vec<String> = (0..self.rng.usize(1..=MOST_LINES)).map(|n| format!("{id}-{n}")).collect();
        let lines = self.lab.file(&format!("{id}.lines"), &(inputs.join("\n") + "\n"));
        let mut agx = self.command("agx", &id)?;
        agx.args(["action", "submit", PLAN, "--id", &id, "--field", "n", "--wait", "--lines"]).arg(lines);
        Ok(Client { child: agx.spawn().context("agx cannot be started")?, id, inputs })
    }

    /// One of our programs behind the proxy, with a log of its own.
    fn command(&self, program: &str, id: &str) -> anyhow::Result<Command> {
        let log = File::create(self.lab.path().join(format!("{id}.log")))?;
        let mut command = self.lab.command(program);
        command.env("AGQ_ADDR", &self.place.proxy).stdout(Stdio::null()).stderr(log);
        Ok(command)
    }

    /// Looks at every agx that has ended.
    fn settle_clients(&mut self) -> anyhow::Result<()> {
        for mut client in std::mem::take(&mut self.clients) {
            match client.child.try_wait()? {
                None => self.clients.push(client),
                Some(status) => {
                    // 1 says that a job did not complete: the ledger will show why. 3, that agq was not there at once.
                    if !matches!(status.code(), Some(0 | 1 | 3)) {
                        excuse(self.ledger, self.lab, &client.id, status);
                    }
                    self.take_word(client);
                }
            }
        }
        Ok(())
    }

    /// What agx said to be acknowledged is, however it ended.
    fn take_word(&self, client: Client) {
        let Client { id, inputs, .. } = client;
        if log_of(self.lab, &id).contains(&format!("action {id} has {} jobs", inputs.len())) {
            self.ledger.acknowledged("of the actions by agx", 1);
            self.ledger.action(&id, inputs);
        }
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        let workers = self.workers.iter_mut().map(|worker| &mut worker.child);
        for child in workers.chain(self.clients.iter_mut().map(|client| &mut client.child)) {
            // It may have ended already.
            let _ended = end(child);
        }
    }
}

impl Worker {
    fn resume(&mut self) {
        if self.suspended_until.take().is_some() {
            signal(&self.child, Signal::CONT);
        }
    }
}

/// Nobody gives up but on a full disk.
fn excuse(ledger: &Ledger, lab: &Lab, id: &str, status: ExitStatus) {
    let log = log_of(lab, id);
    if log.contains("the store failed") {
        ledger.note("workers and clients that gave up on a full disk");
    } else {
        ledger.lost(format!("{id} ended with {status}: {}", log.trim_end()));
    }
}

/// What one of them has said.
fn log_of(lab: &Lab, id: &str) -> String {
    std::fs::read_to_string(lab.path().join(format!("{id}.log"))).unwrap_or_default()
}

fn end(child: &mut Child) -> std::io::Result<ExitStatus> {
    child.kill()?;
    child.wait()
}

fn signal(child: &Child, signal: Signal) {
    // One that was not waited for has its process id still.
    let pid = Pid::from_raw(child.id().cast_signed());
    let _gone = pid.map(|pid| kill_process(pid, signal));
}
