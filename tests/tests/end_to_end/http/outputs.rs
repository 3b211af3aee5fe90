//! Outputs of tasks over HTTP, as curl gets them.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    process::Command,
};

use agenix_protocol::blob::BlobHash;
use e2e::{Agq, Lab, peak_memory_kib};

use super::{client::Http, dashboard::Visitor};
use crate::{
    outputs::{blobs, sh},
    support::{ended, plan},
};

/// Answer that curl got.
struct Got {
    /// Exit code of curl; 18 after a connection that ended early.
    code: i32,
    status: u16,
    /// Headers by their names in lower case.
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Gets a path below `/ojs/v1/jobs`.
fn curl(lab: &Lab, agq: &Agq, path: &str, options: &[&str]) -> Got {
    lab.file("ojs.curl", &format!("header \"Authorization: Bearer {}\"\n", lab.key()));
    let url = format!("http://{}/ojs/v1/jobs/{path}", agq.http_address());
    let mut command = Command::new("curl");
    command.args(["-sK", "ojs.curl", "-D", "headers", "-o", "body"]).args(options).arg(url);
    lab.file("body", "");
    let code = command.current_dir(lab.path()).status().unwrap().code().unwrap();
    let text = std::fs::read_to_string(lab.path().join("headers")).unwrap();
    let mut lines = text.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
    let pairs = lines.filter_map(|line| line.split_once(": "));
    let headers = pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    Got { code, status, headers, body: std::fs::read(lab.path().join("body")).unwrap() }
}

/// Runs a shell command as a job, and returns the path of its stdout.
fn run(lab: &Lab, agq: &Agq, name: &str, script: &str) -> String {
    lab.submit_plan(agq, &plan(name, "sh", &["-c", script]));
    lab.submit_action(agq, name, name, "[{}]");
    assert_eq!(ended(lab, agq, name)["status"], "completed");
    let jobs = lab.agx(agq, &["job", "list", name]).expect(0).out;
    format!("{}/tasks/1/stdout", jobs.trim())
}

#[test]
fn output_of_any_size_comes_whole_or_as_a_range() {
    let lab = Lab::new();
    let agq = lab.agq(&["--http", "127.0.0.1:0"]);
    let _agw = lab.agw(&agq, "w1", &[]);
    for (name, script) in [("large", "seq 500000"), ("small", "seq 50")] {
        let expected = sh(&lab, script);
        let (path, total) = (run(&lab, &agq, name, script), expected.len());
        let whole = curl(&lab, &agq, &path, &[]);
        assert_eq!((whole.code, whole.status), (0, 200), "{name}");
        assert!(whole.text() == expected, "{name}");
        let etag = format!("\"{}\"", BlobHash::of(expected.as_bytes()));
        for (header, expected) in [
            ("etag", &*etag),
            ("content-length", &total.to_string()),
            ("content-type", "text/plain; charset=utf-8"),
            ("x-content-type-options", "nosniff"),
            ("accept-ranges", "bytes"),
            ("content-disposition", ""),
        ] {
            assert_eq!(whole.header(header), expected, "{name}: {header}");
        }
        let head = curl(&lab, &agq, &path, &["-I", "-r", "3-5"]);
        assert_eq!((head.status, head.header("content-length")), (200, &*total.to_string()));
        assert_eq!(head.header("etag"), etag);
        for (range, start, end) in
            [("0-0", 0, 1), ("90-99", 90, 100), ("100-", 100, total), ("-7", total - 7, total)]
        {
            let part = curl(&lab, &agq, &path, &["-r", range]);
            assert_eq!((part.code, part.status), (0, 206), "{range}");
            assert!(part.text() == &expected[start..end], "{name}: {range}");
            assert_eq!(part.header("content-range"), format!("bytes {start}-{}/{total}", end - 1));
        }
        let beyond = curl(&lab, &agq, &path, &["-r", &format!("{total}-")]);
        assert_eq!((beyond.status, beyond.header("content-range")), (416, &*format!("bytes */{total}")));
        let several = curl(&lab, &agq, &path, &["-r", "0-1,3-4"]);
        assert!(several.status == 200 && several.text() == expected);
        for (condition, status) in [
            (format!("If-None-Match: {etag}"), 304),
            ("If-None-Match: \"other\"".into(), 206),
            (format!("If-Range: {etag}"), 206),
            ("If-Range: \"other\"".into(), 200),
            ("If-Match: \"other\"".into(), 412),
        ] {
            let got = curl(&lab, &agq, &path, &["-r", "5-9", "-H", &condition]);
            assert_eq!((got.code, got.status), (0, status), "{condition}");
            assert!(status != 304 || (got.body.is_empty() && got.header("etag") == etag));
        }
        // curl continues a download that was interrupted.
        lab.file("part", &expected[..total / 3]);
        sh(
            &lab,
            &format!("curl -sSK ojs.curl -C - -o part http://{}/ojs/v1/jobs/{path}", agq.http_address()),
        );
        assert!(std::fs::read_to_string(lab.path().join("part")).unwrap() == expected);
    }
}

#[test]
fn output_is_never_a_page_and_bytes_stay_bytes() {
    let lab = Lab::new();
    let agq = lab.agq(&["--http", "127.0.0.1:0"]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let html = run(&lab, &agq, "html", "echo '<!doctype html><script>alert(1)</script>'");
    let shown = curl(&lab, &agq, &format!("{html}?download"), &[]);
    assert_eq!(shown.header("content-type"), "text/plain; charset=utf-8");
    assert!(shown.header("content-security-policy").contains("sandbox"));
    let name = shown.header("content-disposition");
    assert!(
        name.starts_with("attachment; filename=\"output-") && name.ends_with("-1-stdout.txt\""),
        "{name}"
    );
    let bytes = run(&lab, &agq, "bytes", "head -c 300000 /dev/zero | tr '\\000' '\\377'");
    let got = curl(&lab, &agq, &bytes, &[]);
    assert_eq!(got.header("content-type"), "application/octet-stream");
    assert!(got.body == vec![0xff; 300_000]);
    let empty = run(&lab, &agq, "empty", "true");
    let got = curl(&lab, &agq, &empty, &[]);
    assert_eq!((got.code, got.status, got.header("content-length")), (0, 200, "0"));
    let job = empty.split('/').next().unwrap();
    for unknown in
        ["nowhere/tasks/1/stdout", &format!("{job}/tasks/2/stdout"), &format!("{job}/tasks/1/stdin")]
    {
        let got = curl(&lab, &agq, unknown, &[]);
        assert_eq!(got.status, 404, "{unknown}: {}", got.text());
    }
    // The dashboard gets the same bytes by its session, and only as a file.
    let mut visitor = Visitor::new(&lab, &agq);
    let path = format!("/dashboard/jobs/{html}");
    assert_eq!(visitor.ask("GET", &path, "").status, 401);
    visitor.log_in(lab.key());
    let got = visitor.ask("GET", &path, "");
    assert_eq!((got.status, got.text.as_bytes()), (200, &*shown.body));
    assert_eq!(got.headers["content-disposition"], name);
}

#[test]
fn damaged_output_is_an_error_or_ends_early_and_a_slow_client_waits_for_no_more_than_it_reads() {
    let lab = Lab::new();
    let agq = lab.agq(&["--http", "127.0.0.1:0"]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let path = run(&lab, &agq, "large", "seq 3000000");
    let (expected, file) = (sh(&lab, "seq 3000000"), blobs(&lab).remove(0));
    let before = peak_memory_kib(agq.pid()).unwrap();
    // The client reads nothing yet. agq answers others, and has only a few chunks in memory.
    let http = Http::of(&lab, &agq);
    let mut slow = http.connect();
    slow.write_all(http.request("GET", &format!("/jobs/{path}"), "").as_bytes()).unwrap();
    let mut slow = BufReader::new(slow);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        slow.read_line(&mut line).unwrap();
    }
    assert_eq!(http.ask("GET", "//health", "").status, 200);
    let mut body = vec![0; expected.len()];
    slow.read_exact(&mut body).unwrap();
    assert!(body == expected.as_bytes());
    let grown_kib = peak_memory_kib(agq.pid()).unwrap().saturating_sub(before);
    assert!(grown_kib < 16 * 1024, "{grown_kib} KiB for an output of {} bytes", expected.len());
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[10_000_000] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let cut = curl(&lab, &agq, &path, &[]);
    assert_eq!((cut.code, cut.status), (18, 200), "curl reports that the transfer ended early");
    assert!(cut.body.len() < 10_000_000 && expected.as_bytes().starts_with(&cut.body));
    let refused = curl(&lab, &agq, &path, &["-r", "10000000-10000009"]);
    let name = file.file_name().unwrap().to_str().unwrap();
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains(name) && refused.text().contains("is damaged"), "{}", refused.text());
    std::fs::remove_file(&file).unwrap();
    for options in [&[][..], &["-I"], &["-r", "-5"]] {
        assert_eq!(curl(&lab, &agq, &path, options).status, 500, "{options:?}");
    }
}
