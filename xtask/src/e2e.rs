//! Runs the end-to-end tests of tests/ on the real programs.

use std::{path::Path, process::Command};

use agenix_harness::{
    binaries,
    report::{RunReport, cargo, must},
    tools,
};
use e2e::{Postgres, SHARED};

/// Runs the end-to-end tests whose names contain `filter`, on redb and on PostgreSQL, with programs
/// of the release build.
pub(crate) fn run(filter: Option<&str>) -> anyhow::Result<()> {
    let mut report = RunReport::default();
    let bin = binaries::build()?;
    binaries::build_fixtures()?;
    let tests = EndToEndTests { bin: &bin, profile: "dev", filter };
    report.step("end-to-end tests", |report| on_redb(report, tests))?;
    report.step("end-to-end tests on PostgreSQL", |report| on_postgres(report, tests))?;
    report.print();
    Ok(())
}

/// End-to-end tests to run.
#[derive(Clone, Copy)]
pub(crate) struct EndToEndTests<'s> {
    /// Directory of the programs under test.
    pub(crate) bin: &'s Path,
    /// Profile with which cargo builds the tests themselves.
    pub(crate) profile: &'s str,
    /// Part of the names of the tests, if not all are to run.
    pub(crate) filter: Option<&'s str>,
}

/// Filter for the tests that need PostgreSQL on either store.
const NODES: &str = "test(/^nodes::/)";
/// Filter for the tests of the dashboard in a browser.
const BROWSER: &str = "test(/^http::browser::/)";
/// Filter for the tests with pgbouncer between agq and PostgreSQL.
const POOLER: &str = "test(/^nodes::pooled::/)";
/// Filter for the tests with outputs in a bucket of S3.
const BUCKET: &str = "test(/^(nodes::)?bucket::/)";
/// Filter for the tests of data files, which agq does not have on PostgreSQL.
const DATA_FILES: &str = "test(/^backup::/) | test(second_agq_on_the_same_data)";

/// Filter for tests that do not depend on the store: most of them have their data in files in any
/// case (`Lab::on_files`), and the others are about terminals, logs, TLS, the processes of agw, and
/// sandboxes.
const WITHOUT_STORE: &str = "test(/^(ask|attacks|audit_chain|gigabyte|json|log_lines|map|map_like_others|map_live|map_programs|map_text|mcp::bounds|mcp_conformance|pages|provenance|sandbox|sandbox_options|sandboxed_jobs|secrets|session_leader|signals|spool_disk|standard_streams|stray_processes|surroundings|terminal|tls|worker_limits)::/) | test(/^(map_bytes::(map|run)_|outputs::(every_byte|map_without_a_server)_)/)";

/// Beginning of the names of the tests in a virtual machine, which are a step of their own.
pub(crate) const IN_VM: &str = "sandboxed_jobs::control_groups::";

/// Runs the tests on redb, and the tests of several nodes.
pub(crate) fn on_redb(report: &mut RunReport, tests: EndToEndTests<'_>) -> anyhow::Result<()> {
    let cluster = tools::postgres(report);
    let nodes = if cluster.is_some() { "none()" } else { NODES };
    let browser = if tools::browser(report) { "none()" } else { BROWSER };
    let pooler = if tools::pooler(report) { "none()" } else { POOLER };
    let excluded = format!("{nodes} | {browser} | {pooler}");
    must(&mut nextest(report, tests, &excluded, cluster.as_ref())?)
}

/// Runs the tests on PostgreSQL, without those that do not depend on the store.
pub(crate) fn on_postgres(report: &mut RunReport, tests: EndToEndTests<'_>) -> anyhow::Result<()> {
    let Some(cluster) = tools::postgres(report) else { return Ok(()) };
    let excluded = format!("{NODES} | {DATA_FILES} | {WITHOUT_STORE} | {BROWSER}");
    must(nextest(report, tests, &excluded, Some(&cluster))?.env("AGENIX_STORE", "postgres"))
}

fn nextest(
    report: &mut RunReport,
    EndToEndTests { bin, profile, filter }: EndToEndTests<'_>,
    excluded: &str,
    cluster: Option<&Postgres>,
) -> anyhow::Result<Command> {
    tools::cargo_tool(report, "nextest")?;
    let tools = tools::real_clients(report)?;
    let bucket = if tools::s3_server(report, &tools) { "none()" } else { BUCKET };
    let mut nextest =
        cargo(&["nextest", "run", "--workspace", "--all-features", "--test", "end_to_end", "--locked"]);
    nextest.args(["--cargo-profile", profile, "--no-fail-fast", "--no-tests=pass"]);
    // A test waits for half of its time.
    let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    nextest.args(["--test-threads", &threads.to_string()]);
    nextest.args(["-E", &format!("not ({excluded} | {bucket} | test(/^{IN_VM}/))")]).args(filter);
    nextest.env("AGENIX_BIN", bin).env("AGENIX_TOOLS", tools);
    nextest.envs(cluster.map(|cluster| (SHARED, cluster.path())));
    Ok(nextest)
}
