//! The stories under tests/, on the binaries as they are shipped.

use std::process::Command;

use agenix_harness::{
    binaries,
    report::{Report, cargo, must},
    tools,
};
use e2e::{Postgres, SHARED};

/// Runs the stories alone.
pub(crate) fn run(filter: Option<&str>) -> anyhow::Result<()> {
    let mut report = Report::default();
    report.step("stories on the real binaries", |report| stories(report, filter))?;
    report.step("the same on PostgreSQL", |report| stories_on_postgres(report, filter))?;
    report.print();
    Ok(())
}

/// Stories that need PostgreSQL, wherever agq keeps everything.
const OF_NODES: &str = "test(/^nodes::/)";
/// Stories in a browser, which are about agq's own pages, wherever it keeps everything.
const OF_A_BROWSER: &str = "test(/^http::browser::/)";
/// Filter for the stories with pgbouncer between agq and PostgreSQL.
const OF_A_POOLER: &str = "test(/^nodes::pooled::/)";
/// Stories about files, which PostgreSQL has its own ways for.
const OF_FILES: &str = "test(/^backup::/) | test(a_second_agq_on_the_same_data)";

/// Builds, and runs the stories: where agq keeps everything in a file, and those of several nodes.
pub(crate) fn stories(report: &mut Report, filter: Option<&str>) -> anyhow::Result<()> {
    let cluster = tools::postgres(report);
    let nodes = if cluster.is_some() { "none()" } else { OF_NODES };
    let browser = if tools::browser(report) { "none()" } else { OF_A_BROWSER };
    let pooler = if tools::pooler(report) { "none()" } else { OF_A_POOLER };
    must(&mut nextest(report, filter, &format!("{nodes} | {browser} | {pooler}"), cluster.as_ref())?)
}

/// The same stories, where agq keeps everything in PostgreSQL.
pub(crate) fn stories_on_postgres(report: &mut Report, filter: Option<&str>) -> anyhow::Result<()> {
    let Some(cluster) = tools::postgres(report) else { return Ok(()) };
    let left_out = format!("{OF_NODES} | {OF_FILES} | {OF_A_BROWSER}");
    must(nextest(report, filter, &left_out, Some(&cluster))?.env("AGENIX_STORE", "postgres"))
}

fn nextest(
    report: &mut Report,
    filter: Option<&str>,
    left_out: &str,
    cluster: Option<&Postgres>,
) -> anyhow::Result<Command> {
    tools::cargo_tool(report, "nextest")?;
    let (tools, bin) = (tools::real_clients(report)?, binaries::build()?);
    let mut nextest =
        cargo(&["nextest", "run", "--locked", "--no-fail-fast", "--no-tests=pass", "--package", "e2e"]);
    // A story waits for half of its time.
    let at_once = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    nextest.args(["--test-threads", &at_once.to_string()]);
    nextest.args(["-E", &format!("not ({left_out})")]).args(filter);
    nextest.env("AGENIX_BIN", bin).env("AGENIX_TOOLS", tools);
    nextest.envs(cluster.map(|cluster| (SHARED, cluster.path())));
    Ok(nextest)
}
