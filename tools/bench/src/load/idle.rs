//! Connections that only wait: what they cost in memory, and whether anything goes on in agq when nothing happens.

use std::{io, thread, time::Duration};

use agenix_harness::resp::{Reply, Resp, unexpected};
use anyhow::ensure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Figures, Place, gauge};

const IDLE: usize = 2000;
const BLOCKED: usize = 500;
/// File descriptors for them, on our side and on agq's, and for everything else.
const DESCRIPTORS: u64 = 3000;
const GROWTH_MB: f64 = 100.0;
/// How long nothing happens, and what agq may compute meanwhile.
const QUIET: Duration = Duration::from_secs(10);
const BUSY_SECS: f64 = 0.05;
/// What has just begun may come to rest before that.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) fn run(place: &Place, figures: &mut Figures) -> anyhow::Result<()> {
    println!("\n{IDLE} connections that are silent, {BLOCKED} that wait in BRPOP");
    let pid = place.agq.pid();
    let mut other = place.connect()?;
    let before = gauge::resident_mb(pid);
    let idle = (0..IDLE).map(|_| place.connect()).collect::<io::Result<Vec<_>>>()?;
    let mut blocked = (0..BLOCKED).map(|n| wait(place, &key(n))).collect::<io::Result<Vec<_>>>()?;
    pause(SETTLE);
    let growth = gauge::resident_mb(pid).zip(before).map(|(after, before)| after - before);
    figures.hold_if_known("memory for all connections", growth, GROWTH_MB, "MB");

    let before = gauge::busy_secs(pid);
    pause(QUIET);
    let busy = gauge::busy_secs(pid).zip(before).map(|(after, before)| after - before);
    figures.hold_if_known("processor time in 10 s of silence", busy, BUSY_SECS, "s");

    // They were there all the while.
    for (n, waiting) in blocked.iter_mut().enumerate().filter(|(n, _)| n % 2 == 1) {
        ensure!(other.ask(&["LPUSH", &key(n), "v"])? == Reply::Integer(1), "{} was not empty", key(n));
        let got = waiting.receive()?;
        ensure!(got == Reply::Bulk("v".into()), "a connection that waited got {got:?}");
    }
    for mut silent in idle {
        let pong = silent.ask(&["PING"])?;
        ensure!(pong == Reply::Line("PONG".into()), "a silent connection got {pong:?}");
    }
    Ok(())
}

/// Half of them wait for a job, half for an element of a list.
fn key(n: usize) -> String {
    if n.is_multiple_of(2) { "queue:ready".into() } else { format!("list-{n}") }
}

fn wait(place: &Place, key: &str) -> io::Result<Resp> {
    let mut resp = place.connect()?;
    resp.send(&["PING"])?;
    resp.send(&["BRPOP", key, "0"])?;
    match resp.receive()? {
        Reply::Line(_pong) => Ok(resp),
        other => Err(unexpected(&other)),
    }
}

/// Lets us, and those that we start from now on, have as many file descriptors as this needs; whether the system allows it.
pub(super) fn may_have_descriptors() -> bool {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= DESCRIPTORS) {
        return true;
    }
    let is_allowed = limit.maximum.is_none_or(|maximum| maximum >= DESCRIPTORS);
    let more = Rlimit { current: Some(DESCRIPTORS), maximum: limit.maximum };
    is_allowed && setrlimit(Resource::Nofile, more).is_ok()
}

fn pause(duration: Duration) {
    #[expect(clippy::disallowed_methods, reason = "that nothing happens meanwhile is what is measured")]
    thread::sleep(duration);
}
