//! Hash chain of the audit log: across restarts, crashes and rotations, and after changes.

use std::path::PathBuf;

use e2e::{Agq, Lab, Ran, eventually};
use serde_json::Value;

use crate::support::{RawConnection, plan};

/// Submits a plan with the id `id`, and returns the head of the chain after it.
fn head_after(lab: &Lab, agq: &Agq, id: &str) -> String {
    let mut raw = RawConnection::open(lab, agq);
    raw.ask(&format!("PLAN.SUBMIT '{}'", plan(id, "true", &[])));
    raw.send("INFO audit\n");
    let info = raw.bulk();
    let head = info.trim_end().strip_prefix("# Audit\r\naudit_log_head:").unwrap().to_owned();
    raw.send("METRICS json\n");
    let metrics: Value = serde_json::from_str(&raw.bulk()).unwrap();
    assert_eq!(metrics["audit_log_head"], head);
    raw.send("METRICS\n");
    let line = format!("\nagq_audit_log_info{{head=\"{head}\"}} 1\n");
    assert!(raw.bulk().contains(&line), "{line}");
    head
}

fn verified(lab: &Lab, args: &[&str]) -> Ran {
    Ran::from(lab.command("agx").args(["--json", "audit", "verify"]).args(args).output().unwrap())
}

/// Changes the lines of `audit.log`, and returns the number of the first line that does not fit.
fn misfit(lab: &Lab, change: impl FnOnce(&mut Vec<String>)) -> u64 {
    let text = std::fs::read_to_string(lab.path().join("audit.log")).unwrap();
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    change(&mut lines);
    lab.file("changed.log", &(lines.join("\n") + "\n"));
    let ran = verified(lab, &["changed.log"]).expect(1);
    assert!(ran.err.contains("\"audit_misfit\""), "{}", ran.err);
    assert_eq!((&ran.data()["fits"], &ran.data()["misfit"]["file"]), (&false.into(), &"changed.log".into()));
    ran.data()["misfit"]["line"].as_u64().unwrap()
}

#[test]
fn audit_log_verifies_until_a_line_of_it_is_changed() {
    let lab = Lab::on_files();
    let agq = lab.agq(&["--audit-log", "audit.log"]);
    let heads: Vec<String> = (1..=5).map(|n| head_after(&lab, &agq, &format!("p{n}"))).collect();
    let whole = verified(&lab, &["audit.log", "--head", &heads[4]]).expect(0);
    assert_eq!((&whole.data()["lines"], &whole.data()["lines_after_head"]), (&5.into(), &0.into()));
    assert_eq!(whole.data()["head"], heads[4]);
    let earlier = verified(&lab, &["audit.log", "--head", &heads[1]]).expect(0);
    assert_eq!(earlier.data()["lines_after_head"], 3);

    assert_eq!(
        misfit(&lab, |lines| lines[1] = lines[1].replace("OK", "no")),
        3,
        "a changed line shows in the next one"
    );
    assert_eq!(misfit(&lab, |lines| drop(lines.remove(1))), 2, "a removed line");
    assert_eq!(misfit(&lab, |lines| lines.swap(1, 2)), 2, "two lines that changed places");
    assert_eq!(
        misfit(&lab, |lines| lines.insert(1, r#"{"command":"AUTH"}"#.into())),
        2,
        "a line without hash"
    );

    // Only a head that was kept elsewhere shows missing lines at the end.
    let text = std::fs::read_to_string(lab.path().join("audit.log")).unwrap();
    let short: Vec<&str> = text.lines().take(3).collect();
    lab.file("short.log", &(short.join("\n") + "\n"));
    verified(&lab, &["short.log"]).expect(0);
    let ran = verified(&lab, &["short.log", "--head", &heads[4]]).expect(1);
    assert_eq!((&ran.data()["fits"], ran.data().get("misfit")), (&false.into(), None));
    verified(&lab, &["short.log", "--head", "abc"]).expect(2);
    let text =
        lab.command("agx").args(["audit", "verify", "short.log", "--head", &heads[4]]).output().unwrap();
    let text = Ran::from(text).expect(1).out;
    assert!(text.contains("3 lines fit\nno line has the hash ") && text.contains("are missing"), "{text}");
}

#[test]
fn audit_log_is_one_chain_across_crashes_restarts_and_rotations() {
    let lab = Lab::on_files();
    let log = |name: &str| -> PathBuf { lab.path().join(name) };
    // The log of an agq without hash chain.
    lab.file("audit.log", "{\"command\":\"PLAN.SUBMIT\",\"target\":\"old\"}\n");
    let mut agq = lab.agq(&["--audit-log", "audit.log"]);
    head_after(&lab, &agq, "p1");
    agq.kill();
    // The crash left a part of a line.
    let torn = std::fs::read_to_string(log("audit.log")).unwrap() + "{\"at\":\"2025-11-17T10:0";
    std::fs::write(log("audit.log"), torn).unwrap();
    agq.start_again(&lab);
    head_after(&lab, &agq, "p2");
    // logrotate renames the log and sends SIGHUP.
    std::fs::rename(log("audit.log"), log("audit.log.2")).unwrap();
    agq.reload();
    eventually("the new file", || log("audit.log").exists().then_some(()));
    let kept = head_after(&lab, &agq, "p3");
    // agq is stopped before the next rotation.
    agq.stop();
    std::fs::rename(log("audit.log"), log("audit.log.1")).unwrap();
    agq.start_again(&lab);
    let head = head_after(&lab, &agq, "p4");

    let files = ["audit.log.2", "audit.log.1", "audit.log"];
    let ran = verified(&lab, &[&files[..], &["--head", &head]].concat()).expect(0);
    let counts = ["lines", "unchained_lines", "torn_lines", "lines_after_head"]
        .map(|field| ran.data()[field].as_u64());
    assert_eq!(counts, [Some(4), Some(1), Some(1), Some(0)]);
    let ran = verified(&lab, &["audit.log", "--head", &kept]).expect(0);
    assert_eq!(
        (&ran.data()["begins_after"], &ran.data()["lines_after_head"]),
        (&kept.as_str().into(), &1.into())
    );
    // A missing file and a wrong order show in the first line of a file.
    for (files, file) in
        [(["audit.log.2", "audit.log"], "audit.log"), (["audit.log", "audit.log.1"], "audit.log.1")]
    {
        let ran = verified(&lab, &files).expect(1);
        assert_eq!((&ran.data()["misfit"]["file"], &ran.data()["misfit"]["line"]), (&file.into(), &1.into()));
    }
}

#[test]
fn audit_log_has_one_agq() {
    let lab = Lab::on_files();
    let _agq = lab.agq(&["--audit-log", "audit.log"]);
    let mut other = lab.command("agq");
    other.args(["--port", "0", "--http", "off", "--data-dir", "other", "--audit-log", "audit.log"]);
    let ran = Ran::from(other.output().unwrap()).expect(1);
    assert!(ran.err.contains("another process writes it"), "{}", ran.err);
}
