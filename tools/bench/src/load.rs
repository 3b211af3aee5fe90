//! `cargo xtask load`: a great deal at once on the real binaries, held against floors: an action of a million inputs, thousands
//! of connections that only wait, claims while others submit in bulk.

mod bulk;
mod fair;
pub(crate) mod gauge;
mod idle;

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use agenix_harness::{binaries, resp::Resp};
use anyhow::{bail, ensure};
use e2e::{Agq, Lab};

/// The plan of every action here; what it would do nobody does.
const PLAN: &str = r#"{"plan_id":"load","tasks":[{"task_number":1,"command":"true"}]}"#;
/// We come from one address, and as fast as we can.
pub(crate) const AGQ: [&str; 4] = ["--max-connections-per-ip", "0", "--max-commands-per-second", "0"];

/// Runs everything; the action has so many inputs.
pub(crate) fn run(inputs: usize) -> anyhow::Result<()> {
    ensure!(inputs > 0, "--inputs is at least 1");
    let bin = binaries::build()?;
    let mut figures = Figures::default();
    bulk::run(&Place::new(&bin), inputs, &mut figures)?;
    if idle::may_have_descriptors() {
        idle::run(&Place::new(&bin), &mut figures)?;
    } else {
        figures.tell("connections that only wait", "NOT MEASURED: raise `ulimit -n` to 3000".into());
    }
    fair::run(&Place::new(&bin), inputs, &mut figures)?;
    figures.print()
}

/// An agq that is there for one scenario, with the plan.
struct Place {
    // The first to be dropped: it writes into the lab's directory.
    agq: Agq,
    lab: Lab,
}

impl Place {
    fn new(bin: &Path) -> Self {
        let lab = Lab::with_binaries(bin.to_owned());
        let agq = lab.agq(&AGQ);
        lab.submit_plan(&agq, PLAN);
        Self { agq, lab }
    }

    fn connect(&self) -> io::Result<Resp> {
        Resp::open(&self.agq.address(), self.lab.key())
    }
}

/// What was measured, line by line, and what of it is beyond its floor.
#[derive(Default)]
struct Figures {
    lines: Vec<(String, String)>,
    missed: Vec<String>,
}

impl Figures {
    /// Notes a figure, and says it at once: some take a while.
    fn tell(&mut self, what: &str, figure: String) {
        println!("  {what}: {figure}");
        self.lines.push((what.to_owned(), figure));
    }

    /// Notes a figure that may not reach a bound.
    fn hold(&mut self, what: &str, figure: f64, bound: f64, unit: &str) {
        let is_held = figure < bound;
        let verdict = if is_held { "ok" } else { "MISSED" };
        self.tell(what, format!("{figure:.2} {unit}, floor {bound} {unit}: {verdict}"));
        if !is_held {
            self.missed.push(what.to_owned());
        }
    }

    /// The same where the system may not say how much it is.
    fn hold_if_known(&mut self, what: &str, figure: Option<f64>, bound: f64, unit: &str) {
        match figure {
            Some(figure) => self.hold(what, figure, bound, unit),
            None => self.tell(what, "NOT MEASURED: only Linux says it".into()),
        }
    }

    /// Does so many things, and notes how long that took.
    fn clock<T>(
        &mut self,
        what: &str,
        count: usize,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let started = Instant::now();
        let done = work()?;
        self.tell(what, rate(count, started.elapsed()));
        Ok(done)
    }

    /// The last lines; an error where a floor was missed.
    fn print(&self) -> anyhow::Result<()> {
        let width = self.lines.iter().map(|(what, _)| what.chars().count()).max().unwrap_or_default();
        println!();
        for (what, figure) in &self.lines {
            println!("{what:<width$}  {figure}");
        }
        if !self.missed.is_empty() {
            bail!("floors were missed: {}", self.missed.join("; "));
        }
        Ok(())
    }
}

fn rate(count: usize, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = count as f64 / seconds.max(0.001);
    format!("{count} in {seconds:.1} s, {rate:.0}/s")
}

#[cfg(test)]
mod tests {
    use super::Figures;

    #[test]
    fn a_floor_is_held_below_it_and_missed_at_it() {
        let mut figures = Figures::default();
        figures.hold("memory", 999.9, 1000.0, "MB");
        figures.hold_if_known("time", None, 1.0, "s");
        assert!(figures.print().is_ok());
        figures.hold("memory", 1000.0, 1000.0, "MB");
        assert_eq!(figures.print().unwrap_err().to_string(), "floors were missed: memory");
    }
}
