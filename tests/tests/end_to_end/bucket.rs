//! Large outputs in a bucket of S3, with a real server.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt,
    process::{Command, Output},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use e2e::{Agq, Lab, Proxy, Ran, S3, eventually};

use crate::support::{RawConnection, ended, only_job, plan};

/// Location of outputs in the bucket.
const BLOBS: [&str; 2] = ["--blobs", "s3://outputs/of agq"];
/// Number that `seq` counts to, so that its output is larger than two parts of an upload.
const MANY: &str = "3000000";

fn seq(last: &str) -> String {
    String::from_utf8(Command::new("seq").arg(last).output().unwrap().stdout).unwrap()
}

/// Starts a job that counts to `last`.
fn submit(lab: &Lab, agq: &Agq, action: &str, last: &str) {
    lab.submit_plan(agq, &plan(action, "seq", &[last]));
    lab.submit_action(agq, action, action, "[{}]");
}

/// Runs a job that counts to `last`, to its end.
fn count(lab: &Lab, agq: &Agq, action: &str, last: &str) {
    submit(lab, agq, action, last);
    assert_eq!(ended(lab, agq, action)["status"], "completed");
}

fn job_id(lab: &Lab, agq: &Agq, action: &str) -> String {
    only_job(lab, agq, action)["job_id"].as_str().unwrap().to_owned()
}

/// Checks that the output of an action is that of `seq`.
fn assert_counts(lab: &Lab, agq: &Agq, action: &str, last: &str) {
    assert!(lab.agx(agq, &["action", "results", action]).expect(0).out == seq(last), "{action}");
}

/// Checks the large outputs of a stopped agq. Returns the lines of the check. Only a data directory
/// can be checked.
fn check(lab: &Lab, agq: &mut Agq) -> Option<String> {
    if Lab::is_on_postgres() {
        return None;
    }
    agq.stop();
    let checked = lab.command("agq").args(["check", "data"]).args(BLOBS).output().unwrap();
    let lines = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.success(), lines.contains("is consistent:"), "{lines}");
    agq.start_again(lab);
    Some(lines)
}

#[test]
fn outputs_in_a_bucket_come_back_whole_by_ranges_and_never_damaged() {
    let s3 = S3::new();
    let lab = s3.known_to(Lab::new(), &s3.address());
    let mut agq = lab.agq(&BLOBS);
    let _agw = lab.agw(&agq, "w1", &[]);
    count(&lab, &agq, "a", MANY);
    assert_counts(&lab, &agq, "a", MANY);
    assert_eq!(s3.unfinished_parts(), 0);
    let whole = seq(MANY);
    let mut raw = RawConnection::open(&lab, &agq);
    let job = job_id(&lab, &agq, "a");
    for offset in [0, 65_535, 65_536, 8_388_600, whole.len() - 50] {
        raw.send(&format!("JOB.RESULT {job} 1 stdout {offset} 100\n"));
        assert_eq!([raw.line(), raw.line()], ["*2".to_owned(), format!(":{}", whole.len())]);
        assert_eq!(raw.bulk(), whole[offset..whole.len().min(offset + 100)]);
    }
    let staged = lab.path().join("data/blobs/uploads");
    assert_eq!(fs::read_dir(staged).unwrap().count(), 0, "the upload is removed");
    assert!(check(&lab, &mut agq).is_none_or(|lines| lines.contains("is consistent: 1 jobs")));
    let objects = s3.objects("of agq");
    let [object] = objects.as_slice() else { panic!("one object, not {objects:?}") };
    let name = object.file_name().unwrap().to_str().unwrap();
    fs::File::options().write(true).open(object).unwrap().write_all_at(b"x", 5_000_000).unwrap();
    let damaged = lab.agx(&agq, &["action", "results", "a", "--output-dir", "out"]);
    assert_ne!(damaged.code, 0);
    assert!(damaged.err.contains(name) && damaged.err.contains("is damaged"), "{}", damaged.err);
    assert!(check(&lab, &mut agq).is_none_or(|lines| lines.contains("is damaged")));
    fs::remove_file(object).unwrap();
    let missing = lab.agx(&agq, &["action", "results", "a"]);
    assert_ne!(missing.code, 0);
    assert!(missing.err.contains(name) && missing.err.contains("NoSuchKey"), "{}", missing.err);
    assert!(check(&lab, &mut agq).is_none_or(|lines| lines.contains("is missing, and 1 jobs name it")));
}

#[test]
fn objects_without_a_record_stay_in_a_bucket_after_one_pass_and_others_go_with_their_last_job() {
    let s3 = S3::new();
    let lab = s3.known_to(Lab::new(), &s3.address());
    let args = [&BLOBS[..], &["--keep-ended-count", "1"]].concat();
    let mut agq = lab.agq(&args);
    let _agw = lab.agw(&agq, "w1", &[]);
    // The hash of this output begins with 00, so it is in the part that is swept first.
    count(&lab, &agq, "a", "20053");
    let objects = s3.objects("of agq");
    let [named] = objects.as_slice() else { panic!("one object, not {objects:?}") };
    assert_eq!(named.parent(), Some(s3.object("of agq/00").as_path()));
    agq.stop();
    let old = ["of agq/00/foreign", &format!("of agq/00/{}-s", "00".repeat(32))].map(|key| s3.object(key));
    let young = s3.object("of agq/00/young");
    let beside = s3.object("00-beside");
    for file in old.iter().chain([&young, &beside]) {
        fs::write(file, "x").unwrap();
    }
    for file in old.iter().chain([named, &beside]) {
        fs::File::options().write(true).open(file).unwrap().set_modified(UNIX_EPOCH).unwrap();
    }
    agq.start_again(&lab);
    assert_counts(&lab, &agq, "a", "20053");
    // An object goes with the last job that names it.
    count(&lab, &agq, "b", "30000");
    eventually("the first output is removed", || (!named.exists()).then_some(()));
    assert_counts(&lab, &agq, "b", "30000");
    // A sweep has seen the part with the orphans. The next pass, which removes them, comes 21
    // minutes later, and the unit tests of the sweep have it.
    assert!(old.iter().chain([&young, &beside]).all(|file| file.exists()));
}

#[test]
fn job_never_names_an_object_that_a_killed_agq_did_not_publish() {
    let s3 = S3::new();
    let proxy = Proxy::start(s3.address(), fastrand::Rng::with_seed(1));
    let lab = s3.known_to(Lab::new(), &proxy.address());
    let mut agq = lab.agq(&BLOBS);
    let _agw = lab.agw(&agq, "w1", &[]);
    proxy.delay(Duration::from_millis(10));
    submit(&lab, &agq, "a", MANY);
    eventually("a part is in the bucket", || (s3.unfinished_parts() > 0).then_some(()));
    agq.kill();
    proxy.calm();
    assert!(s3.objects("of agq").is_empty());
    agq.start_again(&lab);
    assert_eq!(ended(&lab, &agq, "a")["status"], "completed");
    assert_counts(&lab, &agq, "a", MANY);
    assert!(check(&lab, &mut agq).is_none_or(|lines| lines.contains("is consistent: 1 jobs")));
}

#[test]
fn job_waits_for_a_bucket_that_is_away_and_reads_say_so() {
    let mut s3 = S3::new();
    let lab = s3.known_to(Lab::new(), &s3.address());
    let agq = lab.agq(&BLOBS);
    let agw = lab.agw(&agq, "w1", &[]);
    count(&lab, &agq, "a", "30000");
    s3.stop();
    let read = lab.agx(&agq, &["action", "results", "a"]);
    assert_ne!(read.code, 0);
    let reason = "the blob store failed: s3://outputs/of agq/";
    assert!(read.err.contains(reason) && read.err.contains("Connection refused"), "{}", read.err);
    submit(&lab, &agq, "b", "40000");
    eventually("the worker repeats the upload", || {
        let log = agw.log();
        (log.matches("the request will be sent again").count() > 1 && log.contains(reason)).then_some(())
    });
    assert_eq!(only_job(&lab, &agq, "b")["status"], "running");
    s3.start_again();
    assert_eq!(ended(&lab, &agq, "b")["status"], "completed");
    assert_counts(&lab, &agq, "a", "30000");
    assert_counts(&lab, &agq, "b", "40000");
}

/// Returns the body of a reply with status 200.
fn ask(agq: &Agq, path: &str) -> serde_json::Value {
    let mut http = TcpStream::connect(agq.http_address()).unwrap();
    write!(http, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let reply = std::io::read_to_string(http).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn agq_starts_while_its_bucket_is_away_and_uses_it_when_it_is_there() {
    let mut s3 = S3::new();
    s3.stop();
    let lab = s3.known_to(Lab::new(), &s3.address());
    let agq = lab.agq(&BLOBS);
    let log = || fs::read_to_string(lab.path().join("agq.log")).unwrap();
    let endpoint = format!("endpoint=\"http://{}\"", s3.address());
    let warned = log();
    let warning = warned.lines().find(|line| line.contains("the bucket cannot be reached")).unwrap();
    assert!(warning.contains("WARN") && warning.contains(&endpoint), "{warning}");
    assert!(warning.contains("Connection refused"), "{warning}");
    assert_eq!(ask(&agq, "/health")["large_outputs"], "unavailable");
    assert_eq!(ask(&agq, "/ready")["large_outputs"], "unavailable");
    let agw = lab.agw(&agq, "w1", &[]);
    count(&lab, &agq, "small", "10");
    assert_counts(&lab, &agq, "small", "10");
    submit(&lab, &agq, "a", "40000");
    eventually("the worker repeats the upload", || {
        (agw.log().matches("the request will be sent again").count() > 1).then_some(())
    });
    assert_eq!(only_job(&lab, &agq, "a")["status"], "running");
    s3.start_again();
    assert_eq!(ended(&lab, &agq, "a")["status"], "completed");
    assert_counts(&lab, &agq, "a", "40000");
    eventually("the bucket works", || (ask(&agq, "/health")["large_outputs"] == "ok").then_some(()));
    assert!(log().contains("the bucket can be reached again"), "{}", log());
    // The bucket goes away again, and a read finds out.
    s3.stop();
    assert_ne!(lab.agx(&agq, &["action", "results", "a"]).code, 0);
    eventually("agq notices", || (ask(&agq, "/ready")["large_outputs"] == "unavailable").then_some(()));
    s3.start_again();
    eventually("the bucket is back", || (ask(&agq, "/ready")["large_outputs"] == "ok").then_some(()));
    assert_counts(&lab, &agq, "a", "40000");
}

/// Runs an agq that ends as soon as it has started.
fn start(lab: &Lab, args: &[&str]) -> Output {
    let mut command = lab.command("agq");
    command.args(["--port", "0", "--http", "off", "--end-with-stdin", "--data-dir", "data"]).args(args);
    command.output().unwrap()
}

/// Returns the reason why agq does not start.
fn refusal(lab: &Lab, args: &[&str]) -> String {
    let ran = start(lab, args);
    let text = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{text}");
    assert!(!text.contains("tests-secret") && !text.contains("tests-key"), "{text}");
    text.lines().last().unwrap_or_default().to_owned()
}

/// Starts a server that has one reply to all requests, and returns its URL.
fn server_with_one_reply(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = BufReader::new(&stream).lines().take_while(|line| !line.as_ref().unwrap().is_empty());
            head.for_each(drop);
            // The client may be gone.
            let _sent = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    url
}

#[test]
fn agq_starts_with_a_bucket_that_cannot_work_at_the_moment() {
    let s3 = S3::new();
    let unavailable = server_with_one_reply("503 Service Unavailable");
    for (url, reason) in
        [("http://127.0.0.1:1", "Connection refused"), (&unavailable, "503 Service Unavailable")]
    {
        let lab = s3.known_to(Lab::on_files(), &s3.address()).with_variable("AWS_ENDPOINT_URL", url);
        let started = start(&lab, &BLOBS);
        let log = String::from_utf8(started.stderr).unwrap();
        assert_eq!(started.status.code(), Some(0), "{log}");
        assert!(
            log.contains("the bucket cannot be reached") && log.contains(url) && log.contains(reason),
            "{log}"
        );
        assert!(!log.contains("tests-secret") && !log.contains("tests-key"), "{log}");
    }
}

#[test]
fn agq_refuses_a_bucket_that_it_cannot_use() {
    let s3 = S3::new();
    let lab = || s3.known_to(Lab::on_files(), &s3.address());
    let wrong_bucket = refusal(&lab(), &["--blobs", "s3://other/a"]);
    assert!(
        wrong_bucket.contains("cannot use s3://other/a for large outputs: NoSuchBucket"),
        "{wrong_bucket}"
    );
    assert!(wrong_bucket.ends_with("create the bucket, or correct its name in --blobs"), "{wrong_bucket}");
    let wrong_key = refusal(&lab().with_variable("AWS_SECRET_ACCESS_KEY", "wrong"), &BLOBS);
    assert!(wrong_key.contains("SignatureDoesNotMatch"), "{wrong_key}");
    assert!(wrong_key.contains("check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), "{wrong_key}");
    let without_tls = refusal(&lab().with_variable("AWS_ALLOW_HTTP", "false"), &BLOBS);
    assert!(without_tls.contains("AWS_ALLOW_HTTP=true"), "{without_tls}");
    let other_server = server_with_one_reply("400 Bad Request");
    for (wrong_url, advice) in [
        ("127.0.0.1:1", "AWS_ENDPOINT_URL is no address: write https://HOST:PORT"),
        ("http://127.0.0.1:port", "AWS_ENDPOINT_URL is no address: write https://HOST:PORT"),
        (&other_server, "400 Bad Request: check AWS_ENDPOINT_URL"),
    ] {
        let refusal = refusal(&lab().with_variable("AWS_ENDPOINT_URL", wrong_url), &BLOBS);
        assert!(refusal.contains("cannot use s3://outputs/of agq for large outputs: "), "{refusal}");
        assert!(refusal.contains(advice), "{refusal}");
    }
    let both = refusal(&lab(), &["--blobs", "s3://outputs", "--blob-dir", "b"]);
    assert!(both.contains("blobs is s3://outputs, and blob-dir is b: give one of them"), "{both}");
    assert!(s3.objects("of agq").is_empty());
}

#[test]
fn backup_has_the_outputs_of_a_bucket() {
    let s3 = S3::new();
    let lab = s3.known_to(Lab::on_files(), &s3.address());
    let agq = lab.agq(&BLOBS);
    let _agw = lab.agw(&agq, "w1", &[]);
    count(&lab, &agq, "a", "30000");
    let does = |args: &[&str]| Ran::from(lab.command("agq").args(args).output().unwrap());
    let wrote = does(&["backup", "copy.redb", "--agq", &agq.address()]).expect(0);
    assert!(wrote.out.contains("wrote copy.redb.blobs: 1 large outputs"), "{wrote:?}");
    does(&["check", "copy.redb"]).expect(0);
    does(&["restore", "copy.redb", "--data-dir", "restored"]).expect(0);
    // The restored outputs are in a directory, and need no bucket.
    let restored = lab.agq(&["--data-dir", "restored"]);
    assert_counts(&lab, &restored, "a", "30000");
}
