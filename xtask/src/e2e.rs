//! The stories under tests/, on the binaries as they are shipped.

use crate::{
    binaries,
    report::{Report, cargo, must},
    tools,
};

/// Runs the stories alone.
pub(crate) fn run(filter: Option<&str>) -> anyhow::Result<()> {
    let mut report = Report::default();
    report.step("stories on the real binaries", |report| stories(report, filter))?;
    report.print();
    Ok(())
}

/// Builds, and runs the stories.
pub(crate) fn stories(report: &mut Report, filter: Option<&str>) -> anyhow::Result<()> {
    tools::cargo_tool(report, "nextest")?;
    let tools = tools::real_clients(report)?;
    let bin = binaries::build()?;
    let mut nextest = cargo(&["nextest", "run", "--locked", "--no-fail-fast", "--package", "e2e"]);
    nextest.args(filter).env("AGENIX_BIN", bin).env("AGENIX_TOOLS", tools);
    must(&mut nextest)
}
