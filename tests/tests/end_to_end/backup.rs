//! Backups: made while agq works, checked and restored; and reports about a damaged database.

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use e2e::{Agq, Lab, Ran, eventually};

use crate::{
    outputs::{blobs, sh, with_output},
    support::{RawConnection, action, ended, numbered, plan},
};

/// Runs a command of agq to its end.
fn agq_does(lab: &Lab, args: &[&str]) -> Ran {
    Ran::from(lab.command("agq").args(args).output().unwrap())
}

fn backup(lab: &Lab, agq: &Agq, file: &str) -> Ran {
    Ran::from(lab.command("agq").args(["backup", file, "--agq", &agq.address()]).output().unwrap())
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Writes k0, k1, … one after the other, and counts the acknowledged writes.
fn write_on(
    mut raw: RawConnection,
    acknowledged: &Arc<AtomicU64>,
    is_over: &Arc<AtomicBool>,
) -> thread::JoinHandle<u64> {
    let (acknowledged, is_over) = (Arc::clone(acknowledged), Arc::clone(is_over));
    thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            let number = acknowledged.load(Ordering::Relaxed);
            assert_eq!(raw.ask(&format!("SET k{number} v")), "+OK");
            acknowledged.store(number + 1, Ordering::Relaxed);
        }
        acknowledged.load(Ordering::Relaxed)
    })
}

#[test]
fn backup_of_an_agq_at_work_holds_what_was_acknowledged_and_comes_back() {
    let (lab, other) = (Lab::new(), Lab::new());
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", &numbered(2000));
    let (acknowledged, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = write_on(RawConnection::open(&lab, &agq), &acknowledged, &is_over);
    let so_far = || acknowledged.load(Ordering::Relaxed);
    eventually("something is written", || (so_far() >= 20).then_some(()));
    let before = so_far();
    let wrote = backup(&lab, &agq, "copy.redb").expect(0);
    assert!(
        wrote.out.starts_with("wrote copy.redb: ") && wrote.out.contains("2000 jobs, 1 plans"),
        "{wrote:?}"
    );
    let after = so_far();
    eventually("writes go on", || (so_far() > after).then_some(()));
    is_over.store(true, Ordering::Relaxed);
    let all = writer.join().unwrap();

    let copy = lab.path().join("copy.redb");
    assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let again = backup(&lab, &agq, "copy.redb").expect(1);
    assert!(again.err.contains("copy.redb already exists and is not overwritten"), "{again:?}");
    let beside = std::fs::read_dir(lab.path().join("data")).unwrap();
    let mut names: Vec<_> = beside.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["agq.journal", "agq.redb", "blobs"], "nothing is left beside the database");
    let busy = agq_does(&lab, &["check", "data"]).expect(1);
    assert!(busy.err.contains("another agq has data/agq.redb open"), "{busy:?}");
    let sound = agq_does(&lab, &["check", "copy.redb"]).expect(0);
    assert!(sound.out.starts_with("copy.redb is consistent: 2000 jobs, 1 actions, 1 plans"), "{sound:?}");

    let data = other.path().join("data");
    let restore = ["restore", shown(&copy), "--data-dir", shown(&data)];
    let restored = agq_does(&lab, &restore).expect(0);
    assert!(restored.out.contains("2000 jobs") && restored.out.contains("start agq"), "{restored:?}");
    let twice = agq_does(&lab, &restore).expect(1);
    assert!(twice.err.contains("move it away first"), "{twice:?}");
    let back = other.agq(&[]);
    let status = action(&other, &back, "a");
    assert_eq!((status["total_jobs"].as_u64(), status["pending"].as_u64()), (Some(2000), Some(2000)));
    let mut raw = RawConnection::open(&other, &back);
    let there: Vec<bool> = (0..all).map(|number| raw.ask(&format!("EXISTS k{number}")) == ":1").collect();
    let kept = there.iter().take_while(|is_there| **is_there).count() as u64;
    assert!(kept >= before, "{before} were acknowledged before it, {kept} are in it");
    assert!(!there[usize::try_from(kept).unwrap()..].contains(&true), "it is of one moment");
}

#[test]
fn damaged_database_is_refused_and_the_backup_takes_its_place() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    assert_eq!(raw.ask("SET key to-be-damaged"), "+OK");
    backup(&lab, &agq, "copy.redb").expect(0);
    agq.stop();
    agq_does(&lab, &["check", "data"]).expect(0);

    let file = lab.path().join("data/agq.redb");
    let mut bytes = std::fs::read(&file).unwrap();
    let text = b"to-be-damaged";
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at] = b'T');
    std::fs::write(&file, &bytes).unwrap();
    for args in [&["check", "data"][..], &["--port", "0", "--data-dir", "data"]] {
        let refused = agq_does(&lab, args).expect(1);
        assert!(refused.err.contains("is damaged") && refused.err.contains("agq restore"), "{refused:?}");
    }
    let document = agq_does(&lab, &["check", "data", "--json"]).expect(1).out;
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!((&document["is_sound"], document["error"].is_string()), (&false.into(), true));

    std::fs::rename(&file, lab.path().join("damaged.redb")).unwrap();
    agq_does(&lab, &["restore", "copy.redb", "--data-dir", "data"]).expect(0);
    agq.start_again(&lab);
    let mut raw = RawConnection::open(&lab, &agq);
    raw.send("GET key\n");
    assert_eq!(raw.bulk(), "to-be-damaged");
}

#[test]
fn backup_that_cannot_be_made_leaves_nothing_behind_and_says_what_to_do() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let wrong_key = lab
        .command("agq")
        .args(["backup", "copy.redb", "--agq", &agq.address()])
        .env("AGQ_SESSION_KEY", "0".repeat(64))
        .output();
    let wrong_key = Ran::from(wrong_key.unwrap()).expect(1);
    assert!(wrong_key.err.contains("refused the session key"), "{wrong_key:?}");
    agq.stop();
    let nobody = backup(&lab, &agq, "copy.redb").expect(1);
    assert!(nobody.err.contains("cannot reach agq") && nobody.err.contains("--agq"), "{nobody:?}");
    assert!(nobody.err.contains("copy agq.redb, agq.journal and blobs, always together"), "{nobody:?}");
    assert!(!lab.path().join("copy.redb").exists() && !lab.path().join("copy.redb.part").exists());
    agq_does(&lab, &["backup"]).expect(2);
}

#[test]
fn backup_has_every_large_output_and_one_that_is_incomplete_is_refused() {
    let (lab, other) = (Lab::on_files(), Lab::on_files());
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    with_output(&lab, &agq);
    let wrote = backup(&lab, &agq, "copy.redb").expect(0);
    let output = sh(&lab, "seq 150000");
    let large = format!("wrote copy.redb.blobs: 1 large outputs of {} bytes", output.len());
    assert!(wrote.out.contains(&large), "{wrote:?}");
    let directory = lab.path().join("copy.redb.blobs");
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    agq_does(&lab, &["check", "copy.redb"]).expect(0);
    let (copy, data) = (lab.path().join("copy.redb"), other.path().join("data"));
    let restore = ["restore", shown(&copy), "--data-dir", shown(&data)];

    // An incomplete copy of the directory, and none, as beside the backup of an older agq.
    let name = blobs(&lab).remove(0).strip_prefix(lab.path().join("data/blobs")).unwrap().to_owned();
    let (file, aside) = (directory.join(name), lab.path().join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    let refused = agq_does(&lab, &restore).expect(1);
    assert!(refused.err.contains("copy.redb.blobs is not complete"), "{refused:?}");
    assert!(!data.join("agq.redb").exists() && !data.join("agq.redb.part").exists());
    assert!(agq_does(&lab, &["check", "copy.redb"]).expect(1).out.contains("is missing"));
    std::fs::rename(&aside, &file).unwrap();
    std::fs::rename(&directory, &aside).unwrap();
    let old = agq_does(&lab, &["restore", "copy.redb", "--data-dir", "old"]).expect(0);
    assert!(old.out.contains("copy the 1 large outputs of copy.redb"), "{old:?}");
    std::fs::rename(&aside, &directory).unwrap();

    let restored = agq_does(&lab, &restore).expect(0);
    assert!(restored.out.contains("1 large outputs") && restored.out.contains("start agq"), "{restored:?}");
    agq_does(&other, &["check", "data"]).expect(0);
    // An export has the large output, too.
    let export = agq_does(&other, &["export", "--from", "data", "all.jsonl"]).expect(0);
    assert!(export.out.contains("wrote all.jsonl.blobs: 1 large outputs"), "{export:?}");
    agq_does(&other, &["import", "--to", "again", "all.jsonl"]).expect(0);
    agq_does(&other, &["check", "again"]).expect(0);
    assert_eq!(blobs(&other)[0].metadata().unwrap().len(), file.metadata().unwrap().len());
    let back = other.agq(&[]);
    assert!(other.agx(&back, &["action", "results", "a"]).expect(0).out == output);
}

#[test]
fn copy_of_the_database_and_its_blobs_after_a_clean_stop_is_a_backup() {
    let (lab, other) = (Lab::on_files(), Lab::on_files());
    let mut agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    with_output(&lab, &agq);
    agq.stop();
    let data = other.path().join("data");
    sh(&lab, &format!("mkdir -p {0} && cp -R data/agq.redb data/blobs {0}", data.display()));
    agq_does(&other, &["check", "data"]).expect(0);
    let back = other.agq(&[]);
    assert!(other.agx(&back, &["action", "results", "a"]).expect(0).out == sh(&lab, "seq 150000"));
}

#[test]
fn backup_says_which_large_output_agq_has_lost_and_keeps_the_others() {
    let (lab, other) = (Lab::on_files(), Lab::on_files());
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    with_output(&lab, &agq);
    let lost = blobs(&lab).remove(0);
    lab.submit_plan(&agq, &plan("other", "seq", &["160000"]));
    lab.submit_action(&agq, "other", "b", "[{}]");
    assert_eq!(ended(&lab, &agq, "b")["status"], "completed");
    std::fs::remove_file(&lost).unwrap();
    let wrote = backup(&lab, &agq, "copy.redb").expect(1);
    let name = lost.file_name().unwrap().to_str().unwrap();
    assert!(wrote.err.contains("1 large outputs") && wrote.err.contains(name), "{wrote:?}");
    let (copy, data) = (lab.path().join("copy.redb"), other.path().join("data"));
    let restored = agq_does(&lab, &["restore", shown(&copy), "--data-dir", shown(&data)]).expect(0);
    assert!(restored.out.contains("1 were lost before the backup"), "{restored:?}");
    let back = other.agq(&[]);
    assert!(other.agx(&back, &["action", "results", "b"]).expect(0).out == sh(&lab, "seq 160000"));
}

#[test]
fn no_large_output_of_a_backup_is_removed_before_its_end() {
    let lab = Lab::on_files();
    let agq = lab.agq(&["--keep-ended-count", "1", "--heartbeat-interval", "1"]);
    let _agw = lab.agw(&agq, "w1", &[]);
    with_output(&lab, &agq);
    let first = blobs(&lab).remove(0);
    let hash = first.file_name().unwrap().to_str().unwrap().split('-').next().unwrap().to_owned();
    let mut raw = RawConnection::open(&lab, &agq);
    raw.send("BACKUP BEGIN\n");
    let begun: serde_json::Value = serde_json::from_str(&raw.bulk()).unwrap();
    let backup = begun["backup_id"].as_str().unwrap();
    lab.submit_plan(&agq, &plan("other", "seq", &["160000"]));
    lab.submit_action(&agq, "other", "b", "[{}]");
    let second = sh(&lab, "seq 160000").len();
    eventually("only the second output counts", || {
        raw.send("METRICS json\n");
        let metrics: serde_json::Value = serde_json::from_str(&raw.bulk()).unwrap();
        (metrics["blob_bytes"] == second).then_some(())
    });
    raw.send(&format!("BACKUP BLOB {backup} {hash} 0\n"));
    assert!(raw.bulk() == sh(&lab, "seq 150000"));
    assert!(first.exists());
    assert_eq!(raw.ask(&format!("BACKUP END {backup}")), "+OK");
    eventually("the first output is removed", || (!first.exists()).then_some(()));
}
