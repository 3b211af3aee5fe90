//! agq is killed beside a large database: how long until it listens again.

use std::time::Instant;

use anyhow::ensure;

use super::{
    SECTION,
    bulk::Bulk,
    stand::{Stand, must, ready},
};
use crate::{
    Place,
    contest::{Better, Contest},
    measure::Bench,
};

/// What jobs have as their input, in bytes, and how many are added by a command.
const INPUT: usize = 4096;
const PIECE: usize = 500;
/// A job that comes last.
const LAST: &str = r#"{"plan_id":"nothing","inputs":[{}]}"#;
const NOTE: &str = "from the start of the process to its line that says where it listens; killed right after a job was \
    acknowledged; the inputs of the jobs have 4 KiB of random letters each; the files are in the page cache";

pub(super) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let megabytes = bench.scaled(4000, 500);
    println!("  storing {megabytes} MB of inputs");
    let mut stand = Stand::new(&place.bin);
    fill(&stand, megabytes * 1_000_000)?;
    let contest = Contest::new(format!("listen again after SIGKILL with {megabytes} MB"), "s", Better::Less)
        .bounded(1.0, 0.2)
        .noting(NOTE)
        .with("agq", || again(&mut stand));
    bench.hold(SECTION, contest)
}

/// Kills agq behind an acknowledgement and starts it again; nothing may be missing.
pub(super) fn again(stand: &mut Stand) -> anyhow::Result<f64> {
    let mut resp = stand.connect()?;
    let before = ready(&mut resp)?;
    must(&mut resp, &["ACTION.SUBMIT", LAST])?;
    stand.agq.kill();
    let started = Instant::now();
    stand.agq.try_start_again(&stand.lab, None).map_err(anyhow::Error::msg)?;
    let took = started.elapsed();
    let after = ready(&mut stand.connect()?)?;
    ensure!(
        after == before + 1,
        "there were {before} jobs and one that was acknowledged, and now there are {after}"
    );
    Ok(took.as_secs_f64())
}

fn fill(stand: &Stand, bytes: usize) -> anyhow::Result<()> {
    let mut rng = fastrand::Rng::with_seed(7);
    // Each input is cut out of these letters at a place of its own, so that none is like the one before.
    let letters: String = (0..1024 * INPUT).map(|_| rng.alphanumeric()).collect();
    let mut bulk = Bulk::open(stand)?;
    for _ in 0..bytes / (INPUT * PIECE) {
        let inputs: Vec<_> = (0..PIECE)
            .map(|_| {
                let at = rng.usize(..letters.len() - INPUT);
                format!(r#"{{"line":"{}"}}"#, &letters[at..at + INPUT])
            })
            .collect();
        bulk.add_inputs(&inputs)?;
    }
    Ok(())
}
