//! The conformance suite of MCP against the handler, the tasks and the transport of `agx mcp`, with
//! fixtures that real jobs answer.

use std::{
    fs,
    process::{Command, Stdio},
};

use e2e::{Agq, Lab, Ran};
use rustix::process::Signal;

use crate::{clients::found, running::RunningCommand};

/// Scenarios that do not apply, with reasons.
const NOT_APPLICABLE: &str = "tests/sessions/mcp_conformance.yaml";

/// Server with the fixtures, which the drop kills.
struct FixtureServer {
    running: RunningCommand,
    url: String,
}

impl FixtureServer {
    fn start(lab: &Lab, agq: &Agq) -> Self {
        let mut command = lab.command("agenix-mcp-fixtures");
        command.env("AGQ_ADDR", agq.address()).env("AGQ_SESSION_KEY", lab.key());
        let mut running = RunningCommand::start(&mut command);
        let url = running.line().trim().to_owned();
        Self { running, url }
    }
}

impl Drop for FixtureServer {
    fn drop(&mut self) {
        self.running.signal(Signal::KILL);
    }
}

/// Runs the suite with a selection of its scenarios.
fn passes(selection: [&str; 2]) {
    let Some(node) = found::program("node") else { return };
    let Some(suite) = found::library("node/node_modules/@modelcontextprotocol/conformance") else { return };
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "4"]);
    let server = FixtureServer::start(&lab, &agq);
    let mut command = Command::new(node);
    command
        .arg(suite.join("dist/index.js"))
        .args(["server", "--url", &server.url, "--expected-failures"])
        .arg(Lab::repository(NOT_APPLICABLE))
        .args(selection)
        .arg("--output-dir")
        .arg(lab.path().join("checks"))
        .current_dir(lab.path())
        .stdin(Stdio::null());
    let ran = Ran::from(command.output().unwrap()).expect(0);
    assert!(ran.out.contains("=== SUMMARY ==="), "{}", ran.out);
}

#[test]
fn scenarios_of_revision_2026_07_28_pass() {
    passes(["--requirements", "2026-07-28"]);
}

#[test]
fn scenarios_of_revision_2025_11_25_pass() {
    passes(["--requirements", "2025-11-25"]);
}

#[test]
fn scenarios_of_tasks_and_of_headers_pass() {
    passes(["--suite", "pending"]);
}

#[test]
fn documentation_names_each_scenario_that_does_not_apply() {
    let listed = fs::read_to_string(Lab::repository(NOT_APPLICABLE)).unwrap();
    let page = fs::read_to_string(Lab::repository("docs/mcp.md")).unwrap();
    let names: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("  - ")).collect();
    assert!(names.len() > 30);
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "docs/mcp.md does not name {name}");
    }
}
