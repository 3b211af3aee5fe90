//! `agx mcp`: agents run plans over the Model Context Protocol.

mod bounds;
mod foreign_clients;
mod session;
mod transcript;

use std::{
    fs::{self, File, Permissions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use e2e::{Agq, Lab, Ran, eventually};
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::{Pid, Signal, kill_process},
};
use serde_json::{Value, json};

use self::session::McpSession;
use crate::{
    running::RunningCommand,
    support::{ended, process_of},
};

fn command(lab: &Lab, agq: &Agq) -> Command {
    let mut command = lab.command("agx");
    command.env("AGQ_ADDR", agq.address());
    command
}

/// Returns the command of a session with the key of an agent.
fn of_agent(lab: &Lab, agq: &Agq, letter: &str) -> Command {
    let mut command = command(lab, agq);
    command.env("AGQ_SESSION_KEY", letter.repeat(64));
    command
}

#[test]
fn task_completes_under_its_id_after_agq_agw_and_agx_were_killed() {
    let lab = Lab::new();
    let mut agq = lab.agq(&["--heartbeat-interval", "1"]);
    let mut agw = lab.agw(&agq, "w1", &[]);
    let gate = lab.path().join("gate");
    mknodat(CWD, &gate, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut session = McpSession::with_tasks(&mut command(&lab, &agq));
    let run = json!({"pipeline": format!("cat {} -", gate.display()), "request_id": "r", "retries": 3, "wait_secs": 0});
    let task = session.call("agx_run", &run);
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    let id = task["taskId"].as_str().unwrap().to_owned();
    agw.kill();
    session.kill();
    agq.kill();
    agq.start_again(&lab);

    let mut session = McpSession::with_tasks(&mut command(&lab, &agq));
    assert_eq!(session.request("tasks/get", json!({"taskId": id})).unwrap()["status"], "working");
    assert_eq!(session.call("agx_run", &run)["taskId"], json!(id), "the same request has the same task");
    let _agw = lab.agw(&agq, "w2", &[]);
    File::options().write(true).open(&gate).unwrap().write_all(b"word\n").unwrap();
    let done = eventually("the task completes", || {
        let task = session.request("tasks/get", json!({"taskId": id})).unwrap();
        (task["status"] == "completed").then_some(task)
    });
    let result = &done["result"]["structuredContent"];
    assert_eq!(
        (&result["state"], &result["results"]["jobs"][0]["stdout"]),
        (&json!("completed"), &json!("word\n"))
    );

    let unknown = session.request("tasks/get", json!({"taskId": "mcp-0"})).unwrap_err();
    assert_eq!(unknown["code"], -32602, "{unknown}");
    let endless = session.call("agx_run", &json!({"pipeline": "sleep 1000", "wait_secs": 0}));
    let endless = json!({"taskId": endless["taskId"]});
    session.request("tasks/cancel", endless.clone()).unwrap();
    eventually("the task is cancelled", || {
        (session.request("tasks/get", endless.clone()).unwrap()["status"] == "cancelled").then_some(())
    });
}

#[test]
fn agent_sees_nothing_of_another_and_approves_nothing() {
    let lab = Lab::new();
    let policy = lab.file("policy.toml", "version = 1\nuse = ['cat']\n[tools.awk]\nclass = 'interpreter'\n");
    let keys = format!(
        "[agents]\none = '{}'\ntwo = '{}'\n[admins]\nalice = '{}'\n",
        "1".repeat(64),
        "2".repeat(64),
        "a".repeat(64)
    );
    let config = lab.file("agq.toml", &keys).display().to_string();
    let agq = lab.agq(&["--config", &config, "--policy", &policy.display().to_string()]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let mut one = McpSession::with_tasks(&mut of_agent(&lab, &agq, "1"));
    let mut two = McpSession::with_tasks(&mut of_agent(&lab, &agq, "2"));
    let run = json!({"plan": {"tasks": [{"task_number": 1, "command": "cat", "stdin": "text"}]}, "request_id": "r", "wait_secs": 45});
    let done = one.document("agx_run", &run);
    let id = done["action_id"].as_str().unwrap().to_owned();
    assert_eq!(done["state"], "completed");
    for tool in ["agx_status", "agx_wait", "agx_results"] {
        let text = two.refused(tool, &json!({"action_id": id}));
        assert!(text.starts_with(&format!("there is no action {id}")), "{text}");
    }
    assert_eq!(two.request("tasks/get", json!({"taskId": id})).unwrap_err()["code"], -32602);
    two.request("tasks/cancel", json!({"taskId": id})).unwrap_err();
    two.refused("agx_cancel", &json!({"action_id": id}));
    let own = two.document("agx_run", &run);
    assert_ne!(own["action_id"], json!(id), "each key has request ids of its own");

    let tools = one.document("agx_tools", &json!({"query": "cat"}));
    assert!(tools["programs"].as_array().unwrap().iter().any(|program| program["name"] == "cat"), "{tools}");
    let refused = one.refused("agx_run", &json!({"pipeline": "rm /data"}));
    assert!(refused.contains("refused by policy") && refused.contains("Next: change the plan"), "{refused}");
    let waiting = one.call("agx_run", &json!({"pipeline": "awk 1", "wait_secs": 0}));
    let message = waiting["statusMessage"].as_str().unwrap();
    assert!(message.contains("agx approve mcp-"), "{waiting}");
    let waiting = one.document("agx_wait", &json!({"action_id": waiting["taskId"], "secs": 0}));
    assert_eq!(waiting["state"], "waiting_for_approval", "{waiting}");
    let listed = one.request("tools/list", json!({})).unwrap();
    assert!(!listed.to_string().contains("agx_approve"));
}

#[test]
fn plan_whose_approval_has_expired_can_be_submitted_again() {
    let lab = Lab::new();
    let policy = lab.file("policy.toml", "version = 1\nuse = ['cat']\n[tools.awk]\nclass = 'interpreter'\n");
    let policy = policy.display().to_string();
    let keys = format!("[agents]\none = '{}'\n[admins]\nalice = '{}'\n", "1".repeat(64), "a".repeat(64));
    let config = lab.file("agq.toml", &keys).display().to_string();
    let agq = lab.agq(&["--config", &config, "--policy", &policy, "--approval-timeout", "2"]);
    let mut session = McpSession::start(&mut of_agent(&lab, &agq, "1"));
    let run = |request: &str| json!({"pipeline": "awk 1", "request_id": request, "wait_secs": 0});
    let first = session.document("agx_run", &run("first"))["action_id"].clone();
    eventually("the approval expires", || {
        let status = session.document("agx_status", &json!({"action_id": first}));
        (status["state"] == "cancelled").then_some(())
    });
    let second = session.document("agx_run", &run("second"));
    assert_ne!(second["action_id"], first);
}

#[test]
fn server_answers_what_it_does_not_understand_and_ends_with_its_stdin() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut session = McpSession::start(&mut command(&lab, &agq));
    let error = session.request("tools/call", json!({"name": "agx_approve", "arguments": {}})).unwrap_err();
    assert_eq!(error["code"], -32602, "{error}");
    let error = session.request("resources/read", json!({"uri": "file:///etc/passwd"})).unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("there is no resource"), "{error}");
    assert_eq!(error["data"]["uri"], "file:///etc/passwd");
    session.request("no/such/method", json!({})).unwrap_err();
    session.refused("agx_run", &json!({"pipeline": "true", "plan_id": "p"}));
    session.refused("agx_run", &json!({"pipeline": "true", "lines": ["a"], "inputs": [{}]}));
    session.refused("agx_run", &json!({"plan": {"plan_id": "p", "tasks": []}}));
    session.refused("agx_results", &json!({"action_id": "a", "cursor": "x"}));
    session.refused("agx_wait", &json!({"action_id": "no action/id"}));
    let discovered = session.request("server/discover", json!({})).unwrap();
    assert!(discovered["instructions"].as_str().unwrap().contains("request_id"), "{discovered}");
    drop(session);

    let mut printed = command(&lab, &agq);
    let key = ["--session-key-file", "robot.key"];
    printed.args(["mcp", "--queue", "agents", "--print-config"]).args(key);
    let config = Ran::from(printed.output().unwrap()).expect(0).out;
    let config: Value = serde_json::from_str(&config).unwrap();
    let env = &config["mcpServers"]["agenix"]["env"];
    assert_eq!(env["AGQ_ADDR"], agq.address());
    assert!(env["AGQ_SESSION_KEY_FILE"].as_str().unwrap().ends_with("/robot.key"), "{env}");
    assert!(!config.to_string().contains(lab.key()), "no key is printed");
    assert_eq!(config["mcpServers"]["agenix"]["args"], json!(["mcp", "--queue=agents"]));
}

#[test]
fn printed_configuration_has_absolute_paths_unless_the_worker_is_elsewhere() {
    let lab = Lab::on_files();
    let here = lab.path().canonicalize().unwrap().display().to_string();
    let printed = |address: Option<&str>| {
        let mut command = lab.command("agx");
        command.env("AGX_HOME", "home").args(["mcp", "--cwd", ".", "--print-config"]);
        address.map(|address| command.env("AGQ_ADDR", address));
        let config = Ran::from(command.output().unwrap()).expect(0).out;
        let config: Value = serde_json::from_str(&config).unwrap();
        config["mcpServers"]["agenix"].clone()
    };
    let own = printed(None);
    assert_eq!(own["args"], json!(["mcp", format!("--cwd={here}")]));
    assert_eq!(own["env"]["AGX_HOME"], format!("{here}/home"));
    assert_eq!(printed(Some("queue.example:6380"))["args"], json!(["mcp", "--cwd=."]));
}

/// Sends a request to the MCP server at `url`, and returns the status line, and the body.
fn post(address: &str, headers: &str, body: &Value) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         Content-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

#[test]
fn http_needs_the_key_and_refuses_other_sites_and_other_hosts() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let mut http = command(&lab, &agq);
    let mut server =
        RunningCommand::start(http.args(["mcp", "--http", "127.0.0.1:0", "--http-host", "mcp.example"]));
    let line = server.err_line();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split("/mcp").next()).unwrap().to_owned();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "agx_run",
        "arguments": {"pipeline": "echo over http", "wait_secs": 45},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    let of_call = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: agx_run\r\n";
    let key = format!("Authorization: Bearer {}\r\n{of_call}", lab.key());
    let host = format!("Host: {address}\r\n");
    let (status, body) = post(&address, &format!("{host}{key}"), &call);
    assert!(status.contains(" 200 ") && body.contains("over http\\n"), "{status} {body}");
    let (status, body) = post(&address, &format!("Host: mcp.example\r\n{key}"), &call);
    assert!(status.contains(" 200 ") && body.contains("over http"), "{status} {body}");
    for (headers, expected) in [
        (format!("{host}{of_call}"), " 401 "),
        (format!("{host}{of_call}Authorization: Bearer {}\r\n", "f".repeat(64)), " 401 "),
        (format!("Host: attacker.example\r\n{key}"), " 403 "),
        (format!("{host}{key}Origin: http://attacker.example\r\n"), " 403 "),
        (format!("{host}{key}Origin: http://localhost:6274\r\n"), " 200 "),
        (format!("{host}{of_call}Origin: http://localhost:6274\r\n"), " 401 "),
    ] {
        let (status, body) = post(&address, &headers, &call);
        assert!(status.contains(expected), "{headers}: {status} {body}");
    }
    let mut large = call;
    large["params"]["arguments"]["request_id"] = json!("x".repeat(5 * 1024 * 1024));
    let (status, body) = post(&address, &format!("{host}{key}"), &large);
    assert!(status.contains(" 200 ") && body.contains("over http\\n"), "{status} {body}");
    server.signal(Signal::TERM);
    let refused = lab.agx(&agq, &["mcp", "--http", "0.0.0.0:0"]).expect(2);
    assert!(refused.err.contains("is no loopback address"), "{}", refused.err);
}

/// agq and worker of `agx mcp`, which end with the test.
struct Background<'l>(&'l Lab);

impl Drop for Background<'_> {
    fn drop(&mut self) {
        let Ok(home) = self.0.path().join("agx-home").read_dir() else { return };
        for entry in home.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("mcp-") {
                // agq and the worker may have ended already.
                let _ended = self.0.command("agx").arg("down").arg(name).output();
            }
        }
    }
}

#[test]
fn server_without_an_agq_starts_one_for_its_directory_which_stays() {
    let lab = Lab::on_files();
    fs::set_permissions(lab.path(), Permissions::from_mode(0o755)).unwrap();
    let _background = Background(&lab);
    let project = lab.path().join("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("file"), "text\n").unwrap();
    let start = || McpSession::start(lab.command("agx").current_dir(&project));
    let run = json!({"pipeline": "cat file", "request_id": "r", "wait_secs": 45});
    let mut session = start();
    let done = session.document("agx_run", &run);
    assert_eq!(done["results"]["jobs"][0]["stdout"], "text\n", "{done}");
    session.kill();
    let mut session = start();
    assert_eq!(session.document("agx_run", &run)["action_id"], done["action_id"]);
    let agq = process_of("agq", &lab.path().join("agx-home")).unwrap();
    kill_process(Pid::from_raw(agq).unwrap(), Signal::KILL).unwrap();
    assert_eq!(
        session.document("agx_run", &run)["action_id"],
        done["action_id"],
        "the supervisor starts agq again"
    );

    let everything = lab.command("agx").arg("mcp").current_dir("/").stdin(Stdio::null()).output().unwrap();
    let refused = Ran::from(everything).expect(2);
    assert!(refused.err.contains("could read everything in /"), "{}", refused.err);
}

#[test]
fn tool_waits_for_an_agq_that_is_away() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let mut session = McpSession::start(&mut command(&lab, &agq));
    let done = session.document("agx_run", &json!({"pipeline": "echo x", "wait_secs": 45}));
    let id = done["action_id"].as_str().unwrap().to_owned();
    agq.kill();
    session.send("tools/call", json!({"name": "agx_status", "arguments": {"action_id": id}}));
    agq.start_again(&lab);
    assert_eq!(session.receive().unwrap()["structuredContent"]["state"], "completed");
    assert_eq!(ended(&lab, &agq, &id)["status"], "completed");
}
