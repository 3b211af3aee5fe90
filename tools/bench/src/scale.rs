//! Section `scale`: millions of queued jobs, ten thousand lanes, hundreds of workers, a large
//! database. There are no peers. AGEniX is compared with itself at a small size, and with bounds.

mod bulk;
mod cycles;
mod fixture;
pub(crate) mod job_events;
mod lanes;
mod latency;
mod million;
mod queued;
mod reopen;
mod shares;
mod waiting;

use anyhow::Context;

use super::{ProgramDirs, measure::Bench};

const SECTION: &str = "scale";

/// Measures some rows.
type MeasureRows = fn(&mut Bench, &ProgramDirs) -> anyhow::Result<()>;

/// Parts of the section, each with the name that `--rows` selects it by.
const PARTS: [(&str, MeasureRows); 8] = [
    ("queued", queued::run),
    ("million", million::run),
    ("lanes", lanes::run),
    ("lanes on PostgreSQL", lanes::run_on_postgres),
    ("waiting", waiting::run),
    ("shares", shares::run),
    ("latency", latency::run),
    ("reopen", reopen::run),
];

pub(crate) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    for (name, part) in PARTS {
        if bench.wants(name) {
            part(bench, programs)?;
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn number(count: usize) -> f64 {
    count as f64
}

/// Returns a contender that replays figures of earlier runs in their order, the warm-up first. The
/// contender is for a second row about the same runs.
fn replay(figures: &[f64]) -> impl FnMut() -> anyhow::Result<f64> {
    let mut figures = figures.iter().copied().cycle();
    move || figures.next().context("there are no earlier figures")
}

#[cfg(test)]
mod tests {
    use super::replay;

    #[test]
    fn replay_repeats_figures_in_their_order() {
        let mut figures = replay(&[1.0, 2.0]);
        let mut next = || figures().unwrap();
        assert_eq!([next(), next(), next()], [1.0, 2.0, 1.0]);
        assert!(replay(&[])().is_err());
    }
}
