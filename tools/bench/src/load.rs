//! `cargo xtask load`: checks bounds of the real binaries under load. The scenarios are an action
//! of a million inputs, thousands of idle connections, and claims during bulk submissions.

mod bulk;
mod claim_latency;
mod idle;
pub(crate) mod process_stats;

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use agenix_harness::{binaries, resp::Resp};
use anyhow::{bail, ensure};
use e2e::{Agq, Lab};

/// Plan of all actions, whose jobs no worker runs.
const PLAN: &str = r#"{"plan_id":"load","tasks":[{"task_number":1,"command":"true"}]}"#;
/// All clients have one address, and send as fast as they can.
pub(crate) const AGQ: [&str; 4] = ["--max-connections-per-ip", "0", "--max-commands-per-second", "0"];

/// Runs all scenarios. The large action has `inputs` inputs.
pub(crate) fn run(inputs: usize) -> anyhow::Result<()> {
    ensure!(inputs > 0, "--inputs is at least 1");
    let bin = binaries::build()?;
    let mut figures = LoadFigures::default();
    bulk::run(&LoadFixture::new(&bin), inputs, &mut figures)?;
    if idle::raise_descriptor_limit() {
        idle::run(&LoadFixture::new(&bin), &mut figures)?;
    } else {
        figures.record("connections that only wait", "NOT MEASURED: raise `ulimit -n` to 3000".into());
    }
    claim_latency::run(&LoadFixture::new(&bin), inputs, &mut figures)?;
    figures.print()
}

/// An agq for one scenario, with the plan.
struct LoadFixture {
    // agq is dropped first, because it writes into the directory of the lab.
    agq: Agq,
    lab: Lab,
}

impl LoadFixture {
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

/// Measured figures, and the names of those that miss their bound.
#[derive(Default)]
struct LoadFigures {
    lines: Vec<(String, String)>,
    missed: Vec<String>,
}

impl LoadFigures {
    /// Records and prints a figure.
    fn record(&mut self, name: &str, figure: String) {
        println!("  {name}: {figure}");
        self.lines.push((name.to_owned(), figure));
    }

    /// Records a figure that has to be below a bound.
    fn check(&mut self, name: &str, figure: f64, bound: f64, unit: &str) {
        let is_below = figure < bound;
        let verdict = if is_below { "ok" } else { "MISSED" };
        self.record(name, format!("{figure:.2} {unit}, floor {bound} {unit}: {verdict}"));
        if !is_below {
            self.missed.push(name.to_owned());
        }
    }

    /// Records a figure that has to be below a bound, if the system can measure it.
    fn check_if_known(&mut self, name: &str, figure: Option<f64>, bound: f64, unit: &str) {
        match figure {
            Some(figure) => self.check(name, figure, bound, unit),
            None => self.record(name, "NOT MEASURED: this needs Linux".into()),
        }
    }

    /// Runs `work`, which handles `count` items, and records its rate.
    fn time<T>(
        &mut self,
        name: &str,
        count: usize,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let started = Instant::now();
        let done = work()?;
        self.record(name, rate(count, started.elapsed()));
        Ok(done)
    }

    /// Prints all figures. A missed bound is an error.
    fn print(&self) -> anyhow::Result<()> {
        let width = self.lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
        println!();
        for (name, figure) in &self.lines {
            println!("{name:<width$}  {figure}");
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
    use super::LoadFigures;

    #[test]
    fn figure_passes_below_its_bound_and_fails_at_it() {
        let mut figures = LoadFigures::default();
        figures.check("memory", 999.9, 1000.0, "MB");
        figures.check_if_known("time", None, 1.0, "s");
        assert!(figures.print().is_ok());
        figures.check("memory", 1000.0, 1000.0, "MB");
        assert_eq!(figures.print().unwrap_err().to_string(), "floors were missed: memory");
    }
}
