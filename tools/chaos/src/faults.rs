//! What is done to agq, its workers, its clients and the network between them, one thing after the other.

use std::{fs, time::Duration};

use e2e::{Agq, Lab, Limit, Proxy, within};
use fastrand::Rng;

use super::{
    Place,
    check::check_stream,
    fleet::Fleet,
    health,
    ledger::{Kind, Ledger, Stream},
    log::FailingLog,
    memory, pause,
    resp::{Reply, Resp, connect},
    stampede,
};

/// Every kind, as often as it is to come in a round.
const ROUND: [Fault; 23] = [
    Fault::KillAgq,
    Fault::KillAgq,
    Fault::KillAgq,
    Fault::SuspendAgq,
    Fault::KillWorker,
    Fault::KillWorker,
    Fault::SuspendWorker,
    Fault::SuspendWorker,
    Fault::KillClient,
    Fault::KillClient,
    Fault::CutAnywhere,
    Fault::CutAnywhere,
    Fault::CutAnywhere,
    Fault::CutAll,
    Fault::HoldUp,
    Fault::HoldUp,
    Fault::SlowDown,
    Fault::FillDisk,
    Fault::TakeDescriptors,
    Fault::Stampede,
    Fault::BreakLog,
    Fault::BreakLog,
    Fault::Stream,
];
/// So many values fill a disk, if anything does; a long text in each.
const FILLINGS: usize = 512;
const FILLING_BYTES: usize = 256 * 1024;
/// What a full disk has left at most.
const LEFT_BYTES: u64 = 1024 * 1024;
const DESCRIPTORS: u64 = 64;
const FLOOD: usize = 200;
/// How long agq may take to end by itself, or to take connections again.
const SOON: Duration = Duration::from_secs(20);

#[derive(Clone, Copy)]
enum Fault {
    KillAgq,
    SuspendAgq,
    KillWorker,
    SuspendWorker,
    KillClient,
    CutAnywhere,
    CutAll,
    HoldUp,
    SlowDown,
    FillDisk,
    TakeDescriptors,
    Stampede,
    BreakLog,
    Stream,
}

/// Whoever does it.
pub(super) struct Mischief<'a> {
    lab: &'a Lab,
    place: &'a Place,
    ledger: &'a Ledger,
    agq: Agq,
    proxy: Proxy,
    rng: Rng,
    /// What is still to come in this round.
    round: Vec<Fault>,
    /// How often the disk was filled: the names of what fills it.
    filled: u64,
    /// How often the log was broken: the names of what agq does meanwhile.
    broken_logs: u64,
}

impl<'a> Mischief<'a> {
    pub(super) fn new(
        (lab, place, ledger): (&'a Lab, &'a Place, &'a Ledger),
        (agq, proxy): (Agq, Proxy),
        rng: Rng,
    ) -> Self {
        Self { lab, place, ledger, agq, proxy, rng, round: Vec::new(), filled: 0, broken_logs: 0 }
    }

    /// Does the next thing; the error says that agq does not start any more. Every kind comes once before one comes again.
    pub(super) fn next(&mut self, fleet: &mut Fleet<'_>) -> anyhow::Result<()> {
        if self.round.is_empty() {
            self.round.extend(ROUND);
            self.rng.shuffle(&mut self.round);
        }
        match self.round.pop() {
            Some(Fault::KillAgq) => self.kill_agq()?,
            Some(Fault::SuspendAgq) => self.suspend_agq(fleet)?,
            Some(Fault::KillWorker) => self.kill_worker(fleet)?,
            Some(Fault::SuspendWorker) => {
                self.ledger.fault("worker suspended (SIGSTOP)");
                fleet.suspend_worker(self.milliseconds(1000, 5000));
            }
            Some(Fault::KillClient) => self.kill_client(fleet)?,
            Some(Fault::CutAnywhere) => {
                let bytes = 1 << self.rng.u32(4..14);
                let cut = self.proxy.cut_after(bytes);
                (0..cut).for_each(|_| self.ledger.fault("connection cut after a random byte"));
            }
            Some(Fault::CutAll) => {
                let cut = self.proxy.cut_all();
                (0..cut).for_each(|_| self.ledger.fault("connection cut at once"));
            }
            Some(Fault::HoldUp) => {
                self.ledger.fault("network held up");
                let duration = self.milliseconds(500, 3000);
                self.proxy.pause(duration);
            }
            Some(Fault::SlowDown) => self.slow_down(),
            Some(Fault::FillDisk) => self.fill_disk()?,
            Some(Fault::TakeDescriptors) => self.take_descriptors()?,
            Some(Fault::Stampede) => self.stampede(),
            Some(Fault::BreakLog) => self.break_log()?,
            Some(Fault::Stream) => {
                self.ledger.fault("a long stream into agx map --pipe");
                memory::check(self.lab).into_iter().for_each(|wrong| self.ledger.lost(wrong));
            }
            None => {}
        }
        Ok(())
    }

    /// From now on nothing happens to anybody.
    pub(super) fn calm(&mut self) {
        self.proxy.calm();
    }

    /// SIGKILL to agq, and another on the same data.
    pub(super) fn kill_agq(&mut self) -> anyhow::Result<()> {
        self.ledger.fault("agq killed (SIGKILL) and started again");
        self.end_agq();
        self.start_agq()
    }

    fn end_agq(&mut self) {
        self.place.doom();
        self.agq.kill();
    }

    fn start_agq(&mut self) -> anyhow::Result<()> {
        self.agq.try_start_again(self.lab, None).map_err(anyhow::Error::msg)?;
        self.place.revive(self.agq.http_address());
        Ok(())
    }

    /// agq with a log that cannot be written. Every line that agq loses is followed by work that
    /// agq has to do as before.
    fn break_log(&mut self) -> anyhow::Result<()> {
        self.ledger.fault("log of agq not writable");
        self.end_agq();
        let mut log = FailingLog::at(&self.lab.path().join("agq.log"), self.rng.bool())?;
        self.start_agq()?;
        self.broken_logs += 1;
        let name = format!("health-{}", self.broken_logs);
        let wrong = match health::register_silent(self.place, &name) {
            Ok(()) => {
                log.break_pipe(self.milliseconds(500, 5000))?;
                health::check(self.place, &name)
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
        fleet.tend()
    }

    fn kill_client(&mut self, fleet: &mut Fleet<'_>) -> anyhow::Result<()> {
        if fleet.kill_client()? {
            self.ledger.fault("agx killed (SIGKILL)");
        }
        Ok(())
    }

    fn slow_down(&mut self) {
        self.ledger.fault("network slowed down");
        let by = self.milliseconds(5, 100);
        self.proxy.delay(by);
        pause(self.milliseconds(500, 2000));
        self.proxy.delay(Duration::ZERO);
    }

    /// agq on a disk that has no room for its file as it is, or little more; it is filled until agq gives up.
    fn fill_disk(&mut self) -> anyhow::Result<()> {
        self.ledger.fault("disk filled");
        self.end_agq();
        let size = |name| fs::metadata(self.lab.path().join(name)).map_or(0, |metadata| metadata.len());
        let (data, log) = (size("data/agq.redb"), size("agq.log"));
        // The log stands under the limit, too.
        let bytes = self.rng.u64(data - data / 8..data + LEFT_BYTES).max(log + LEFT_BYTES);
        if self.agq.try_start_again(self.lab, Some(Limit::FileBytes(bytes))).is_err() {
            self.ledger.note("full disks on which agq did not start");
            return self.start_agq();
        }
        let filled = self.fill();
        match within(SOON, || self.agq.ended()) {
            Some(status) if status.code() == Some(1) => self.ledger.note("full disks that agq named"),
            Some(_) => self.ledger.note("full disks on which agq was ended by a signal"),
            None if filled.len() < FILLINGS => {
                self.ledger.lost("agq neither wrote nor ended on a full disk".into());
            }
            None => self.ledger.note("disks that were large enough"),
        }
        self.agq.kill();
        self.start_agq()?;
        let mut resp = Resp::open(&self.place.agq, &self.place.key)?;
        for stream in &filled {
            check_stream(&mut resp, self.ledger, stream)?;
            resp.ask(&["DEL", &stream.key])?;
        }
        Ok(())
    }

    /// Writes large values until one is not acknowledged.
    fn fill(&mut self) -> Vec<Stream> {
        self.filled += 1;
        let text = format!("1:{}", "x".repeat(FILLING_BYTES));
        let mut filled = Vec::new();
        let Ok(mut resp) = Resp::open(&self.place.agq, &self.place.key) else { return filled };
        for number in 0..FILLINGS {
            let key = format!("chaos:filling-{}-{number}", self.filled);
            let Ok(Reply::Line(_ok)) = resp.ask(&["SET", &key, &text]) else { break };
            filled.push(Stream { key, kind: Kind::Value, acknowledged: 1, sent: 1 });
        }
        filled
    }

    /// agq with few file descriptors, and more connections than those: it has to serve the ones that it has, and to take
    /// others when those are gone.
    fn take_descriptors(&mut self) -> anyhow::Result<()> {
        self.ledger.fault("file descriptors exhausted");
        self.end_agq();
        let limit = Some(Limit::Descriptors(DESCRIPTORS));
        self.agq.try_start_again(self.lab, limit).map_err(anyhow::Error::msg)?;
        let mut resp = self.opened_soon()?;
        let flood: Vec<_> = (0..FLOOD).map(|_| connect(&self.place.agq)).collect();
        let served = resp.ask(&["PING"]);
        if !matches!(served, Ok(Reply::Line(_))) {
            let what = "without file descriptors agq did not serve a connection that it had";
            self.ledger.lost(format!("{what}: {served:?}"));
        }
        drop(flood);
        self.opened_soon()?;
        if let Some(status) = self.agq.ended() {
            self.ledger.lost(format!("without file descriptors agq ended with {status}"));
        }
        self.agq.kill();
        self.start_agq()
    }

    /// A connection, as soon as agq takes one.
    fn opened_soon(&self) -> anyhow::Result<Resp> {
        let opened = within(SOON, || Resp::open(&self.place.agq, &self.place.key).ok());
        opened.ok_or_else(|| anyhow::anyhow!("agq takes no connection, though it has file descriptors again"))
    }

    fn stampede(&self) {
        self.ledger.fault("five hundred workers at once");
        let (served, why) = stampede::run(self.place);
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
