//! Injects faults into agq, workers, clients, and the network between them, one after the other.

use std::{fs, time::Duration};

use e2e::{Agq, Lab, Proxy, ResourceLimit, within};
use fastrand::Rng;

use super::{
    Endpoints,
    check::check_stream,
    fleet::Fleet,
    health,
    ledger::{ChaosLedger, KeyVersions, Kind},
    log::FailingLog,
    memory, pause,
    resp::{Resp, RespReply, connect},
    stampede,
};

/// Faults of a round, some kinds several times. Each round has its own order.
const ROUND: [InjectedFault; 27] = [
    InjectedFault::KillAgq,
    InjectedFault::KillAgq,
    InjectedFault::KillAgq,
    InjectedFault::SuspendAgq,
    InjectedFault::KillWorker,
    InjectedFault::KillWorker,
    InjectedFault::SuspendWorker,
    InjectedFault::SuspendWorker,
    InjectedFault::KillSupervisor,
    InjectedFault::KillSupervisor,
    InjectedFault::SuspendSupervisor,
    InjectedFault::SuspendSupervisor,
    InjectedFault::KillClient,
    InjectedFault::KillClient,
    InjectedFault::CutAnywhere,
    InjectedFault::CutAnywhere,
    InjectedFault::CutAnywhere,
    InjectedFault::CutAll,
    InjectedFault::PauseNetwork,
    InjectedFault::PauseNetwork,
    InjectedFault::DelayNetwork,
    InjectedFault::FillDisk,
    InjectedFault::ExhaustDescriptors,
    InjectedFault::Stampede,
    InjectedFault::BreakLog,
    InjectedFault::BreakLog,
    InjectedFault::Stream,
];
/// Number and size of the values that fill a disk.
const FILLINGS: usize = 512;
const FILLING_BYTES: usize = 256 * 1024;
/// Greatest free space of a disk that is nearly full.
const MAX_FREE_BYTES: u64 = 1024 * 1024;
/// Limit of file descriptors of agq, and number of connections that exhaust it.
const DESCRIPTORS: u64 = 64;
const FLOOD: usize = 200;
/// Time within which agq has to exit by itself, or to accept connections again.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy)]
enum InjectedFault {
    KillAgq,
    SuspendAgq,
    KillWorker,
    SuspendWorker,
    KillSupervisor,
    SuspendSupervisor,
    KillClient,
    CutAnywhere,
    CutAll,
    PauseNetwork,
    DelayNetwork,
    FillDisk,
    ExhaustDescriptors,
    Stampede,
    BreakLog,
    Stream,
}

pub(super) struct FaultInjector<'a> {
    lab: &'a Lab,
    endpoints: &'a Endpoints,
    ledger: &'a ChaosLedger,
    agq: Agq,
    proxy: Proxy,
    rng: Rng,
    /// Remaining faults of this round.
    round: Vec<InjectedFault>,
    /// Number of filled disks, for the names of the next values.
    filled: u64,
    /// Number of broken logs, for the names of the next checks.
    broken_logs: u64,
}

impl<'a> FaultInjector<'a> {
    pub(super) fn new(
        (lab, endpoints, ledger): (&'a Lab, &'a Endpoints, &'a ChaosLedger),
        (agq, proxy): (Agq, Proxy),
        rng: Rng,
    ) -> Self {
        Self { lab, endpoints, ledger, agq, proxy, rng, round: Vec::new(), filled: 0, broken_logs: 0 }
    }

    /// Injects the next fault. The faults of a round come in random order.
    ///
    /// # Errors
    ///
    /// agq does not start any more.
    pub(super) fn next(&mut self, fleet: &mut Fleet<'_>) -> anyhow::Result<()> {
        if self.round.is_empty() {
            self.round.extend(ROUND);
            self.rng.shuffle(&mut self.round);
        }
        match self.round.pop() {
            Some(InjectedFault::KillAgq) => self.kill_agq()?,
            Some(InjectedFault::SuspendAgq) => self.suspend_agq(fleet)?,
            Some(InjectedFault::KillWorker) => self.kill_worker(fleet)?,
            Some(InjectedFault::SuspendWorker) => {
                self.ledger.fault("worker suspended (SIGSTOP)");
                fleet.suspend_worker(self.milliseconds(1000, 5000));
            }
            Some(InjectedFault::KillSupervisor) => self.kill_supervisor(fleet),
            Some(InjectedFault::SuspendSupervisor) => self.suspend_supervisor(fleet),
            Some(InjectedFault::KillClient) => self.kill_client(fleet)?,
            Some(InjectedFault::CutAnywhere) => {
                let bytes = 1 << self.rng.u32(4..14);
                let cut = self.proxy.cut_after(bytes);
                (0..cut).for_each(|_| self.ledger.fault("connection cut after a random byte"));
            }
            Some(InjectedFault::CutAll) => {
                let cut = self.proxy.cut_all();
                (0..cut).for_each(|_| self.ledger.fault("connection cut at once"));
            }
            Some(InjectedFault::PauseNetwork) => {
                self.ledger.fault("network held up");
                let duration = self.milliseconds(500, 3000);
                self.proxy.pause(duration);
            }
            Some(InjectedFault::DelayNetwork) => self.delay_network(),
            Some(InjectedFault::FillDisk) => self.fill_disk()?,
            Some(InjectedFault::ExhaustDescriptors) => self.exhaust_descriptors()?,
            Some(InjectedFault::Stampede) => self.stampede(),
            Some(InjectedFault::BreakLog) => self.break_log()?,
            Some(InjectedFault::Stream) => {
                self.ledger.fault("a long stream into agx map --pipe");
                memory::check(self.lab).into_iter().for_each(|wrong| self.ledger.lost(wrong));
            }
            None => {}
        }
        Ok(())
    }

    /// Ends delays and cuts of the network.
    pub(super) fn stop_faults(&mut self) {
        self.proxy.calm();
    }

    /// Kills agq with SIGKILL, and starts it on the same data.
    pub(super) fn kill_agq(&mut self) -> anyhow::Result<()> {
        self.ledger.fault("agq killed (SIGKILL) and started again");
        self.end_agq();
        self.start_agq()
    }

    fn end_agq(&mut self) {
        self.endpoints.mark_ending();
        self.agq.kill();
    }

    fn start_agq(&mut self) -> anyhow::Result<()> {
        self.agq.try_start_again(self.lab, None).map_err(anyhow::Error::msg)?;
        self.endpoints.mark_started(self.agq.http_address());
        Ok(())
    }

    /// Runs agq with a log that cannot be written, and checks that agq works as before.
    fn break_log(&mut self) -> anyhow::Result<()> {
        self.ledger.fault("log of agq not writable");
        self.end_agq();
        let mut log = FailingLog::at(&self.lab.path().join("agq.log"), self.rng.bool())?;
        self.start_agq()?;
        self.broken_logs += 1;
        let name = format!("health-{}", self.broken_logs);
        let wrong = match health::register_silent(self.endpoints, &name) {
            Ok(()) => {
                log.break_pipe(self.milliseconds(500, 5000))?;
                health::check(self.endpoints, &name)
            }
            Err(error) => Some(format!("agq does not register a worker: {error}")),
        };
        if let Some(wrong) = wrong {
            self.ledger.lost(format!("with a log that cannot be written, {wrong}"));
        }
        if let Some(status) = self.agq.ended() {
            self.ledger.lost(format!("with a log that cannot be written agq ended with {status}"));
        }
        self.end_agq();
        drop(log);
        self.start_agq()
    }

    fn suspend_agq(&mut self, fleet: &mut Fleet<'_>) -> anyhow::Result<()> {
        self.ledger.fault("agq suspended (SIGSTOP)");
        self.agq.suspend();
        pause(self.milliseconds(500, 1500));
        if self.rng.bool() {
            self.kill_worker(fleet)?;
        }
        pause(self.milliseconds(500, 1500));
        self.agq.resume();
        Ok(())
    }

    fn kill_worker(&mut self, fleet: &mut Fleet<'_>) -> anyhow::Result<()> {
        self.ledger.fault("worker killed (SIGKILL)");
        fleet.kill_worker()?;
        fleet.maintain()
    }

    fn kill_supervisor(&self, fleet: &mut Fleet<'_>) {
        if fleet.kill_supervisor() {
            self.ledger.fault("sandbox supervisor killed (SIGKILL)");
        }
    }

    fn suspend_supervisor(&mut self, fleet: &mut Fleet<'_>) {
        if fleet.suspend_supervisor(self.milliseconds(1000, 8000)) {
            self.ledger.fault("sandbox supervisor suspended (SIGSTOP)");
        }
    }

    fn kill_client(&mut self, fleet: &mut Fleet<'_>) -> anyhow::Result<()> {
        if fleet.kill_client()? {
            self.ledger.fault("agx killed (SIGKILL)");
        }
        Ok(())
    }

    fn delay_network(&mut self) {
        self.ledger.fault("network slowed down");
        let by = self.milliseconds(5, 100);
        self.proxy.delay(by);
        pause(self.milliseconds(500, 2000));
        self.proxy.delay(Duration::ZERO);
    }

    /// Runs agq on a disk with little or no free space, and writes until agq exits. Then checks the
    /// writes that were acknowledged.
    fn fill_disk(&mut self) -> anyhow::Result<()> {
        self.ledger.fault("disk filled");
        self.end_agq();
        let size = |name| fs::metadata(self.lab.path().join(name)).map_or(0, |metadata| metadata.len());
        let (data, log) = (size("data/agq.redb"), size("agq.log"));
        // The limit applies to the log, too.
        let bytes = self.rng.u64(data - data / 8..data + MAX_FREE_BYTES).max(log + MAX_FREE_BYTES);
        if self.agq.try_start_again(self.lab, Some(ResourceLimit::FileBytes(bytes))).is_err() {
            self.ledger.note("full disks on which agq did not start");
            return self.start_agq();
        }
        let filled = self.fill();
        match within(TIMEOUT, || self.agq.ended()) {
            Some(status) if status.code() == Some(1) => self.ledger.note("full disks that agq named"),
            Some(_) => self.ledger.note("full disks on which agq was ended by a signal"),
            None if filled.len() < FILLINGS => {
                self.ledger.lost("agq neither wrote nor ended on a full disk".into());
            }
            None => self.ledger.note("disks that were large enough"),
        }
        self.agq.kill();
        self.start_agq()?;
        let mut resp = Resp::open(&self.endpoints.agq, &self.endpoints.key)?;
        for stream in &filled {
            check_stream(&mut resp, self.ledger, stream)?;
            resp.ask(&["DEL", &stream.key])?;
        }
        Ok(())
    }

    /// Writes large values until one is not acknowledged. Returns the acknowledged values.
    fn fill(&mut self) -> Vec<KeyVersions> {
        self.filled += 1;
        let text = format!("1:{}", "x".repeat(FILLING_BYTES));
        let mut filled = Vec::new();
        let Ok(mut resp) = Resp::open(&self.endpoints.agq, &self.endpoints.key) else { return filled };
        for number in 0..FILLINGS {
            let key = format!("chaos:filling-{}-{number}", self.filled);
            let Ok(RespReply::Line(_ok)) = resp.ask(&["SET", &key, &text]) else { break };
            filled.push(KeyVersions { key, kind: Kind::Value, acknowledged: 1, sent: 1 });
        }
        filled
    }

    /// Opens more connections than agq has file descriptors. agq has to serve its open connections,
    /// and to accept others when these are closed.
    fn exhaust_descriptors(&mut self) -> anyhow::Result<()> {
        self.ledger.fault("file descriptors exhausted");
        self.end_agq();
        let limit = Some(ResourceLimit::Descriptors(DESCRIPTORS));
        self.agq.try_start_again(self.lab, limit).map_err(anyhow::Error::msg)?;
        let mut resp = self.connect_within_timeout()?;
        let flood: Vec<_> = (0..FLOOD).map(|_| connect(&self.endpoints.agq)).collect();
        let served = resp.ask(&["PING"]);
        if !matches!(served, Ok(RespReply::Line(_))) {
            let loss = "without file descriptors agq did not serve a connection that it had";
            self.ledger.lost(format!("{loss}: {served:?}"));
        }
        drop(flood);
        self.connect_within_timeout()?;
        if let Some(status) = self.agq.ended() {
            self.ledger.lost(format!("without file descriptors agq ended with {status}"));
        }
        self.agq.kill();
        self.start_agq()
    }

    /// Connects as soon as agq accepts a connection.
    fn connect_within_timeout(&self) -> anyhow::Result<Resp> {
        let opened = within(TIMEOUT, || Resp::open(&self.endpoints.agq, &self.endpoints.key).ok());
        opened.ok_or_else(|| {
            anyhow::anyhow!("agq accepts no connection, although it has file descriptors again")
        })
    }

    fn stampede(&self) {
        self.ledger.fault("five hundred workers at once");
        let (served, why) = stampede::run(self.endpoints);
        if let Some(why) = why {
            let all = stampede::WORKERS;
            self.ledger
                .lost(format!("{served} of {all} workers at once were served, the first other: {why}"));
        }
    }

    fn milliseconds(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.rng.u64(least..most))
    }
}
