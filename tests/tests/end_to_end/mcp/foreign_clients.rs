//! Sessions of foreign clients of MCP, in the Python and the TypeScript SDK.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
};

use e2e::{Agq, Lab, Ran, eventually};

use crate::clients::found;

/// Versions of the protocol that a client supports.
const REVISIONS: [&str; 2] = ["2026-07-28", "legacy"];

/// Returns the command of a session of tests/sessions with `agx mcp`.
fn session(mut client: Command, script: &str, (lab, agq): (&Lab, &Agq), revision: &str) -> Command {
    client
        .arg(Lab::repository("tests/sessions").join(script))
        .arg(lab.command("agx").get_program())
        .args(["--revision", revision])
        .env("AGQ_ADDR", agq.address())
        .env("AGQ_SESSION_KEY", lab.key())
        .env("AGX_HOME", lab.path().join("agx-home"))
        .current_dir(lab.path())
        .stdin(Stdio::null());
    client
}

/// Runs a session in both ages of the protocol, each with an agq of its own.
fn whole_session(script: &str, client: impl Fn() -> Option<Command>) {
    for revision in REVISIONS {
        let Some(client) = client() else { return };
        let lab = Lab::new();
        let agq = lab.agq(&[]);
        let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "4"]);
        let mut command = session(client, script, (&lab, &agq), revision);
        let ran = Ran::from(command.output().unwrap()).expect(0);
        assert!(ran.out.ends_with("mcp: all went well\n"), "{}\n{}", ran.out, ran.err);
        assert!(!ran.err.contains("ignored in schema"), "{}", ran.err);
    }
}

/// Runs a session during which agq and agw are killed, and which kills agx itself.
fn session_with_kills(script: &str, client: impl Fn() -> Option<Command>) {
    for revision in REVISIONS {
        let Some(client) = client() else { return };
        let lab = Lab::new();
        let mut agq = lab.agq(&["--heartbeat-interval", "1"]);
        let mut agw = lab.agw(&agq, "w1", &[]);
        let (gate, started) = (lab.path().join("gate"), lab.path().join("gate.started"));
        let mut command = session(client, script, (&lab, &agq), revision);
        command.arg("--gate").arg(&gate).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "running\n");
        eventually("the start of the job", || started.exists().then_some(()));
        agw.kill();
        agq.kill();
        fs::remove_file(&started).unwrap();
        agq.start_again(&lab);
        let _agw = lab.agw(&agq, "w2", &[]);
        child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success() && rest == "mcp: all went well\n", "{rest}");
    }
}

fn python() -> Option<Command> {
    let mut command = Command::new(found::program("python3")?);
    command.arg("-B").env("PYTHONPATH", found::library("mcp-py")?);
    Some(command)
}

fn node() -> Option<Command> {
    let modules = found::library("node/node_modules/@modelcontextprotocol")?;
    let mut command = Command::new(found::program("node")?);
    command.env("NODE_PATH", modules.parent()?);
    Some(command)
}

#[test]
fn python_client_runs_inputs_pages_through_results_and_cancels() {
    whole_session("mcp_client.py", python);
}

#[test]
fn typescript_client_gets_progress_and_resources() {
    whole_session("mcp_client.mjs", node);
}

#[test]
fn python_client_finds_its_task_after_agq_agw_and_agx_were_killed() {
    session_with_kills("mcp_kills.py", python);
}

#[test]
fn typescript_client_finds_its_task_after_agq_agw_and_agx_were_killed() {
    session_with_kills("mcp_kills.mjs", node);
}
