//! The session of docs/mcp.md: errors per host in 1,000 gzipped logs, with the calls of the page.
//! The results are those of the page, and take few tokens of a model.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use e2e::Lab;
use serde_json::{Value, json};

use super::{command, session::McpSession};

const LOGS: usize = 1000;
/// Directory of the logs on the page.
const DIRECTORY: &str = "/logs";
/// Maximum number of bytes of all results, with that of a wait on a slow machine.
const MAX_BYTES: usize = 2_000;
const MAX_CALLS: usize = 3;

/// Writes the logs, and returns their paths and the number of errors of each host.
fn logs(directory: &Path) -> (Vec<String>, BTreeMap<String, u32>) {
    let mut errors = BTreeMap::new();
    let mut paths = Vec::new();
    for log in 0..LOGS {
        let mut text = String::new();
        for line in 0..20 {
            let number = 1 + (log * 7 + line * line) % 8;
            let level = if line % (number + 2) == 1 { "ERROR" } else { "INFO" };
            let host = format!("web-{number}");
            text += &format!("2026-11-01T00:{line:02}:00Z {host} {level} request {log}\n");
            if level == "ERROR" {
                *errors.entry(host).or_default() += 1;
            }
        }
        let path = directory.join(format!("{:04}.log", log + 1));
        fs::write(&path, text).unwrap();
        paths.push(path.display().to_string());
    }
    assert!(Command::new("gzip").args(&paths).status().unwrap().success());
    (paths.into_iter().map(|path| path + ".gz").collect(), errors)
}

/// Returns the documents of a section of the page, in their order.
fn documents(section: &str) -> Vec<Value> {
    let page = fs::read_to_string(Lab::repository("docs/mcp.md")).unwrap();
    let (_, text) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let blocks = text.split("```json\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.map(|block| serde_json::from_str(block).unwrap()).collect()
}

/// Returns a result with another id.
fn with_id(text: &str, id: &str, other: &str) -> Value {
    serde_json::from_str(&text.replace(id, other)).unwrap()
}

#[test]
fn errors_per_host_in_a_thousand_logs_take_few_calls_and_few_tokens() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "4"]);
    let directory = lab.path().join("logs");
    fs::create_dir(&directory).unwrap();
    let (paths, errors) = logs(&directory);
    let documents = documents("A session");
    let [map, joined, reduce, counted] = &documents[..] else { panic!("the page has two calls") };
    let mut session = McpSession::start(&mut command(&lab, &agq));
    let (mut calls, mut bytes) = (0, 0);
    let mut call = |name: &str, arguments: &Value| {
        let result = session.call(name, arguments);
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        calls += 1;
        bytes += result["content"].to_string().len();
        text
    };

    let mut arguments = map["arguments"].clone();
    let shown = arguments["lines"].as_array().unwrap();
    assert_eq!(shown[0], json!(paths[0].replacen(directory.to_str().unwrap(), DIRECTORY, 1)));
    arguments["lines"] = json!(paths);
    let mut text = call("agx_run", &arguments);
    let result: Value = serde_json::from_str(&text).unwrap();
    let id = result["action_id"].as_str().unwrap().to_owned();
    if result["results"].is_null() {
        // A slow machine takes longer than the wait of a call.
        let wait = json!({"action_id": id, "secs": 45, "max_bytes": arguments["max_bytes"]});
        text = call("agx_wait", &wait);
    }
    let shown_id = joined["action_id"].as_str().unwrap();
    assert_eq!(&with_id(&text, &id, shown_id), joined);

    let arguments = reduce["arguments"].to_string().replace(shown_id, &id);
    let text = call("agx_run", &serde_json::from_str(&arguments).unwrap());
    let result: Value = serde_json::from_str(&text).unwrap();
    let id = result["action_id"].as_str().unwrap();
    assert_eq!(&with_id(&text, id, counted["action_id"].as_str().unwrap()), counted);
    let table = result["results"]["jobs"][0]["stdout"].as_str().unwrap();
    let rows = table.lines().map(|row| row.trim().split_once(' ').unwrap());
    let found: BTreeMap<_, _> = rows.map(|(count, host)| (host.to_owned(), count.parse().unwrap())).collect();
    assert_eq!(found, errors);
    assert!(calls <= MAX_CALLS && bytes <= MAX_BYTES, "{calls} calls, {bytes} bytes");
}
