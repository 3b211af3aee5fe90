//! Kills agq with a large database, and measures the time until it listens again.

use std::time::Instant;

use anyhow::ensure;

use super::{
    SECTION,
    bulk::Bulk,
    fixture::{ScaleFixture, expect_ok, ready},
};
use crate::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    measure::Bench,
};

/// Bytes of an input, and number of inputs in a command.
const INPUT: usize = 4096;
const BATCH: usize = 500;
/// The job that is acknowledged last.
const LAST: &str = r#"{"plan_id":"nothing","inputs":[{}]}"#;
const NOTE: &str = "from the start of the process to its line with the address; killed directly after an \
    acknowledgement; each input has 4 KiB of random letters; the files are in the page cache";

pub(super) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let megabytes = bench.scaled(4000, 500);
    println!("  storing {megabytes} MB of inputs");
    let mut fixture = ScaleFixture::new(&programs.bin);
    fill(&fixture, megabytes * 1_000_000)?;
    let comparison =
        ContenderComparison::new(format!("restart after SIGKILL with {megabytes} MB"), "s", Better::Less)
            .with_bound(1.0, 0.2)
            .with_note(NOTE)
            .with("agq", || restart(&mut fixture));
    bench.compare(SECTION, comparison)
}

/// Kills agq after an acknowledgement and starts it again. Returns the seconds until it listens. A
/// missing job is an error.
pub(super) fn restart(fixture: &mut ScaleFixture) -> anyhow::Result<f64> {
    let mut resp = fixture.connect()?;
    let before = ready(&mut resp)?;
    expect_ok(&mut resp, &["ACTION.SUBMIT", LAST])?;
    fixture.agq.kill();
    let started = Instant::now();
    fixture.agq.try_start_again(&fixture.lab, None).map_err(anyhow::Error::msg)?;
    let took = started.elapsed();
    let after = ready(&mut fixture.connect()?)?;
    ensure!(
        after == before + 1,
        "there were {before} jobs and one that was acknowledged, and now there are {after}"
    );
    Ok(took.as_secs_f64())
}

fn fill(fixture: &ScaleFixture, bytes: usize) -> anyhow::Result<()> {
    let mut rng = fastrand::Rng::with_seed(7);
    // Each input is cut out of these letters at a random position, so that inputs differ.
    let letters: String = (0..1024 * INPUT).map(|_| rng.alphanumeric()).collect();
    let mut bulk = Bulk::open(fixture)?;
    for _ in 0..bytes / (INPUT * BATCH) {
        let inputs: Vec<_> = (0..BATCH)
            .map(|_| {
                let at = rng.usize(..letters.len() - INPUT);
                format!(r#"{{"line":"{}"}}"#, &letters[at..at + INPUT])
            })
            .collect();
        bulk.add_inputs(&inputs)?;
    }
    Ok(())
}
