//! One run of the benchmark: every contest in rounds, everybody in turn, so that what the machine does meanwhile meets them all.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    time::Duration,
};

use agenix_harness::report::Report;
use anyhow::{Context, ensure};

use super::{
    contest::{Contender, Contest},
    row::{Origin, Row, Side},
    table,
};

/// The medians are those of so many rounds.
const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 3;

/// One run of the benchmark: how many rounds, what was installed or skipped, the rows so far.
pub(crate) struct Bench {
    pub(crate) is_quick: bool,
    pub(crate) rounds: usize,
    pub(crate) report: Report,
    /// Where HyperQueue is, if it is to take part.
    pub(crate) hq: Option<PathBuf>,
    /// Only rows whose titles have this text.
    pub(crate) only: Option<String>,
    rows: Vec<Row>,
    origin: Origin,
}

impl Bench {
    pub(crate) fn new(hq: Option<PathBuf>, origin: Origin) -> Self {
        let is_quick = origin.is_quick;
        let rounds = if is_quick { QUICK_ROUNDS } else { ROUNDS };
        Self { is_quick, rounds, report: Report::default(), hq, only: None, rows: Vec::new(), origin }
    }

    /// Whether a row is to be measured, by its title.
    pub(crate) fn wants(&self, title: &str) -> bool {
        self.only.as_ref().is_none_or(|text| title.contains(text))
    }

    /// Lets everybody run once to warm up, and then in rounds; prints the row and keeps it. Who fails is named and is out,
    /// unless it is us: that is an error.
    pub(crate) fn hold(&mut self, section: &'static str, mut contest: Contest<'_>) -> anyhow::Result<()> {
        let title = format!("{section}: {}", contest.title);
        let mut running: Vec<_> = contest.contenders.drain(..).map(Running::new).collect();
        ensure!(!running.is_empty(), "{title}: nobody takes part");
        for round in 0..=self.rounds {
            for turn in 0..running.len() {
                // Nobody is always the first of a round.
                let at = (turn + round) % running.len();
                self.measure(&title, round, &mut running[at], at == 0)?;
            }
        }
        progress("");
        let sides = running.into_iter().filter(|one| !one.is_out);
        let sides = sides.map(|one| Side::of(one.contender.name, one.samples)).collect();
        let row = Row::of(section, &contest, sides, &self.origin);
        println!("\n{}", table::block(&row));
        self.rows.push(row);
        Ok(())
    }

    /// One turn; the round 0 is for warming up.
    fn measure(
        &mut self,
        title: &str,
        round: usize,
        one: &mut Running<'_>,
        is_ours: bool,
    ) -> anyhow::Result<()> {
        if one.is_out {
            return Ok(());
        }
        let name = &one.contender.name;
        let stage = if round == 0 { "warming up".to_owned() } else { format!("{round} of {}", self.rounds) };
        progress(&format!("{title}, {stage}: {name}"));
        match (one.contender.run)().and_then(sound) {
            Ok(figure) if round > 0 => one.samples.push(figure),
            Ok(_) => {}
            Err(error) if is_ours => {
                progress("");
                return Err(error).with_context(|| format!("{title}: {name} failed"));
            }
            Err(error) => {
                progress("");
                self.report.skip(&format!("{title}: {name}"), &format!("{error:#}"));
                one.is_out = true;
            }
        }
        Ok(())
    }

    /// What is not measured, and why.
    pub(crate) fn skip(&mut self, what: &str, why: &str) {
        self.report.skip(what, why);
    }

    /// `full` in a whole run, `quick` in a quick one.
    pub(crate) fn scaled(&self, full: usize, quick: usize) -> usize {
        if self.is_quick { quick } else { full }
    }

    /// Marks the commit, because the programs are not PGO-optimised as the shipped ones are.
    pub(crate) fn note_without_pgo(&mut self) {
        self.origin.commit += "+no-pgo";
    }

    /// Where its figures come from.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// What was measured so far.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }
}

/// A contender, and what it has measured so far.
struct Running<'a> {
    contender: Contender<'a>,
    samples: Vec<f64>,
    is_out: bool,
}

impl<'a> Running<'a> {
    fn new(contender: Contender<'a>) -> Self {
        Self { contender, samples: Vec::new(), is_out: false }
    }
}

/// How many a second.
pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let count = count as f64;
    count / took.as_secs_f64().max(1e-9)
}

/// A figure that can be compared with others.
fn sound(figure: f64) -> anyhow::Result<f64> {
    ensure!(figure.is_finite() && figure > 0.0, "it measured {figure}, which is nothing to compare");
    Ok(figure)
}

/// What goes on, in one line of a terminal that the next line overwrites.
fn progress(what: &str) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        // Whoever has closed the terminal does not want to know.
        let _told = write!(err, "\r\x1b[K{what}").and_then(|()| err.flush());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use anyhow::bail;

    use super::Bench;
    use crate::{
        contest::{Better, Contest},
        row::{self, Origin},
    };

    fn bench() -> Bench {
        Bench::new(None, Origin { is_quick: true, ..row::tests::row(Better::More, 1.0).origin })
    }

    #[test]
    fn everybody_warms_up_and_takes_turns() {
        let (mut bench, turns) = (bench(), RefCell::new(String::new()));
        let say = |name: char| {
            turns.borrow_mut().push(name);
            Ok(1.0)
        };
        let contest =
            Contest::new("turns", "ops/s", Better::More).with("a", || say('a')).with("b", || say('b'));
        bench.hold("limits", contest).unwrap();
        assert_eq!(turns.into_inner(), "abbaabba");
        assert_eq!(bench.rows()[0].sides[1].samples, [1.0; 3]);
    }

    #[test]
    fn a_peer_that_fails_is_out_and_we_may_not_fail() {
        let mut bench = bench();
        let contest = || Contest::new("turns", "ops/s", Better::More).against("b", 1.0, 1.0);
        let mut left = 2;
        let peer = || {
            left -= 1;
            if left == 0 { bail!("gone") } else { Ok(1.0) }
        };
        bench.hold("limits", contest().with("a", || Ok(1.0)).with("b", peer)).unwrap();
        assert_eq!((bench.rows()[0].sides.len(), bench.rows()[0].goals.len()), (1, 0));
        assert!(bench.hold("limits", contest().with("a", || Ok(0.0))).is_err());
    }
}
