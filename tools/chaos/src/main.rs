//! `cargo xtask chaos`: runs the real binaries under load, and injects faults in the order of a
//! seed. At the end everything that was acknowledged must be there.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "progress and results go to stdout")]

mod check;
mod connections;
mod faults;
mod fleet;
mod health;
mod http;
mod ledger;
mod log;
mod memory;
mod producers;
mod progress;
mod sandboxes;
mod stampede;
mod summary;

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
    resp::{self, Resp, RespReply},
};
use anyhow::{Context, bail, ensure};
use clap::Parser;
use e2e::{Lab, Proxy};
use fastrand::Rng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use faults::FaultInjector;
use fleet::Fleet;
use ledger::ChaosLedger;
use producers::Producer;

/// Plan of all actions, and the file to which each of its jobs appends its input.
const PLAN: &str = "chaos";
const RUNS: &str = "runs";
const PRODUCERS: u64 = 4;
/// Time within which all acknowledged jobs have to end after the last fault.
const DRAIN_WITHIN: Duration = Duration::from_secs(120);
const PRINT_EVERY: Duration = Duration::from_secs(5);
/// File descriptors of this process and of its children, as far as the system allows.
const DESCRIPTORS: u64 = 4096;
/// agq notices dead workers and lost claims soon, and does not limit clients.
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

/// Addresses of agq, directly and through the proxy, and the key to log in.
struct Endpoints {
    agq: String,
    proxy: String,
    key: String,
    /// Address of agq for HTTP, which another agq on the same data may change.
    http: Mutex<String>,
    /// Number of the agq process. Odd while agq may end at any moment.
    generation: AtomicU64,
}

impl Endpoints {
    fn http(&self) -> String {
        self.http.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of the agq process, or `None` while it may end at any moment.
    fn generation(&self) -> Option<u64> {
        Some(self.generation.load(Ordering::SeqCst)).filter(|generation| generation.is_multiple_of(2))
    }

    /// Records that agq may end at any moment from now on.
    fn mark_ending(&self) {
        self.generation.fetch_or(1, Ordering::SeqCst);
    }

    /// Records a new agq process, which listens for HTTP at this address.
    fn mark_started(&self, http: String) {
        *self.http.lock().unwrap_or_else(PoisonError::into_inner) = http;
        self.generation.fetch_add(1, Ordering::SeqCst);
    }
}

/// Faults, and the workers and clients that they hit.
struct ChaosRun<'a> {
    injector: FaultInjector<'a>,
    fleet: Fleet<'a>,
}

/// Kill, suspend, disconnect and starve the real binaries at random, and check that nothing is lost
#[derive(Parser)]
#[command(bin_name = "cargo xtask chaos")]
struct Cli {
    /// Time under faults, which may be a fraction
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Seed of an earlier run, to repeat its faults [default: a random one]
    #[arg(long)]
    seed: Option<u64>,
    /// Directory of the programs [default: that of a release build]
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

/// Runs chaos on the programs in `bin`, or on a release build.
fn run(minutes: f64, seed: Option<u64>, bin: Option<PathBuf>) -> anyhow::Result<()> {
    ensure!(minutes.is_finite() && minutes > 0.0, "--minutes is a number above 0");
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let lab = Lab::with_binaries(bin.map_or_else(binaries::build, Ok)?);
    println!(
        "chaos for {minutes} minutes; to repeat it: cargo xtask chaos --minutes {minutes} --seed {seed}"
    );
    let ledger = Arc::new(ChaosLedger::default());
    let done = run_with_faults(&lab, &ledger, Duration::from_secs_f64(minutes * 60.0), seed);
    if let Err(error) = done {
        ledger.lost(format!("{error:#}"));
    }
    check::panicked(lab.path())?.into_iter().for_each(|line| ledger.lost(line));
    let lost = summary::print(&ledger, minutes, seed);
    if lost > 0 {
        let directory = lab.path().display().to_string();
        // The directory stays, because its files show more than the messages.
        std::mem::forget(lab);
        let first = ledger.content().lost.first().cloned().unwrap_or_default();
        bail!("{lost} promises are broken; the data and all logs are in {directory}: {first}");
    }
    Ok(())
}

fn run_with_faults(lab: &Lab, ledger: &Arc<ChaosLedger>, bound: Duration, seed: u64) -> anyhow::Result<()> {
    allow_descriptors()?;
    let mut rng = Rng::with_seed(seed);
    let agq = lab.agq(&AGQ);
    let proxy = Proxy::start(agq.address(), rng.fork());
    let endpoints = Arc::new(Endpoints {
        agq: agq.address(),
        proxy: proxy.address(),
        key: lab.key().to_owned(),
        http: Mutex::new(agq.http_address()),
        generation: AtomicU64::new(0),
    });
    submit_plan(&endpoints, lab)?;
    let load = start_load(&endpoints, ledger, &mut rng);
    let fleet = Fleet::new(lab, &endpoints, ledger, rng.fork())?;
    let injector = FaultInjector::new((lab, &endpoints, ledger), (agq, proxy), rng.fork());
    let mut run_state = ChaosRun { injector, fleet };
    let injected = inject_until(&mut run_state, ledger, bound, &mut rng);
    ledger.end();
    for thread in load {
        ensure!(thread.join().is_ok(), "a thread of the load panicked");
    }
    injected?;
    run_state.verify(lab, &endpoints, ledger)
}

/// Injects faults until `bound` has passed.
fn inject_until(
    run_state: &mut ChaosRun<'_>,
    ledger: &ChaosLedger,
    bound: Duration,
    rng: &mut Rng,
) -> anyhow::Result<()> {
    let (started, is_watched) = (Instant::now(), std::io::stdout().is_terminal());
    let mut printed = started;
    while started.elapsed() < bound {
        run_state.fleet.maintain()?;
        pause(Duration::from_millis(rng.u64(200..1000)));
        run_state.injector.next(&mut run_state.fleet)?;
        if is_watched && printed.elapsed() > PRINT_EVERY {
            printed = Instant::now();
            println!("{:>5} s  {}", started.elapsed().as_secs(), summary::line(ledger));
        }
    }
    Ok(())
}

impl ChaosRun<'_> {
    /// Waits until all jobs have ended, kills agq once more, and compares it with the ledger.
    fn verify(mut self, lab: &Lab, endpoints: &Endpoints, ledger: &ChaosLedger) -> anyhow::Result<()> {
        self.injector.stop_faults();
        self.fleet.stop_faults();
        let started = Instant::now();
        while !self.has_drained(endpoints, ledger)? {
            if started.elapsed() > DRAIN_WITHIN {
                self.report_unfinished(endpoints, ledger);
                break;
            }
            pause(Duration::from_millis(100));
        }
        for pid in self.fleet.end_workers()? {
            ledger.lost(format!("the sandbox supervisor {pid} outlives its worker"));
        }
        // The comparison is made after a restart, so that it sees the state on disk.
        self.injector.kill_agq()?;
        let mut resp = Resp::open(&endpoints.agq, &endpoints.key)?;
        check::check(&mut resp, ledger, lab.path()).context("agq does not answer at the end")
    }

    fn has_drained(&mut self, endpoints: &Endpoints, ledger: &ChaosLedger) -> anyhow::Result<bool> {
        self.fleet.maintain()?;
        let mut resp =
            Resp::open(&endpoints.agq, &endpoints.key).context("agq accepts no connection without faults")?;
        progress::check_actions(&mut resp, ledger).context("agq does not answer without faults")?;
        Ok(!self.fleet.has_clients() && ledger.pending_actions().is_empty())
    }

    fn report_unfinished(&self, endpoints: &Endpoints, ledger: &ChaosLedger) {
        let seconds = DRAIN_WITHIN.as_secs();
        if self.fleet.has_clients() {
            ledger.lost(format!("an agx was still waiting {seconds} s after the last fault"));
        }
        for id in ledger.pending_actions() {
            let status = Resp::open(&endpoints.agq, &endpoints.key)
                .and_then(|mut resp| resp.ask(&["ACTION.STATUS", &id]));
            ledger.lost(format!("action {id} had not ended {seconds} s after the last fault: {status:?}"));
        }
    }
}

/// Submits the plan of all actions. The first of its two tasks appends a line to a file at each
/// run.
fn submit_plan(endpoints: &Endpoints, lab: &Lab) -> anyhow::Result<()> {
    let script = format!(r#"echo "$1" >> {RUNS} && echo "$1""#);
    let plan = json!({
        "plan_id": PLAN,
        // The end of a supervisor costs its job an attempt.
        "max_retries": 20,
        "tasks": [
            {"task_number": 1, "command": "sh", "args": ["-c", script, "sh", "{{input.n}}"], "cwd": lab.path()},
            {"task_number": 2, "command": "sed", "args": ["s/^/done /"], "input_from_task": 1},
        ],
    });
    let mut resp = Resp::open(&endpoints.agq, &endpoints.key)?;
    match resp.ask(&["PLAN.SUBMIT", &plan.to_string()])? {
        RespReply::Line(_ok) => Ok(()),
        other => bail!("the plan was answered {other:?}"),
    }
}

/// Returns the output of a job with this input.
fn result_of(input: &str) -> String {
    format!("done {input}\n")
}

fn start_load(endpoints: &Arc<Endpoints>, ledger: &Arc<ChaosLedger>, rng: &mut Rng) -> Vec<JoinHandle<()>> {
    let mut load: Vec<_> = (1..=PRODUCERS)
        .map(|number| {
            let (endpoints, ledger, rng) = (Arc::clone(endpoints), Arc::clone(ledger), rng.fork());
            thread::spawn(move || Producer::new(format!("p{number}"), &endpoints, &ledger, rng).run())
        })
        .collect();
    load.extend(connections::start(endpoints, ledger, rng));
    let (endpoints, ledger) = (Arc::clone(endpoints), Arc::clone(ledger));
    load.push(thread::spawn(move || progress::watch(&endpoints, &ledger)));
    load
}

/// Raises the limit of file descriptors, because five hundred workers need more than the usual
/// default.
fn allow_descriptors() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < most) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum })?;
    }
    Ok(())
}

/// Sleeps as a part of the load or of a fault. Nothing waits for an event in this way.
fn pause(duration: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the time is a part of the load or of a fault")]
    thread::sleep(duration);
}
