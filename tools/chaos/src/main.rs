//! `cargo xtask chaos`: the real binaries at work while everything that can happen to them happens, from a seed. In the end
//! everything that was acknowledged is there, or the run has failed.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "this is a command: its progress is its output")]

mod check;
mod faults;
mod fleet;
mod health;
mod http;
mod ledger;
mod listeners;
mod log;
mod memory;
mod producers;
mod stampede;
mod summary;
mod watch;

use std::{
    io::IsTerminal,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use agenix_harness::{
    binaries,
    resp::{self, Reply, Resp},
};
use anyhow::{Context, bail, ensure};
use clap::Parser;
use e2e::{Lab, Proxy};
use fastrand::Rng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use faults::Mischief;
use fleet::Fleet;
use ledger::Ledger;
use producers::Producer;

/// The plan of every action, and the file to which each of its jobs appends its input.
const PLAN: &str = "chaos";
const RUNS: &str = "runs";
const PRODUCERS: u64 = 4;
/// How long everything that was acknowledged may take to end when nothing happens any more.
const DRAIN_WITHIN: Duration = Duration::from_secs(120);
const TELL_EVERY: Duration = Duration::from_secs(5);
/// File descriptors that we and those that we start have, as far as the system allows.
const DESCRIPTORS: u64 = 4096;
/// A worker that dies and a claim that nobody reports are noticed soon; who connects from here is not counted.
const AGQ: [&str; 10] = [
    "--heartbeat-interval",
    "1",
    "--heartbeat-factor",
    "3",
    "--start-timeout",
    "2",
    "--max-connections-per-ip",
    "0",
    "--max-commands-per-second",
    "0",
];

/// Where agq is, straight and through the proxy, and how to log in.
struct Place {
    agq: String,
    proxy: String,
    key: String,
    /// Address of agq for HTTP, which another agq on the same data may change.
    http: Mutex<String>,
    /// Number of the life of agq. Odd while agq may end at any moment.
    life: AtomicU64,
}

impl Place {
    fn http(&self) -> String {
        self.http.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of the life of agq, or `None` while agq may end at any moment.
    fn life(&self) -> Option<u64> {
        Some(self.life.load(Ordering::SeqCst)).filter(|life| life.is_multiple_of(2))
    }

    /// Notes that agq may end at any moment from now on.
    fn doom(&self) {
        self.life.fetch_or(1, Ordering::SeqCst);
    }

    /// Notes a new agq, which is to live and listens for HTTP at this address.
    fn revive(&self, http: String) {
        *self.http.lock().unwrap_or_else(PoisonError::into_inner) = http;
        self.life.fetch_add(1, Ordering::SeqCst);
    }
}

/// What happens, and to whom.
struct Scene<'a> {
    mischief: Mischief<'a>,
    fleet: Fleet<'a>,
}

/// The real binaries at work while they are killed, stopped, cut off and starved at random: nothing may be lost
#[derive(Parser)]
#[command(bin_name = "cargo xtask chaos")]
struct Cli {
    /// For how long; fractions are fine
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The seed of an earlier run, to do the same again [default: a random one]
    #[arg(long)]
    seed: Option<u64>,
    /// Where the programs are [default: a release build of them]
    #[arg(long, value_name = "DIR")]
    bin: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Cli { minutes, seed, bin } = Cli::parse();
    match run(minutes, seed, bin) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs it for so many minutes, on the programs in `bin` or on a release build of them.
fn run(minutes: f64, seed: Option<u64>, bin: Option<PathBuf>) -> anyhow::Result<()> {
    ensure!(minutes.is_finite() && minutes > 0.0, "--minutes is a number above 0");
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let lab = Lab::with_binaries(bin.map_or_else(binaries::build, Ok)?);
    println!(
        "chaos for {minutes} minutes; to do the same again: cargo xtask chaos --minutes {minutes} --seed {seed}"
    );
    let ledger = Arc::new(Ledger::default());
    let done = live_through(&lab, &ledger, Duration::from_secs_f64(minutes * 60.0), seed);
    if let Err(error) = done {
        ledger.lost(format!("{error:#}"));
    }
    check::panicked(lab.path())?.into_iter().for_each(|line| ledger.lost(line));
    let lost = summary::print(&ledger, minutes, seed);
    if lost > 0 {
        let place = lab.path().display().to_string();
        // Its files say more than we do.
        std::mem::forget(lab);
        let first = ledger.book().lost.first().cloned().unwrap_or_default();
        bail!(
            "{lost} things are not as they were promised; the data and all logs are left in {place}: {first}"
        );
    }
    Ok(())
}

fn live_through(lab: &Lab, ledger: &Arc<Ledger>, bound: Duration, seed: u64) -> anyhow::Result<()> {
    allow_descriptors()?;
    let mut rng = Rng::with_seed(seed);
    let agq = lab.agq(&AGQ);
    let proxy = Proxy::start(agq.address(), rng.fork());
    let place = Arc::new(Place {
        agq: agq.address(),
        proxy: proxy.address(),
        key: lab.key().to_owned(),
        http: Mutex::new(agq.http_address()),
        life: AtomicU64::new(0),
    });
    submit_plan(&place)?;
    let load = start_load(&place, ledger, &mut rng);
    let fleet = Fleet::new(lab, &place, ledger, rng.fork());
    let mischief = Mischief::new((lab, &place, ledger), (agq, proxy), rng.fork());
    let mut scene = Scene { mischief, fleet };
    let troubled = trouble(&mut scene, ledger, bound, &mut rng);
    ledger.end();
    for thread in load {
        ensure!(thread.join().is_ok(), "a thread of the load panicked");
    }
    troubled?;
    scene.reckon(lab, &place, ledger)
}

/// Does one thing after the other until the time is over.
fn trouble(scene: &mut Scene<'_>, ledger: &Ledger, bound: Duration, rng: &mut Rng) -> anyhow::Result<()> {
    let (started, is_watched) = (Instant::now(), std::io::stdout().is_terminal());
    let mut told = started;
    while started.elapsed() < bound {
        scene.fleet.tend()?;
        pause(Duration::from_millis(rng.u64(200..1000)));
        scene.mischief.next(&mut scene.fleet)?;
        if is_watched && told.elapsed() > TELL_EVERY {
            told = Instant::now();
            println!("{:>5} s  {}", started.elapsed().as_secs(), summary::line(ledger));
        }
    }
    Ok(())
}

impl Scene<'_> {
    /// Lets everything end, kills agq once more, and compares it with the ledger.
    fn reckon(mut self, lab: &Lab, place: &Place, ledger: &Ledger) -> anyhow::Result<()> {
        self.mischief.calm();
        self.fleet.calm();
        let started = Instant::now();
        while !self.has_drained(place, ledger)? {
            if started.elapsed() > DRAIN_WITHIN {
                self.name_what_is_left(place, ledger);
                break;
            }
            pause(Duration::from_millis(100));
        }
        // What is right has to be so on the disk.
        self.mischief.kill_agq()?;
        let mut resp = Resp::open(&place.agq, &place.key)?;
        check::check(&mut resp, ledger, lab.path()).context("agq could not be asked in the end")
    }

    fn has_drained(&mut self, place: &Place, ledger: &Ledger) -> anyhow::Result<bool> {
        self.fleet.tend()?;
        let mut resp = Resp::open(&place.agq, &place.key).context("agq takes no connection in peace")?;
        watch::look(&mut resp, ledger).context("agq cannot be asked in peace")?;
        Ok(!self.fleet.has_clients() && ledger.unsettled().is_empty())
    }

    fn name_what_is_left(&self, place: &Place, ledger: &Ledger) {
        let seconds = DRAIN_WITHIN.as_secs();
        if self.fleet.has_clients() {
            ledger.lost(format!("an agx was still waiting {seconds} s after the last fault"));
        }
        for id in ledger.unsettled() {
            let status =
                Resp::open(&place.agq, &place.key).and_then(|mut resp| resp.ask(&["ACTION.STATUS", &id]));
            ledger.lost(format!("action {id} had not ended {seconds} s after the last fault: {status:?}"));
        }
    }
}

/// The plan of every action: two tasks, of which the first leaves a trace of each time that it runs.
fn submit_plan(place: &Place) -> anyhow::Result<()> {
    let script = format!(r#"echo "$1" >> {RUNS} && echo "$1""#);
    let plan = json!({
        "plan_id": PLAN,
        "max_retries": 5,
        "tasks": [
            {"task_number": 1, "command": "sh", "args": ["-c", script, "sh", "{{input.n}}"]},
            {"task_number": 2, "command": "sed", "args": ["s/^/done /"], "input_from_task": 1},
        ],
    });
    let mut resp = Resp::open(&place.agq, &place.key)?;
    match resp.ask(&["PLAN.SUBMIT", &plan.to_string()])? {
        Reply::Line(_ok) => Ok(()),
        other => bail!("the plan was answered {other:?}"),
    }
}

/// What a job of this input writes.
fn result_of(input: &str) -> String {
    format!("done {input}\n")
}

fn start_load(place: &Arc<Place>, ledger: &Arc<Ledger>, rng: &mut Rng) -> Vec<JoinHandle<()>> {
    let mut load: Vec<_> = (1..=PRODUCERS)
        .map(|number| {
            let (place, ledger, rng) = (Arc::clone(place), Arc::clone(ledger), rng.fork());
            thread::spawn(move || Producer::new(format!("p{number}"), &place, &ledger, rng).run())
        })
        .collect();
    load.extend(listeners::start(place, ledger, rng));
    let (place, ledger) = (Arc::clone(place), Arc::clone(ledger));
    load.push(thread::spawn(move || watch::watch(&place, &ledger)));
    load
}

/// Five hundred workers need more than many systems give by default.
fn allow_descriptors() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < most) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum })?;
    }
    Ok(())
}

/// Lets time pass, which is a part of the load and of the faults; nothing here waits for an event by it.
fn pause(duration: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the time that passes is a fault, or idleness")]
    thread::sleep(duration);
}
