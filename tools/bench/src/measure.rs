//! Runs comparisons in rounds. The contenders of a round are measured in turn, so that changes of
//! the machine affect all of them.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    time::Duration,
};

use agenix_harness::report::RunReport;
use anyhow::{Context, ensure};

use super::{
    comparison::{Contender, ContenderComparison},
    row::{Measurement, Origin, ResultRow},
    table,
};

/// Number of measured rounds. The table shows the median of the rounds.
const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 3;

/// State of a run: number of rounds, report, and rows so far.
pub(crate) struct Bench {
    pub(crate) is_quick: bool,
    pub(crate) rounds: usize,
    pub(crate) report: RunReport,
    /// Path of the `hq` that the user named.
    pub(crate) hq: Option<PathBuf>,
    /// Text that the titles of rows must contain.
    pub(crate) only: Option<String>,
    rows: Vec<ResultRow>,
    origin: Origin,
}

impl Bench {
    pub(crate) fn new(hq: Option<PathBuf>, origin: Origin) -> Self {
        let is_quick = origin.is_quick;
        let rounds = if is_quick { QUICK_ROUNDS } else { ROUNDS };
        Self { is_quick, rounds, report: RunReport::default(), hq, only: None, rows: Vec::new(), origin }
    }

    /// Returns true if the row with this title is to be measured.
    pub(crate) fn wants(&self, title: &str) -> bool {
        self.only.as_ref().is_none_or(|text| title.contains(text))
    }

    /// Runs a comparison: one round to warm up, then the measured rounds. Prints and stores the
    /// row. A peer that fails is skipped from then on.
    ///
    /// # Errors
    ///
    /// The first contender fails.
    pub(crate) fn compare(
        &mut self,
        section: &'static str,
        mut comparison: ContenderComparison<'_>,
    ) -> anyhow::Result<()> {
        let title = format!("{section}: {}", comparison.title);
        let mut running: Vec<_> = comparison.contenders.drain(..).map(MeasuredContender::new).collect();
        ensure!(!running.is_empty(), "{title}: there are no contenders");
        for round in 0..=self.rounds {
            for turn in 0..running.len() {
                // The first contender of a round changes from round to round.
                let at = (turn + round) % running.len();
                self.measure(&title, round, &mut running[at], at == 0)?;
            }
        }
        progress("");
        let measurements = running.into_iter().filter(|one| !one.has_failed);
        let measurements = measurements.map(|one| Measurement::of(one.contender.name, one.samples)).collect();
        let row = ResultRow::of(section, &comparison, measurements, &self.origin);
        println!("\n{}", table::block(&row));
        self.rows.push(row);
        Ok(())
    }

    /// Measures a contender once. Round 0 warms up, and is not recorded.
    fn measure(
        &mut self,
        title: &str,
        round: usize,
        one: &mut MeasuredContender<'_>,
        is_ours: bool,
    ) -> anyhow::Result<()> {
        if one.has_failed {
            return Ok(());
        }
        let name = &one.contender.name;
        let stage = if round == 0 { "warming up".to_owned() } else { format!("{round} of {}", self.rounds) };
        progress(&format!("{title}, {stage}: {name}"));
        match (one.contender.run)().and_then(valid) {
            Ok(figure) if round > 0 => one.samples.push(figure),
            Ok(_) => {}
            Err(error) if is_ours => {
                progress("");
                return Err(error).with_context(|| format!("{title}: {name} failed"));
            }
            Err(error) => {
                progress("");
                self.report.skip(&format!("{title}: {name}"), &format!("{error:#}"));
                one.has_failed = true;
            }
        }
        Ok(())
    }

    /// Records that something is not measured, and why.
    pub(crate) fn skip(&mut self, subject: &str, why: &str) {
        self.report.skip(subject, why);
    }

    /// Returns `quick` in a quick run, and `full` otherwise.
    pub(crate) fn scaled(&self, full: usize, quick: usize) -> usize {
        if self.is_quick { quick } else { full }
    }

    /// Marks the commit, because the programs are not PGO-optimised as the shipped ones are.
    pub(crate) fn note_without_pgo(&mut self) {
        self.origin.commit += "+no-pgo";
    }

    /// Returns the origin of the figures.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the rows so far.
    pub(crate) fn rows(&self) -> &[ResultRow] {
        &self.rows
    }
}

/// A contender with its figures so far.
struct MeasuredContender<'a> {
    contender: Contender<'a>,
    samples: Vec<f64>,
    has_failed: bool,
}

impl<'a> MeasuredContender<'a> {
    fn new(contender: Contender<'a>) -> Self {
        Self { contender, samples: Vec::new(), has_failed: false }
    }
}

/// Returns the rate per second.
pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let count = count as f64;
    count / took.as_secs_f64().max(1e-9)
}

/// Returns the figure if it can be compared, which needs a positive finite number.
fn valid(figure: f64) -> anyhow::Result<f64> {
    ensure!(figure.is_finite() && figure > 0.0, "it measured {figure}, which cannot be compared");
    Ok(figure)
}

/// Shows `text` in one line of the terminal, which the next call overwrites.
fn progress(text: &str) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        // A closed terminal needs no progress.
        let _shown = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use anyhow::bail;

    use super::Bench;
    use crate::{
        comparison::{Better, ContenderComparison},
        row::{self, Origin},
    };

    fn bench() -> Bench {
        Bench::new(None, Origin { is_quick: true, ..row::tests::row(Better::More, 1.0).origin })
    }

    #[test]
    fn comparison_warms_up_and_changes_the_order_in_each_round() {
        let (mut bench, turns) = (bench(), RefCell::new(String::new()));
        let say = |name: char| {
            turns.borrow_mut().push(name);
            Ok(1.0)
        };
        let comparison = ContenderComparison::new("turns", "ops/s", Better::More)
            .with("a", || say('a'))
            .with("b", || say('b'));
        bench.compare("limits", comparison).unwrap();
        assert_eq!(turns.into_inner(), "abbaabba");
        assert_eq!(bench.rows()[0].measurements[1].samples, [1.0; 3]);
    }

    #[test]
    fn comparison_skips_a_peer_that_fails_and_fails_with_the_first_contender() {
        let mut bench = bench();
        let comparison = || ContenderComparison::new("turns", "ops/s", Better::More).with_goal("b", 1.0, 1.0);
        let mut left = 2;
        let peer = || {
            left -= 1;
            if left == 0 { bail!("gone") } else { Ok(1.0) }
        };
        bench.compare("limits", comparison().with("a", || Ok(1.0)).with("b", peer)).unwrap();
        assert_eq!((bench.rows()[0].measurements.len(), bench.rows()[0].goals.len()), (1, 0));
        assert!(bench.compare("limits", comparison().with("a", || Ok(0.0))).is_err());
    }
}
