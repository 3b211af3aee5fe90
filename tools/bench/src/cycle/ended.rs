//! Fills a store with ended jobs, as fast as agq takes them: jobs with an action each, submitted, claimed and reported many at a time.

use std::{io, thread};

use anyhow::anyhow;

use super::{
    agq::Agq,
    ours::{completion, submission},
    texts::Texts,
    wire::{Wire, nothing_ready},
};

/// Connections that fill at once: their writes share transactions.
const CONNECTIONS: usize = 8;
/// Jobs of a pipeline. agq reads up to 256 commands at once.
const PIECE: usize = 120;
const INPUT_BYTES: usize = 100;

/// Has so many jobs done, each with a result of 1 KB.
pub(super) fn fill(agq: &Agq, count: usize) -> anyhow::Result<()> {
    let texts = &Texts::new(INPUT_BYTES);
    let connect = |_| agq.connect();
    let mut wires = (0..CONNECTIONS).map(connect).collect::<io::Result<Vec<_>>>()?;
    let ends: Vec<_> = thread::scope(|scope| {
        let each = wires.iter_mut().enumerate();
        let hands: Vec<_> =
            each.map(|(at, wire)| scope.spawn(move || share(wire, texts, at, count))).collect();
        hands.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    for end in ends {
        end.map_err(|_| anyhow!("a filling thread panicked"))??;
    }
    Ok(())
}

/// Does every `CONNECTIONS`th piece.
fn share(wire: &mut Wire, texts: &Texts, at: usize, count: usize) -> io::Result<()> {
    for first in (at * PIECE..count).step_by(CONNECTIONS * PIECE) {
        piece(wire, texts, first, PIECE.min(count - first))?;
    }
    Ok(())
}

fn piece(wire: &mut Wire, texts: &Texts, first: usize, jobs: usize) -> io::Result<()> {
    let (mut job_id, mut json) = (String::new(), String::new());
    for number in first..first + jobs {
        submission(&mut json, texts.input(number));
        wire.command(&["ACTION.SUBMIT", &json])?;
    }
    for _ in 0..jobs {
        wire.command(&["RPOP", "queue:ready"])?;
    }
    wire.send()?;
    (0..jobs).try_for_each(|_| wire.is_done())?;
    let mut reports = Vec::with_capacity(jobs);
    for number in first..first + jobs {
        let job = wire.bulk()?.ok_or_else(nothing_ready)?;
        completion(&mut job_id, &mut json, job, texts.result(number))?;
        reports.push((job_id.clone(), json.clone()));
    }
    for (job_id, report) in &reports {
        wire.command(&["JOB.UPDATE", job_id, report])?;
    }
    wire.send()?;
    (0..jobs).try_for_each(|_| wire.is_done())
}
