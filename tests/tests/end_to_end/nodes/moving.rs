//! Export and import: all data of an agq moves from its files into PostgreSQL and back, completely
//! or not at all.

use std::path::Path;

use e2e::{Agq, Lab, Ran};
use serde_json::Value;

use crate::{
    outputs::{sh, with_output},
    support::{RawConnection, action, numbered, only_job, plan},
};

/// Runs a command of agq to its end.
fn agq_does(lab: &Lab, args: &[&str]) -> Ran {
    Ran::from(lab.command("agq").args(args).output().unwrap())
}

/// Returns the lines of a file except the first, which has the time of the export.
fn records(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

/// Starts an agq that knows an agent.
fn agq_with_agent(lab: &Lab) -> Agq {
    let config = lab.file("agq.toml", &format!("[agents]\none = '{}'\n", "1".repeat(64)));
    lab.agq(&["--config", &config.display().to_string()])
}

fn agent(agq: &Agq) -> RawConnection {
    let mut raw = RawConnection::bare(agq);
    assert_eq!(raw.ask(&format!("AUTH {}", "1".repeat(64))), "+OK");
    raw
}

/// Creates data of every kind that agq stores.
fn fill(lab: &Lab, agq: &Agq) {
    lab.submit_plan(agq, &plan("p", "sh", &["-c", "echo \"$1\"; exit $0", "{{input.code}}", "{{input.n}}"]));
    lab.submit_plan(agq, &plan("waits", "true", &[]));
    lab.submit_plan(agq, &plan("held", "no-such-program", &[]));
    {
        let _agw = lab.agw(agq, "w", &[]);
        let codes = ["0", "65"].map(|code| format!(r#"{{"n":"é\"\\{code}","code":"{code}"}}"#)).join(",");
        lab.submit_action(agq, "p", "done", &format!("[{codes}]"));
        e2e::eventually("both have ended", || {
            let status = action(lab, agq, "done");
            (status["completed"] == 1 && status["failed"] == 1).then_some(())
        });
    }
    let inputs = lab.file("inputs", &numbered(3)).display().to_string();
    lab.agx(agq, &["action", "submit", "waits", "--id", "soon", "--inputs", &inputs, "--queue", "night"])
        .expect(0);
    lab.agx(agq, &["action", "submit", "waits", "--id", "late", "--inputs", &inputs, "--delay", "3600"])
        .expect(0);
    lab.submit_action(agq, "held", "held", &numbered(2_500));
    let mut raw = RawConnection::open(lab, agq);
    for command in ["QUEUE.PAUSE night", "SET text value", "SET brief v PX 9000000000000000"] {
        assert_eq!(raw.ask(command), "+OK", "{command}");
    }
    assert_eq!(raw.ask("RPUSH list a b c"), ":3");
    assert_eq!(raw.ask("LPUSH list z"), ":4");
    assert_eq!(raw.ask("ZADD set 1.5 one -inf least inf most -0 none"), ":4");
    raw.send_bytes(b"*3\r\n$3\r\nSET\r\n$2\r\n\xff\x00\r\n$3\r\n\x00\xfe\n\r\n");
    assert_eq!(raw.line(), "+OK");
    // One action has a halt policy, and another one has halted while a job of it runs.
    let armed = r#"{"action_id":"armed","plan_id":"held","inputs":[{}],"halt":"now,done=20%"}"#;
    let halted =
        r#"{"action_id":"halted","plan_id":"waits","inputs":[{},{}],"queue":"own","halt":"soon,fail=1"}"#;
    for action in [armed, halted] {
        assert!(raw.ask(&format!("ACTION.SUBMIT '{action}'")).starts_with("+OK"));
    }
    let ids = ["RPOP queue:own", "RPOP queue:own"].map(|claim| {
        raw.send(&format!("{claim}\n"));
        let job: Value = serde_json::from_str(&raw.bulk()).unwrap();
        job["job_id"].as_str().unwrap().to_owned()
    });
    assert_eq!(raw.ask(&format!(r#"JOB.UPDATE {} '{{"status":"failed"}}'"#, ids[0])), "+OK");
    let mut agent = agent(agq);
    assert_eq!(agent.ask(&format!("PLAN.SUBMIT '{}'", plan("owned", "true", &[]))), "+OK plan_id=owned");
    let owned = r#"{"action_id":"owned","plan_id":"owned","inputs":[{}],"queue":"owned"}"#;
    assert!(agent.ask(&format!("ACTION.SUBMIT '{owned}'")).starts_with("+OK"));
    // The last job is claimed and never reported.
    raw.send("BRPOP queue:ready 1\n");
    raw.bulk();
}

/// Returns the data as users see it.
fn seen(lab: &Lab, agq: &Agq) -> Vec<Value> {
    let mut raw = RawConnection::open(lab, agq);
    let mut seen: Vec<Value> = Vec::new();
    for command in ["GET text", "ZSCORE set least", "ZSCORE set none"] {
        raw.send(&format!("{command}\n"));
        seen.push(raw.bulk().into());
    }
    assert_eq!(raw.ask("LRANGE list 0 -1"), "*4");
    seen.extend((0..4).map(|_| Value::from(raw.bulk())));
    for id in ["done", "soon", "late", "held", "armed", "owned"] {
        seen.push(action(lab, agq, id));
        seen.push(lab.agx(agq, &["job", "list", id, "--json"]).expect(0).data());
    }
    let done = lab.agx(agq, &["job", "list", "done", "--json"]).expect(0).data();
    for job in done.as_array().unwrap() {
        seen.push(lab.agx(agq, &["job", "status", job.as_str().unwrap(), "--json"]).expect(0).data());
    }
    seen
}

#[test]
fn everything_moves_from_files_into_postgresql_and_back() {
    let (files, nodes) = (Lab::on_files(), Lab::of_nodes());
    let at = |name: &str| files.path().join(name).display().to_string();
    let url = nodes.database().unwrap().url();
    let mut agq = agq_with_agent(&files);
    fill(&files, &agq);
    let before = seen(&files, &agq);
    // After the kill, the write-ahead log has changes that the database does not have yet.
    agq.kill();

    agq_does(&files, &["export", "--from", "data", "one.jsonl"]).expect(0);
    let imported = agq_does(&files, &["import", "--to", &url, "one.jsonl"]).expect(0);
    assert!(imported.out.contains("2512 jobs, ") && imported.out.ends_with("; start agq\n"), "{imported:?}");
    agq_does(&files, &["export", "--from", &url, "two.jsonl"]).expect(0);
    assert_eq!(records(Path::new(&at("two.jsonl"))), records(Path::new(&at("one.jsonl"))));
    let twice = agq_does(&files, &["import", "--to", &url, "one.jsonl"]).expect(1);
    assert!(twice.err.contains("is not empty, and what is in it is not overwritten"), "{twice:?}");

    let mut node = agq_with_agent(&nodes);
    assert_eq!(seen(&nodes, &node), before);
    for list in ["PLAN.LIST", "ACTION.LIST", "JOBS.SEARCH"] {
        assert_eq!(agent(&node).ask(list), "*1", "{list}");
    }
    // New jobs come after the imported ones, and waiting jobs continue.
    nodes.submit_action(&node, "waits", "new", "[{}]");
    assert_eq!(RawConnection::open(&nodes, &node).ask("SET new v"), "+OK");
    assert_eq!(RawConnection::open(&nodes, &node).ask("QUEUE.RESUME night"), "+OK");
    let _agw = nodes.agw(&node, "w", &["--queues", "night,ready"]);
    e2e::eventually("what waited is done", || {
        let all = ["soon", "new"].map(|id| action(&nodes, &node, id)["completed"].as_u64());
        (all == [Some(3), Some(1)]).then_some(())
    });
    drop(_agw);
    assert!(node.stop().success());

    agq_does(&files, &["export", "--from", &url, "three.jsonl"]).expect(0);
    let other = Lab::on_files();
    let back = other.path().join("data").display().to_string();
    agq_does(&files, &["import", "--to", &back, "three.jsonl"]).expect(0);
    let sound = agq_does(&files, &["check", &back]).expect(0);
    assert!(sound.out.contains("is consistent: 2513 jobs"), "{sound:?}");
    agq_does(&files, &["export", "--from", &back, "four.jsonl"]).expect(0);
    assert_eq!(records(Path::new(&at("four.jsonl"))), records(Path::new(&at("three.jsonl"))));
    let again = other.agq(&[]);
    assert_eq!(action(&other, &again, "soon")["completed"], 3);
    assert_eq!(only_job(&other, &again, "new")["status"], "completed");
    let full = agq_does(&files, &["import", "--to", "data", "three.jsonl"]).expect(1);
    assert!(full.err.contains("already exists and is not overwritten"), "{full:?}");
}

#[test]
fn large_outputs_move_from_postgresql_into_files_and_back() {
    let (nodes, files, others) = (Lab::of_nodes(), Lab::on_files(), Lab::of_nodes());
    let [url, other_url] = [&nodes, &others].map(|lab| lab.database().unwrap().url());
    let mut node = nodes.agq(&[]);
    let agw = nodes.agw(&node, "w", &[]);
    with_output(&nodes, &node);
    drop(agw);
    assert!(node.stop().success());
    let output = sh(&nodes, "seq 150000");
    let blobs_of = |lab: &Lab| lab.path().join("blobs").display().to_string();

    let without = agq_does(&files, &["export", "--from", &url, "records.jsonl"]).expect(0);
    assert!(without.out.contains("records.jsonl is without its 1 large outputs"), "{without:?}");
    assert!(!files.path().join("records.jsonl.blobs").exists());
    let from = ["export", "--from", &url, "--blob-dir", &blobs_of(&nodes), "all.jsonl"];
    let exported = agq_does(&files, &from).expect(0);
    let copied = format!("1 large outputs of {} bytes", output.len());
    assert!(exported.out.contains(&format!("wrote all.jsonl.blobs: {copied}")), "{exported:?}");
    let imported = agq_does(&files, &["import", "--to", "data", "all.jsonl"]).expect(0);
    assert!(imported.out.contains(&format!("imported all.jsonl.blobs: {copied}")), "{imported:?}");
    agq_does(&files, &["check", "data"]).expect(0);
    let mut agq = files.agq(&[]);
    assert!(files.agx(&agq, &["action", "results", "a"]).expect(0).out == output, "in files");
    assert!(agq.stop().success());

    agq_does(&files, &["export", "--from", "data", "back.jsonl"]).expect(0);
    let nowhere = agq_does(&files, &["import", "--to", &other_url, "back.jsonl"]).expect(1);
    assert!(nowhere.err.contains("name the directory for them with --blob-dir"), "{nowhere:?}");
    let back = ["import", "--to", &other_url, "--blob-dir", &blobs_of(&others), "back.jsonl"];
    agq_does(&files, &back).expect(0);
    let again = others.agq(&[]);
    assert!(others.agx(&again, &["action", "results", "a"]).expect(0).out == output, "in PostgreSQL");
}

#[test]
fn incomplete_export_leaves_nothing_behind() {
    let (files, nodes) = (Lab::on_files(), Lab::of_nodes());
    let url = nodes.database().unwrap().url();
    let mut agq = files.agq(&[]);
    files.submit_plan(&agq, &plan("p", "true", &[]));
    files.submit_action(&agq, "p", "a", &numbered(3_000));
    agq.stop();
    agq_does(&files, &["export", "--from", "data", "whole.jsonl"]).expect(0);
    let whole = std::fs::read_to_string(files.path().join("whole.jsonl")).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let all_but = |left_out: usize| {
        let kept = lines.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, line)| *line);
        kept.collect::<Vec<_>>().join("\n") + "\n"
    };
    let cases = [
        (whole[..whole.len() - 1].to_owned(), "it is not whole"),
        (whole[..whole.len() / 2].to_owned(), "it is not whole"),
        (all_but(lines.len() - 1), "it is not whole"),
        (all_but(1_000), "jobs: expected 3000 records, found 2999"),
        (whole.replacen(r#""max_retries":"#, r#""max_retries":1"#, 1), "it was damaged, or changed"),
        (whole.replacen(r#"{"plan":"#, r#"{"plam":"#, 1), "line 2 is no record that this agq knows"),
        (whole.replacen(r#""version":1"#, r#""version":2"#, 1), "use a newer agq"),
        (whole.clone() + "{}\n", "something follows its last line"),
        (String::new(), "it is not whole"),
        ("{}\n".to_owned(), "its first line is not that of a file which `agq export` wrote"),
    ];
    for (text, words) in &cases {
        files.file("bad.jsonl", text);
        for to in ["new", &url] {
            let refused = agq_does(&files, &["import", "--to", to, "bad.jsonl"]).expect(1);
            assert!(refused.err.contains(words), "{to}: {words}: {refused:?}");
        }
        let left = std::fs::read_dir(files.path().join("new")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{words}");
    }
    agq_does(&files, &["import", "--to", &url, "whole.jsonl"]).expect(0);
    agq_does(&files, &["import", "--to", "new", "whole.jsonl"]).expect(0);
}
