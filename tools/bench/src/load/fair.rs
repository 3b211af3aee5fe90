//! Claims while others submit in bulk: whoever asks for a job gets it soon, however much is being written.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use agenix_harness::resp::{Reply, unexpected};
use anyhow::{anyhow, ensure};

use super::{Figures, Place};

/// Inputs of an ACTION.ADD, and how many of these are on their way at once.
const PIECE: usize = 2000;
const SUBMITTERS: usize = 4;
/// Connections that claim one job after the other, and how many each claims when nothing else goes on.
const CLAIMERS: usize = 4;
const QUIET_CLAIMS: usize = 500;
/// Fewest pieces that tell something, and as many as are enough.
const PIECES: (usize, usize) = (12, 500);
const P99_MS: f64 = 50.0;

pub(super) fn run(place: &Place, inputs: usize, figures: &mut Figures) -> anyhow::Result<()> {
    println!("\nClaims while {SUBMITTERS} connections add {PIECE} inputs at a time");
    let each = (inputs / PIECE).clamp(PIECES.0, PIECES.1) / SUBMITTERS;
    // Jobs are ready from the beginning.
    add(place, "before", 1)?;
    let quiet = claim(place, &|count| count == QUIET_CLAIMS)?;
    figures.tell("claims without load, p99", format!("{:.2} ms of {}", p99_ms(&quiet), quiet.len()));

    let is_over = AtomicBool::new(false);
    let started = Instant::now();
    let (claims, submitted) = thread::scope(|scope| {
        let claims = scope.spawn(|| claim(place, &|_| is_over.load(Ordering::Relaxed)));
        let submitters: Vec<_> =
            (0..SUBMITTERS).map(|n| scope.spawn(move || add(place, &format!("bulk-{n}"), each))).collect();
        let submitted: Vec<_> = submitters.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        (claims.join(), submitted)
    });
    let took = started.elapsed();
    for submitted in submitted {
        submitted.map_err(|_| anyhow!("a submitter's thread panicked"))??;
    }
    let claims = claims.map_err(|_| anyhow!("the claimers' thread panicked"))??;
    figures.tell("inputs added meanwhile", super::rate(each * SUBMITTERS * PIECE, took));
    figures.tell("claims meanwhile", super::rate(claims.len(), took));
    ensure!(!claims.is_empty(), "no job was claimed while others submitted");
    figures.hold("claims under load, p99", p99_ms(&claims), P99_MS, "ms");
    Ok(())
}

/// Adds so many pieces to an action of its own.
fn add(place: &Place, action: &str, pieces: usize) -> io::Result<()> {
    let inputs: Vec<String> = (0..PIECE).map(|n| format!(r#"{{"line":"{n}"}}"#)).collect();
    let inputs = format!("[{}]", inputs.join(","));
    let mut resp = place.connect()?;
    let open = format!(r#"{{"action_id":"{action}","plan_id":"load","open":true}}"#);
    for piece in 0..=pieces {
        let reply = match piece {
            0 => resp.ask(&["ACTION.SUBMIT", &open])?,
            _ => resp.ask(&["ACTION.ADD", action, &inputs])?,
        };
        if !matches!(reply, Reply::Line(_)) {
            return Err(unexpected(&reply));
        }
    }
    Ok(())
}

/// Claims until each connection has enough; how long each claim took.
fn claim(place: &Place, is_enough: &(dyn Fn(usize) -> bool + Sync)) -> anyhow::Result<Vec<Duration>> {
    let times = thread::scope(|scope| {
        let hands: Vec<_> = (0..CLAIMERS).map(|_| scope.spawn(|| claim_alone(place, is_enough))).collect();
        hands.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    let mut all = Vec::new();
    for times in times {
        all.extend(times.map_err(|_| anyhow!("a claimer's thread panicked"))??);
    }
    Ok(all)
}

fn claim_alone(place: &Place, is_enough: &(dyn Fn(usize) -> bool + Sync)) -> io::Result<Vec<Duration>> {
    let mut resp = place.connect()?;
    let mut times = Vec::new();
    while !is_enough(times.len()) {
        let started = Instant::now();
        match resp.ask(&["BRPOP", "queue:ready", "10"])? {
            Reply::Bulk(_job) => times.push(started.elapsed()),
            other => return Err(unexpected(&other)),
        }
    }
    Ok(times)
}

/// What 99 of a hundred stay within.
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
    fn one_of_a_hundred_may_be_slower() {
        let mut times = vec![Duration::from_millis(1); 99];
        times.push(Duration::from_millis(900));
        assert!((p99_ms(&times) - 1.0).abs() < 1e-9);
        times.push(Duration::from_millis(900));
        assert!((p99_ms(&times) - 900.0).abs() < 1e-9);
        assert!(p99_ms(&[]).abs() < 1e-9);
    }
}
