//! Outputs of any size are returned, whole or not at all.

use std::{
    fs::File,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use agenix_client::{Connection, Server};
use agenix_protocol::{
    blob::{BlobHash, OutputStream},
    ids::JobId,
    request::{BlockingWait, OpenFile, UploadKey},
};
use e2e::{Agq, Lab, Ran, eventually, peak_memory_kib};
use serde_json::json;

use crate::support::{RawConnection, ended, plan};

const MIB: usize = 1024 * 1024;
/// Number and size of the files that the map with kills unpacks.
const FILES: usize = 20;
const FILE_BYTES: usize = 64 * MIB;

/// Runs a shell command in the directory of the lab, and returns what it prints.
pub(crate) fn sh(lab: &Lab, script: &str) -> String {
    let ran = Command::new("sh").arg("-c").arg(script).current_dir(lab.path()).output().unwrap();
    assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

fn sha256(lab: &Lab, command: &str) -> String {
    sh(lab, &format!("{command} | sha256sum"))
}

pub(crate) fn blobs(lab: &Lab) -> Vec<PathBuf> {
    let root = if lab.has_database() { lab.path().join("blobs") } else { lab.path().join("data/blobs") };
    let files =
        |part: std::fs::DirEntry| std::fs::read_dir(part.path()).unwrap().map(|file| file.unwrap().path());
    let parts = std::fs::read_dir(root).unwrap().map(Result::unwrap);
    parts.filter(|part| part.file_name() != "uploads").flat_map(files).collect()
}

/// Ends the job of an action with a megabyte of output.
pub(crate) fn with_output(lab: &Lab, agq: &Agq) {
    lab.submit_plan(agq, &plan("p", "seq", &["150000"]));
    lab.submit_action(agq, "p", "a", "[{}]");
    assert_eq!(ended(lab, agq, "a")["status"], "completed");
}

#[test]
fn map_without_a_server_returns_outputs_of_any_size() {
    let lab = Lab::on_files();
    let map = |options: &str, words: &str| {
        let agx = lab.bin().join("agx");
        sh(&lab, &format!("{} map {options} -- {words}", agx.display()))
    };
    let sizes = ["10", "9000", "300000", "2000000"];
    let expected: String = sizes.map(|size| sh(&lab, &format!("seq {size}"))).concat();
    assert!(map("-k -j 2", "'seq {}' ::: 10 9000 300000 2000000") == expected, "the order is kept");
    lab.file("slow.sh", "test $1 != 10 || until test -e go; do sleep 0.01; done; touch go.$1; seq $1");
    lab.file("go.sh", "until test -e go.2000000; do sleep 0.01; done; touch go");
    let slow_first = "'sh slow.sh {}' ::: 10 9000 300000 2000000 & sh go.sh; wait";
    assert!(map("-k -j 4", slow_first) == expected, "later outputs wait at agq");
    sh(&lab, "rm go go.*0");
    assert!(map("-k -j 4 --results out", slow_first) == expected, "later outputs wait in a file");
    let tagged = map("--tag", "'seq {}' ::: 300000");
    assert_eq!(tagged.lines().count(), 300_000);
    assert!(tagged.lines().all(|line| line.starts_with("300000\t")));
    map("--results out", "'seq {}' ::: 300000");
    assert!(sh(&lab, "cat out/1/300000/stdout") == sh(&lab, "seq 300000"));
    lab.file("both.sh", "seq 300000 >&2; seq 5");
    let both = map("", "'sh both.sh' ::: x 2>&1 >stdout");
    assert!(both == sh(&lab, "seq 300000") && sh(&lab, "cat stdout") == sh(&lab, "seq 5"));
}

#[test]
fn every_byte_comes_back_although_agq_and_a_worker_are_killed() {
    let lab = Lab::on_files();
    // A gzip file may have several members, so one large member is compressed once.
    sh(&lab, &format!("seq 100000000 | head -c {FILE_BYTES} | gzip -1 > common"));
    sh(&lab, &format!("for n in $(seq -w {FILES}); do (echo $n | gzip; cat common) > $n.gz; done"));
    let expected = sha256(&lab, "zcat *.gz");
    let mut agq = lab.agq(&["--heartbeat-interval", "1"]);
    let mut first = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "1"]);
    let mut second = lab.agw(&agq, "w2", &["--max-concurrent-jobs", "1"]);
    let files: Vec<String> =
        (1..=FILES).map(|n| lab.path().join(format!("{n:02}.gz")).display().to_string()).collect();
    let printed = lab.path().join("printed");
    let mut map = lab.command("agx");
    map.env("AGQ_ADDR", agq.address()).args(["map", "-k", "--retries", "3", "zcat {}", ":::"]).args(&files);
    map.stdout(File::create(&printed).unwrap()).stderr(Stdio::inherit());
    let mut map = map.spawn().unwrap();
    let printed_mib = || std::fs::metadata(&printed).map_or(0, |metadata| metadata.len()) / MIB as u64;
    eventually("the first output is printed", || (printed_mib() >= 64).then_some(()));
    first.kill();
    eventually("more output is printed", || (printed_mib() >= 200).then_some(()));
    agq.kill();
    agq.start_again(&lab);
    let peak_mib = |pid| peak_memory_kib(pid).map(|kib| kib / 1024);
    let mut peak_of_agx = 0;
    let ended_well = eventually("the map ends", || {
        peak_of_agx = peak_mib(map.id()).unwrap_or(peak_of_agx);
        map.try_wait().unwrap()
    });
    assert!(ended_well.success());
    assert_eq!(sha256(&lab, "cat printed"), expected);
    let peaks = [peak_mib(agq.pid()).unwrap(), peak_mib(second.pid()).unwrap(), peak_of_agx];
    assert!(peaks[0] < 300 && peaks[1] < 100 && peaks[2] < 100, "MiB of agq, agw and agx: {peaks:?}");
    // The outputs outlive the workers, and agq.
    second.terminate();
    second.wait();
    agq.stop();
    agq.start_again(&lab);
    let history = lab.agx(&agq, &["history", "--json"]).expect(0).data();
    let action = history[0]["action_id"].as_str().unwrap().to_owned();
    lab.agx(&agq, &["action", "results", &action, "--output-dir", "out"]).expect(0);
    let in_order: String = (0..FILES).map(|at| format!(" out/{at}.out")).collect();
    assert_eq!(sha256(&lab, &format!("cat {in_order}")), expected);
}

#[test]
fn interrupted_download_is_continued() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    with_output(&lab, &agq);
    let whole = sh(&lab, "seq 150000");
    // The first part is right, the second one is that of another output.
    for part in [&whole[..700_000], "something else"] {
        std::fs::create_dir_all(lab.path().join("out")).unwrap();
        lab.file("out/0.out.part", part);
        lab.agx(&agq, &["action", "results", "a", "--output-dir", "out"]).expect(0);
        assert!(std::fs::read_to_string(lab.path().join("out/0.out")).unwrap() == whole);
        assert!(!lab.path().join("out/0.out.part").exists());
    }
}

/// Stops agq, and checks that `agq check` reports `fault`. Only a data directory can be checked.
fn check_fails(lab: &Lab, agq: &mut Agq, fault: &str) {
    if Lab::is_on_postgres() {
        return;
    }
    agq.stop();
    let checked = lab.command("agq").args(["check", "data"]).output().unwrap();
    let lines = String::from_utf8(checked.stdout).unwrap();
    assert!(!checked.status.success() && lines.contains(fault), "{lines}");
    agq.start_again(lab);
}

#[test]
fn equal_outputs_are_stored_once_and_a_damaged_one_is_never_returned() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    with_output(&lab, &agq);
    lab.submit_action(&agq, "p", "b", "[{},{}]");
    eventually("the other jobs end", || {
        let status = lab.agx(&agq, &["action", "status", "b", "--json"]).expect(0).data();
        (status["completed"].as_u64() == Some(2)).then_some(())
    });
    let files = blobs(&lab);
    let [file] = files.as_slice() else { panic!("one file, not {files:?}") };
    let name = file.file_name().unwrap().to_str().unwrap();
    let mut bytes = std::fs::read(file).unwrap();
    bytes[500_000] ^= 1;
    std::fs::write(file, &bytes).unwrap();
    let damaged = lab.agx(&agq, &["action", "results", "a", "--output-dir", "out"]);
    assert_ne!(damaged.code, 0);
    assert!(damaged.err.contains(name) && damaged.err.contains("is damaged"), "{}", damaged.err);
    assert!(!lab.path().join("out/0.out").exists());
    check_fails(&lab, &mut agq, "is damaged");
    std::fs::remove_file(file).unwrap();
    check_fails(&lab, &mut agq, "is missing, and 3 jobs name it");
    let missing = lab.agx(&agq, &["action", "results", "a"]);
    assert_ne!(missing.code, 0);
    assert!(missing.out.is_empty() && missing.err.contains(name), "{}", missing.err);
}

#[test]
fn blobs_are_removed_with_their_jobs() {
    let lab = Lab::new();
    let agq = lab.agq(&["--keep-ended-count", "1", "--heartbeat-interval", "1"]);
    let _agw = lab.agw(&agq, "w1", &[]);
    with_output(&lab, &agq);
    assert_eq!(blobs(&lab).len(), 1);
    let bytes = sh(&lab, "seq 150000").len();
    let mut raw = RawConnection::open(&lab, &agq);
    eventually("the metrics count the blob", || {
        raw.send("METRICS json\n");
        let metrics: serde_json::Value = serde_json::from_str(&raw.bulk()).unwrap();
        (metrics["blobs"] == 1 && metrics["blob_bytes"] == bytes).then_some(())
    });
    lab.submit_plan(&agq, &plan("other", "seq", &["160000"]));
    lab.submit_action(&agq, "other", "b", "[{}]");
    let remains = |path: &Path| path.exists();
    let first = blobs(&lab).remove(0);
    eventually("the first blob is removed", || (!remains(&first)).then_some(()));
    assert!(lab.agx(&agq, &["action", "results", "b"]).expect(0).out == sh(&lab, "seq 160000"));
}

#[test]
fn forgotten_job_frees_its_disk() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    with_output(&lab, &agq);
    let file = blobs(&lab).remove(0);
    let job = lab.agx(&agq, &["job", "list", "a"]).expect(0).out.trim().to_owned();
    lab.agx(&agq, &["job", "forget", &job]).expect(0);
    let again = lab.agx(&agq, &["job", "forget", &job]);
    assert!(again.code != 0 && again.err.contains("there is no job"), "{}", again.err);
    eventually("the blob is removed", || (!file.exists()).then_some(()));
}

#[test]
fn map_without_a_server_needs_no_disk_for_outputs_that_it_has_printed() {
    let lab = Lab::on_files();
    // The last job waits until the outputs of all jobs before it are gone, except the latest.
    lab.file(
        "large.sh",
        "count() { find \"$1\" -path '*/blobs/??/*' -type f | wc -l; }\n\
         test $2 != 5 || until test $(count \"$1\") -le 1; do sleep 0.1; done\nseq $2 200000\n",
    );
    let tmp = lab.path().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let mut agx = lab.command("agx");
    agx.args(["map", "-k", "-j", "1", "--", "sh", "large.sh"])
        .arg(&tmp)
        .args(["{}", ":::", "1", "2", "3", "4", "5"]);
    let ran = Ran::from(agx.env("TMPDIR", &tmp).output().unwrap()).expect(0);
    assert!(ran.out == sh(&lab, "for n in 1 2 3 4 5; do seq $n 200000; done"));
}

/// Claims the next job. Returns the key for an upload of its stdout, and `file` as a worker names
/// the file to agq.
#[cfg(target_os = "linux")]
async fn claimed(connection: &mut Connection, file: &File) -> (UploadKey, OpenFile) {
    let claimed = connection.claim(&["ready".parse().unwrap()], 1, BlockingWait::Forever).await.unwrap();
    let job_id = claimed[0].job_id.clone();
    let metadata = file.metadata().unwrap();
    let (descriptor, device, inode) = (file.as_raw_fd().cast_unsigned(), metadata.dev(), metadata.ino());
    let upload = UploadKey { job_id, attempt: 1, task_number: 1, stream: OutputStream::Stdout };
    (upload, OpenFile { descriptor, device, inode, may_be_kept: true })
}

/// Completes the next job with the content of `file` as its stdout. Returns the file of the blob.
#[cfg(target_os = "linux")]
async fn completed_with(connection: &mut Connection, file: &File) -> PathBuf {
    let (upload, open) = claimed(connection, file).await;
    let other = OpenFile { inode: open.inode + 1, ..open };
    let refused = connection.copy_output(&upload, (0, 5), other).await.unwrap_err();
    assert!(refused.to_string().contains("the descriptor is that of another file"), "{refused}");
    let length = file.metadata().unwrap().len();
    let hash = committed(connection, &upload, open, length).await;
    completed(connection, &upload, length, hash).await
}

/// Stores the stdout of a job, which is a file of `length` bytes.
#[cfg(target_os = "linux")]
async fn committed(connection: &mut Connection, upload: &UploadKey, open: OpenFile, length: u64) -> BlobHash {
    assert_eq!(connection.copy_output(upload, (0, 7), open).await.unwrap().0, 7);
    let (total, hash) = connection.copy_output(upload, (7, length - 7), open).await.unwrap();
    assert_eq!(total, length);
    connection.commit_output(upload, length, hash).await.unwrap();
    hash
}

/// Reports the end of a job, whose stdout is a blob. Returns the file of the blob.
#[cfg(target_os = "linux")]
async fn completed(connection: &mut Connection, upload: &UploadKey, length: u64, hash: BlobHash) -> PathBuf {
    let report = format!(
        r#"{{"status":"completed","attempt":1,"task_results":[{{"task_number":1,"command":"seq","exit_code":0,"stdout":"","stdout_bytes":{length},"stdout_blob":"{hash}"}}]}}"#
    );
    connection.update_job_json(&upload.job_id, report).await.unwrap();
    let (total, stored) = connection.job_file(&upload.job_id, (1, upload.stream)).await.unwrap().unwrap();
    assert_eq!(total, length);
    stored
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn on_one_machine_agq_and_agx_read_files_of_each_other() {
    let lab = Lab::new();
    let address = format!("unix:{}", lab.path().join("agq.sock").display());
    let agq = lab.agq(&["--socket", &lab.path().join("agq.sock").display().to_string()]);
    lab.submit_plan(&agq, &plan("p", "seq", &["1"]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let server = Server::new(&address, lab.key().to_owned().into()).unwrap();
    let mut connection = Connection::open_without_timeout(&server).await.unwrap();
    let inode = |path: &Path| path.metadata().unwrap().ino();

    let content = "agenix\n".repeat(100_000);
    let with_name = lab.file("output", &content);
    let stored = completed_with(&mut connection, &File::open(&with_name).unwrap()).await;
    assert_eq!(&std::fs::read(&stored).unwrap()[..content.len()], content.as_bytes());
    assert_ne!(inode(&stored), inode(with_name.as_ref()), "a file with a name is copied");
    let results = || {
        let mut agx = lab.command("agx");
        Ran::from(agx.args(["--agq", &address, "action", "results", "a"]).output().unwrap())
    };
    assert!(results().expect(0).out == content);
    File::options().write(true).open(&stored).unwrap().write_all_at(b"x", 5000).unwrap();
    let damaged = results();
    let name = stored.file_name().unwrap().to_str().unwrap();
    assert!(damaged.code != 0 && damaged.out.is_empty() && damaged.err.contains(name), "{}", damaged.err);

    lab.submit_action(&agq, "p", "b", "[{}]");
    let content = "AGEniX\n".repeat(100_000);
    let without_name = tempfile::tempfile_in(lab.path()).unwrap();
    without_name.write_all_at(content.as_bytes(), 0).unwrap();
    let stored = completed_with(&mut connection, &without_name).await;
    assert_eq!(inode(&stored), without_name.metadata().unwrap().ino(), "agq keeps the file");
    let mut agx = lab.command("agx");
    let ran = Ran::from(agx.args(["--agq", &address, "action", "results", "b"]).output().unwrap());
    assert!(ran.expect(0).out == content);

    lab.submit_action(&agq, "p", "c", "[{}]");
    let without_name = tempfile::tempfile_in(lab.path()).unwrap();
    without_name.write_all_at(b"more than that", 0).unwrap();
    let (upload, open) = claimed(&mut connection, &without_name).await;
    let (_, hash) = connection.copy_output(&upload, (0, 7), open).await.unwrap();
    let short = connection.commit_output(&upload, 7, hash).await.unwrap_err();
    assert!(short.to_string().contains("it has 14 bytes, not 7"), "{short}");
    let beyond_the_end = connection.copy_output(&upload, (0, 20), open).await.unwrap();
    assert_eq!(beyond_the_end.0, 14, "a part ends with the file");
}

/// Registers the worker `w` with its jobs, again after a restart of agq.
#[cfg(target_os = "linux")]
async fn registered(server: &Server, jobs: &[&JobId]) -> Connection {
    let mut connection = Connection::open_without_timeout(server).await.unwrap();
    let registration =
        json!({"worker_id": "w", "instance": "i", "capabilities": ["seq"], "active_job_ids": jobs});
    connection.register(&serde_json::from_value(registration).unwrap()).await.unwrap();
    connection
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn file_that_agq_has_linked_is_uploaded_again_after_a_kill_of_agq() {
    let lab = Lab::new();
    let socket = lab.path().join("agq.sock").display().to_string();
    let mut agq = lab.agq(&["--socket", &socket]);
    lab.submit_plan(&agq, &plan("p", "seq", &["1"]));
    let server = Server::new(&format!("unix:{socket}"), lab.key().to_owned().into()).unwrap();
    for is_committed in [false, true] {
        let mut connection = registered(&server, &[]).await;
        let content = format!("committed: {is_committed}\n").repeat(50_000);
        let (file, length) = (tempfile::tempfile_in(lab.path()).unwrap(), content.len() as u64);
        file.write_all_at(content.as_bytes(), 0).unwrap();
        let action = is_committed.to_string();
        lab.submit_action(&agq, "p", &action, "[{}]");
        let (upload, open) = claimed(&mut connection, &file).await;
        let begun = r#"{"status":"running","attempt":1}"#.to_owned();
        connection.update_job_json(&upload.job_id, begun).await.unwrap();
        // The claim is on disk with the next acknowledged change.
        lab.submit_plan(&agq, &plan(&format!("of-{action}"), "seq", &["1"]));
        if is_committed {
            committed(&mut connection, &upload, open, length).await;
        } else {
            connection.copy_output(&upload, (0, length), open).await.unwrap();
        }
        assert_eq!(file.metadata().unwrap().nlink(), 1, "agq has linked the file");
        agq.kill();
        agq.start_again(&lab);
        let mut connection = registered(&server, &[&upload.job_id]).await;
        let hash = committed(&mut connection, &upload, open, length).await;
        completed(&mut connection, &upload, length, hash).await;
        let results = lab.agx(&agq, &["action", "results", &action]).expect(0);
        assert!(results.out == content, "committed before the kill: {is_committed}");
    }
}
