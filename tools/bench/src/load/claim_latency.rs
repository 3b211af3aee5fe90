//! Checks the latency of claims while other connections submit in bulk.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use agenix_harness::resp::{RespReply, unexpected};
use anyhow::{anyhow, ensure};

use super::{LoadFigures, LoadFixture};

/// Number of inputs in an ACTION.ADD, and of connections that submit.
const BATCH: usize = 2000;
const SUBMITTERS: usize = 4;
/// Number of connections that claim, and of claims by each without load.
const CLAIMERS: usize = 4;
const QUIET_CLAIMS: usize = 500;
/// Least and greatest number of batches.
const BATCHES: (usize, usize) = (12, 500);
const P99_MS: f64 = 50.0;

pub(super) fn run(fixture: &LoadFixture, inputs: usize, figures: &mut LoadFigures) -> anyhow::Result<()> {
    println!("\nClaims while {SUBMITTERS} connections add {BATCH} inputs at a time");
    let each = (inputs / BATCH).clamp(BATCHES.0, BATCHES.1) / SUBMITTERS;
    // There are ready jobs before the first claim.
    add(fixture, "before", 1)?;
    let quiet = claim(fixture, &|count| count == QUIET_CLAIMS)?;
    figures.record("claims without load, p99", format!("{:.2} ms of {}", p99_ms(&quiet), quiet.len()));

    let is_over = AtomicBool::new(false);
    let started = Instant::now();
    let (claims, submitted) = thread::scope(|scope| {
        let claims = scope.spawn(|| claim(fixture, &|_| is_over.load(Ordering::Relaxed)));
        let submitters: Vec<_> =
            (0..SUBMITTERS).map(|n| scope.spawn(move || add(fixture, &format!("bulk-{n}"), each))).collect();
        let submitted: Vec<_> = submitters.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        (claims.join(), submitted)
    });
    let took = started.elapsed();
    for submitted in submitted {
        submitted.map_err(|_| anyhow!("a submitter's thread panicked"))??;
    }
    let claims = claims.map_err(|_| anyhow!("the claimers' thread panicked"))??;
    figures.record("inputs added meanwhile", super::rate(each * SUBMITTERS * BATCH, took));
    figures.record("claims meanwhile", super::rate(claims.len(), took));
    ensure!(!claims.is_empty(), "no job was claimed during the submissions");
    figures.check("claims under load, p99", p99_ms(&claims), P99_MS, "ms");
    Ok(())
}

/// Opens an action, and adds batches of inputs to it.
fn add(fixture: &LoadFixture, action: &str, batches: usize) -> io::Result<()> {
    let inputs: Vec<String> = (0..BATCH).map(|n| format!(r#"{{"line":"{n}"}}"#)).collect();
    let inputs = format!("[{}]", inputs.join(","));
    let mut resp = fixture.connect()?;
    let open = format!(r#"{{"action_id":"{action}","plan_id":"load","open":true}}"#);
    for batch in 0..=batches {
        let reply = match batch {
            0 => resp.ask(&["ACTION.SUBMIT", &open])?,
            _ => resp.ask(&["ACTION.ADD", action, &inputs])?,
        };
        if !matches!(reply, RespReply::Line(_)) {
            return Err(unexpected(&reply));
        }
    }
    Ok(())
}

/// Claims on all connections until `is_enough`, which gets the number of claims of the connection.
/// Returns the time of each claim.
fn claim(fixture: &LoadFixture, is_enough: &(dyn Fn(usize) -> bool + Sync)) -> anyhow::Result<Vec<Duration>> {
    let times = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..CLAIMERS).map(|_| scope.spawn(|| claim_on_one(fixture, is_enough))).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    let mut all = Vec::new();
    for times in times {
        all.extend(times.map_err(|_| anyhow!("a claimer's thread panicked"))??);
    }
    Ok(all)
}

fn claim_on_one(
    fixture: &LoadFixture,
    is_enough: &(dyn Fn(usize) -> bool + Sync),
) -> io::Result<Vec<Duration>> {
    let mut resp = fixture.connect()?;
    let mut times = Vec::new();
    while !is_enough(times.len()) {
        let started = Instant::now();
        match resp.ask(&["BRPOP", "queue:ready", "10"])? {
            RespReply::Bulk(_job) => times.push(started.elapsed()),
            other => return Err(unexpected(&other)),
        }
    }
    Ok(times)
}

/// Returns the 99th percentile in milliseconds.
fn p99_ms(times: &[Duration]) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = (times.len() * 99).div_ceil(100).saturating_sub(1);
    times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::p99_ms;

    #[test]
    fn p99_ignores_one_slow_claim_of_a_hundred() {
        let mut times = vec![Duration::from_millis(1); 99];
        times.push(Duration::from_millis(900));
        assert!((p99_ms(&times) - 1.0).abs() < 1e-9);
        times.push(Duration::from_millis(900));
        assert!((p99_ms(&times) - 900.0).abs() < 1e-9);
        assert!(p99_ms(&[]).abs() < 1e-9);
    }
}
