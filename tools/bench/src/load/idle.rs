//! Checks the memory of idle connections, and the processor time of agq while nothing happens.

use std::{io, thread, time::Duration};

use agenix_harness::resp::{Resp, RespReply, unexpected};
use anyhow::ensure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{LoadFigures, LoadFixture, process_stats};

const IDLE: usize = 2000;
const BLOCKED: usize = 500;
/// File descriptors that this process and agq need each.
const DESCRIPTORS: u64 = 3000;
const GROWTH_MB: f64 = 100.0;
/// Time without events, and the processor time that agq may use in it.
const QUIET: Duration = Duration::from_secs(10);
const BUSY_SECS: f64 = 0.05;
/// Time before the measurement, in which agq becomes idle.
const UNTIL_IDLE: Duration = Duration::from_secs(2);

pub(super) fn run(fixture: &LoadFixture, figures: &mut LoadFigures) -> anyhow::Result<()> {
    println!("\n{IDLE} connections that are silent, {BLOCKED} that wait in BRPOP");
    let pid = fixture.agq.pid();
    let mut other = fixture.connect()?;
    let before = process_stats::resident_mb(pid);
    let idle = (0..IDLE).map(|_| fixture.connect()).collect::<io::Result<Vec<_>>>()?;
    let mut blocked = (0..BLOCKED).map(|n| wait(fixture, &key(n))).collect::<io::Result<Vec<_>>>()?;
    pause(UNTIL_IDLE);
    let growth = process_stats::resident_mb(pid).zip(before).map(|(after, before)| after - before);
    figures.check_if_known("memory for all connections", growth, GROWTH_MB, "MB");

    let before = process_stats::busy_secs(pid);
    pause(QUIET);
    let busy = process_stats::busy_secs(pid).zip(before).map(|(after, before)| after - before);
    figures.check_if_known("processor time in 10 s of silence", busy, BUSY_SECS, "s");

    // All connections are still open.
    for (n, waiting) in blocked.iter_mut().enumerate().filter(|(n, _)| n % 2 == 1) {
        ensure!(other.ask(&["LPUSH", &key(n), "v"])? == RespReply::Integer(1), "{} was not empty", key(n));
        let got = waiting.receive()?;
        ensure!(got == RespReply::Bulk("v".into()), "a connection that waited got {got:?}");
    }
    for mut silent in idle {
        let pong = silent.ask(&["PING"])?;
        ensure!(pong == RespReply::Line("PONG".into()), "a silent connection got {pong:?}");
    }
    Ok(())
}

/// Returns the key to wait for: one half waits for jobs, one for list elements.
fn key(n: usize) -> String {
    if n.is_multiple_of(2) { "queue:ready".into() } else { format!("list-{n}") }
}

fn wait(fixture: &LoadFixture, key: &str) -> io::Result<Resp> {
    let mut resp = fixture.connect()?;
    resp.send(&["PING"])?;
    resp.send(&["BRPOP", key, "0"])?;
    match resp.receive()? {
        RespReply::Line(_pong) => Ok(resp),
        other => Err(unexpected(&other)),
    }
}

/// Raises the limit of file descriptors of this process and of its children. Returns false if the
/// system does not allow it.
pub(super) fn raise_descriptor_limit() -> bool {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= DESCRIPTORS) {
        return true;
    }
    let is_allowed = limit.maximum.is_none_or(|maximum| maximum >= DESCRIPTORS);
    let more = Rlimit { current: Some(DESCRIPTORS), maximum: limit.maximum };
    is_allowed && setrlimit(Resource::Nofile, more).is_ok()
}

fn pause(duration: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the measurement is about a time without events")]
    thread::sleep(duration);
}
