//! Keeps a number of workers and agx processes running, and kills or suspends them.

use std::{
    fs::File,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use e2e::Lab;
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};

use super::{Endpoints, PLAN, ledger::ChaosLedger, sandboxes::WorkerSandboxes};

const WORKERS: usize = 3;
const CLIENTS: usize = 2;
/// One in this many processes has its log on a full device, if it is a worker.
const FULL_LOG_EVERY: u64 = 3;
/// One in this many processes runs its jobs in a sandbox, if it is a worker.
const SANDBOX_EVERY: u64 = 2;
/// Greatest number of jobs of an action that agx submits.
const MAX_LINES: usize = 20;

/// Running workers and agx processes, which are killed when the fleet is dropped.
pub(super) struct Fleet<'a> {
    lab: &'a Lab,
    endpoints: &'a Endpoints,
    ledger: &'a ChaosLedger,
    rng: Rng,
    workers: Vec<AgwProcess>,
    clients: Vec<AgxProcess>,
    sandboxes: WorkerSandboxes,
    /// Number of started processes, for the names of the next.
    started: u64,
}

struct AgwProcess {
    child: Child,
    id: String,
    /// True if the log of the worker can be written.
    has_log: bool,
    /// Time at which the worker is resumed, if it is suspended.
    suspended_until: Option<Instant>,
}

struct AgxProcess {
    child: Child,
    id: String,
    inputs: Vec<String>,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(
        lab: &'a Lab,
        endpoints: &'a Endpoints,
        ledger: &'a ChaosLedger,
        rng: Rng,
    ) -> anyhow::Result<Self> {
        let sandboxes = WorkerSandboxes::prepare(lab, ledger)?;
        let (workers, clients) = (Vec::new(), Vec::new());
        Ok(Self { lab, endpoints, ledger, rng, workers, clients, sandboxes, started: 0 })
    }

    /// Resumes workers whose suspension is over, and replaces processes that have exited.
    pub(super) fn maintain(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        for worker in &mut self.workers {
            if worker.suspended_until.is_some_and(|until| until <= now) {
                worker.resume();
            }
        }
        self.sandboxes.resume(Some(now));
        self.maintain_workers()?;
        self.reap_clients()?;
        while self.clients.len() < CLIENTS && !self.ledger.is_over() {
            let client = self.start_client()?;
            self.clients.push(client);
        }
        Ok(())
    }

    /// Resumes all workers and supervisors.
    pub(super) fn stop_faults(&mut self) {
        self.workers.iter_mut().for_each(AgwProcess::resume);
        self.sandboxes.resume(None);
    }

    /// Kills a process of a sandbox supervisor with SIGKILL. Returns false if there is no such
    /// process.
    pub(super) fn kill_supervisor(&mut self) -> bool {
        let workers = self.worker_ids();
        self.sandboxes.kill_one(&workers, &mut self.rng)
    }

    /// Suspends a process of a sandbox supervisor. [`Self::maintain`] resumes it after `duration`.
    /// Returns false if there is no such process.
    pub(super) fn suspend_supervisor(&mut self, duration: Duration) -> bool {
        let workers = self.worker_ids();
        self.sandboxes.suspend_one(&workers, Instant::now() + duration, &mut self.rng)
    }

    /// Kills all workers, and returns the supervisors that outlive them.
    pub(super) fn end_workers(&mut self) -> anyhow::Result<Vec<i32>> {
        for mut worker in self.workers.drain(..) {
            end(&mut worker.child)?;
        }
        Ok(self.sandboxes.left())
    }

    fn worker_ids(&self) -> Vec<u32> {
        self.workers.iter().map(|worker| worker.child.id()).collect()
    }

    /// Returns true if an agx is still running.
    pub(super) fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Kills a worker with SIGKILL.
    pub(super) fn kill_worker(&mut self) -> anyhow::Result<()> {
        let at = self.rng.usize(..self.workers.len());
        end(&mut self.workers.swap_remove(at).child)?;
        Ok(())
    }

    /// Suspends a worker with SIGSTOP. [`Self::maintain`] resumes it after `duration`.
    pub(super) fn suspend_worker(&mut self, duration: Duration) {
        let at = self.rng.usize(..self.workers.len());
        let worker = &mut self.workers[at];
        signal(&worker.child, Signal::STOP);
        worker.suspended_until = Some(Instant::now() + duration);
    }

    /// Kills an agx with SIGKILL. Returns false if there is no agx.
    pub(super) fn kill_client(&mut self) -> anyhow::Result<bool> {
        self.reap_clients()?;
        if self.clients.is_empty() {
            return Ok(false);
        }
        let at = self.rng.usize(..self.clients.len());
        let mut client = self.clients.swap_remove(at);
        end(&mut client.child)?;
        self.record_submission(client);
        Ok(true)
    }

    fn maintain_workers(&mut self) -> anyhow::Result<()> {
        let mut living = Vec::new();
        for mut worker in self.workers.drain(..) {
            match worker.child.try_wait()? {
                None => living.push(worker),
                Some(status) if worker.has_log => judge_exit(self.ledger, self.lab, &worker.id, status),
                // A worker may exit with an error, but not with a panic.
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

    fn start_worker(&mut self) -> anyhow::Result<AgwProcess> {
        self.started += 1;
        let id = format!("worker-{}", self.started);
        let mut agw = self.command("agw", &id)?;
        agw.args(["--worker-id", &id, "--max-concurrent-jobs", "4"]);
        if let Some(config) = self.sandboxes.config()
            && self.started.is_multiple_of(SANDBOX_EVERY)
        {
            agw.arg("--config").arg(config);
        }
        let has_log = !self.started.is_multiple_of(FULL_LOG_EVERY);
        if !has_log {
            agw.stderr(File::options().write(true).open("/dev/full").context("there is no /dev/full")?);
        }
        Ok(AgwProcess {
            child: agw.spawn().context("agw cannot be started")?,
            id,
            has_log,
            suspended_until: None,
        })
    }

    fn start_client(&mut self) -> anyhow::Result<AgxProcess> {
        self.started += 1;
        let id = format!("agx-{}", self.started);
        let inputs: Vec<String> = (0..self.rng.usize(1..=MAX_LINES)).map(|n| format!("{id}-{n}")).collect();
        let lines = self.lab.file(&format!("{id}.lines"), &(inputs.join("\n") + "\n"));
        let mut agx = self.command("agx", &id)?;
        agx.args(["action", "submit", PLAN, "--id", &id, "--field", "n", "--wait", "--lines"]).arg(lines);
        Ok(AgxProcess { child: agx.spawn().context("agx cannot be started")?, id, inputs })
    }

    /// Returns a command that reaches agq through the proxy, and has its own log.
    fn command(&self, program: &str, id: &str) -> anyhow::Result<Command> {
        let log = File::create(self.lab.path().join(format!("{id}.log")))?;
        let mut command = self.lab.command(program);
        command.env("AGQ_ADDR", &self.endpoints.proxy).stdout(Stdio::null()).stderr(log);
        Ok(command)
    }

    /// Removes each agx that has exited, and judges its exit.
    fn reap_clients(&mut self) -> anyhow::Result<()> {
        for mut client in std::mem::take(&mut self.clients) {
            match client.child.try_wait()? {
                None => self.clients.push(client),
                Some(status) => {
                    // 1 means that a job did not complete, which the ledger checks; 3, that agq was
                    // not reachable.
                    if !matches!(status.code(), Some(0 | 1 | 3)) {
                        judge_exit(self.ledger, self.lab, &client.id, status);
                    }
                    self.record_submission(client);
                }
            }
        }
        Ok(())
    }

    /// Records the action if agx printed that it was acknowledged, whatever its exit.
    fn record_submission(&self, client: AgxProcess) {
        let AgxProcess { id, inputs, .. } = client;
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
            // The process may have exited already.
            let _ended = end(child);
        }
    }
}

impl AgwProcess {
    fn resume(&mut self) {
        if self.suspended_until.take().is_some() {
            signal(&self.child, Signal::CONT);
        }
    }
}

/// Records a loss for an exit that no full disk explains.
fn judge_exit(ledger: &ChaosLedger, lab: &Lab, id: &str, status: ExitStatus) {
    let log = log_of(lab, id);
    if log.contains("the store failed") {
        ledger.note("workers and clients that gave up on a full disk");
    } else {
        ledger.lost(format!("{id} ended with {status}: {}", log.trim_end()));
    }
}

/// Returns the log of a process.
fn log_of(lab: &Lab, id: &str) -> String {
    std::fs::read_to_string(lab.path().join(format!("{id}.log"))).unwrap_or_default()
}

fn end(child: &mut Child) -> std::io::Result<ExitStatus> {
    child.kill()?;
    child.wait()
}

fn signal(child: &Child, signal: Signal) {
    // A process that was not waited for still has its id.
    let pid = Pid::from_raw(child.id().cast_signed());
    let _gone = pid.map(|pid| kill_process(pid, signal));
}
