//! What much of everything costs: millions of jobs that wait, a thousand lanes, hundreds of workers, a large database. Nobody
//! is beside us here: we are held against ourselves where there is little of it, and against bounds.

mod bulk;
mod lanes;
mod latency;
mod million;
mod queued;
mod reopen;
mod stand;
mod turns;
mod waiting;
pub(crate) mod watch;

use anyhow::Context;

use super::{Place, measure::Bench};

const SECTION: &str = "scale";

pub(crate) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    queued::run(bench, place)?;
    million::run(bench, place)?;
    lanes::run(bench, place)?;
    waiting::run(bench, place)?;
    latency::run(bench, place)?;
    reopen::run(bench, place)
}

/// A number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn number(count: usize) -> f64 {
    count as f64
}

/// A number as people write it: `1,000,000`.
pub(super) fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// For another row of runs that were measured already: their figures in the order of the runs, the one that warmed up first.
fn again(figures: &[f64]) -> impl FnMut() -> anyhow::Result<f64> {
    let mut figures = figures.iter().copied().cycle();
    move || figures.next().context("nothing was measured before")
}

#[cfg(test)]
mod tests {
    use super::{again, grouped};

    #[test]
    fn long_numbers_are_grouped() {
        assert_eq!([7, 1000, 100_000, 5_000_000].map(grouped), ["7", "1,000", "100,000", "5,000,000"]);
    }

    #[test]
    fn figures_come_again_in_their_order() {
        let mut figures = again(&[1.0, 2.0]);
        let mut next = || figures().unwrap();
        assert_eq!([next(), next(), next()], [1.0, 2.0, 1.0]);
        assert!(again(&[])().is_err());
    }
}
