//! TLS: encrypted connections, verified server certificates, and clients that log in by
//! certificate.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
};

use e2e::{Agq, Lab, Ran, eventually};

use crate::{
    certificates::{Authority, Pair},
    support::plan,
};

/// A lab with an agq that requires TLS, and the flags that clients need.
struct Encrypted {
    lab: Lab,
    agq: Agq,
    authority: Authority,
    flags: Vec<String>,
}

impl Encrypted {
    /// Starts the lab. `more` returns further arguments of agq.
    fn start(more: impl FnOnce(&Lab, &Authority) -> Vec<String>) -> Self {
        let lab = Lab::new();
        let authority = Authority::new(&lab, "ca");
        let server = authority.certify(&lab, "server", &["127.0.0.1"]);
        let mut args = vec!["--tls-cert".to_owned(), server.cert, "--tls-key".to_owned(), server.key];
        args.extend(more(&lab, &authority));
        let agq = lab.agq(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let url = format!("rediss://{}", agq.address());
        let flags = vec!["--agq".to_owned(), url, "--tls-ca".to_owned(), authority.file.clone()];
        Self { lab, agq, authority, flags }
    }

    /// Returns a command for agx or agw that connects to this agq with the session key.
    fn command(&self, program: &str) -> Command {
        let mut command = self.lab.command(program);
        command.args(&self.flags);
        command
    }

    /// Returns a command for agx or agw with a certificate and without a key.
    fn certified(&self, program: &str, pair: &Pair) -> Command {
        let mut command = self.command(program);
        command.env_remove("AGQ_SESSION_KEY").args(["--tls-cert", &pair.cert, "--tls-key", &pair.key]);
        command
    }
}

fn run(mut command: Command, args: &[&str]) -> Ran {
    Ran::from(command.args(args).output().unwrap())
}

const SUBMIT: [&str; 8] = ["action", "submit", "p", "--id", "a", "--lines", "lines", "--wait"];

#[test]
fn job_goes_there_and_back_over_tls() {
    let tls = Encrypted::start(|_, _| Vec::new());
    let _agw = tls.lab.agw_by("w1", tls.command("agw"));
    tls.lab.file("plan.json", &plan("p", "echo", &["{{input.line}}"]));
    tls.lab.file("lines", "one\ntwo\n");
    run(tls.command("agx"), &["plan", "submit", "plan.json"]).expect(0);
    run(tls.command("agx"), &SUBMIT).expect(0);
    let results = run(tls.command("agx"), &["action", "results", "a", "--ordered"]).expect(0);
    assert_eq!(results.out, "one\ntwo\n");
}

#[test]
fn server_that_cannot_prove_who_it_is_gets_no_key() {
    let tls = Encrypted::start(|_, _| Vec::new());
    let stranger = Authority::new(&tls.lab, "stranger");
    let url = tls.flags[1].as_str();
    let mut agx = tls.lab.command("agx");
    agx.args(["--agq", url, "--tls-ca", &stranger.file]);
    let doubted = run(agx, &["queue", "stats"]).expect(3);
    let words = "cannot reach agq at rediss://";
    assert!(
        doubted.err.contains(words) && doubted.err.contains("a CA that is not trusted here"),
        "{doubted:?}"
    );
    assert!(doubted.err.contains("--tls-ca") && !doubted.err.contains("start one"), "{doubted:?}");
    // The certificate is not valid for another name either.
    let named = url.replace("127.0.0.1", "localhost");
    let mut agx = tls.lab.command("agx");
    agx.args(["--agq", &named, "--tls-ca", &tls.authority.file]);
    let elsewhere = run(agx, &["queue", "stats"]).expect(3);
    assert!(elsewhere.err.contains("agq's certificate is for another name"), "{elsewhere:?}");
    // agx detects a key of another certificate before it connects to agq.
    let (one, other) =
        (tls.authority.certify(&tls.lab, "one", &["a"]), tls.authority.certify(&tls.lab, "other", &["a"]));
    let mixed = Pair { cert: one.cert, key: other.key };
    let mixed = run(tls.certified("agx", &mixed), &["queue", "stats"]).expect(2);
    assert!(
        mixed.err.contains("is not that of the certificate in") && !mixed.err.contains("is it an agq"),
        "{mixed:?}"
    );
    // A client without TLS gets no reply, and certificates for an address without TLS are an error.
    let mut plain = TcpStream::connect(tls.agq.address()).unwrap();
    plain.write_all(b"PING\r\n").unwrap();
    let mut reply = Vec::new();
    // The connection ends, possibly by a reset.
    let _ended = plain.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"+") && !reply.starts_with(b"-"), "{reply:?}");
    let mut agx = tls.lab.command("agx");
    agx.args(["--agq", &tls.agq.address(), "--tls-ca", &tls.authority.file]);
    assert!(run(agx, &["queue", "stats"]).expect(2).err.contains("is not TLS: write rediss://"));
}

/// Starts an agq that requires client certificates, with one worker and one client in its config
/// file.
fn mutual() -> Encrypted {
    Encrypted::start(|lab, authority| {
        let (worker, client) = ("1".repeat(64), "2".repeat(64));
        let text = format!("[workers]\nw1 = '{worker}'\n[clients]\nalice = '{client}'\n");
        let config = lab.file("agq.toml", &text).display().to_string();
        vec!["--config".into(), config, "--tls-client-ca".into(), authority.file.clone()]
    })
}

#[test]
fn certificate_says_which_worker_or_client_it_is() {
    let tls = mutual();
    let worker = tls.authority.certify(&tls.lab, "worker", &["host.example", "w1"]);
    let client = tls.authority.certify(&tls.lab, "client", &["alice"]);
    let _agw = tls.lab.agw_by("w1", tls.certified("agw", &worker));
    tls.lab.file("plan.json", &plan("p", "echo", &["{{input.line}}"]));
    tls.lab.file("lines", "one\n");
    let refused = run(tls.certified("agx", &worker), &["plan", "submit", "plan.json"]).expect(4);
    let words = "NOPERM This key is a worker's and may not use PLAN.SUBMIT";
    assert!(refused.err.contains(words), "{}", refused.err);
    run(tls.certified("agx", &client), &["plan", "submit", "plan.json"]).expect(0);
    run(tls.certified("agx", &client), &SUBMIT).expect(0);
}

#[test]
fn certificate_that_names_nobody_opens_a_connection_and_no_more() {
    let tls = mutual();
    let nobody = tls.authority.certify(&tls.lab, "nobody", &["w2"]);
    let keyless = run(tls.certified("agx", &nobody), &["queue", "stats"]).expect(3);
    assert!(keyless.err.contains("NOAUTH"), "{}", keyless.err);
    let mut with_key = tls.certified("agx", &nobody);
    with_key.env("AGQ_SESSION_KEY", tls.lab.key());
    run(with_key, &["queue", "stats"]).expect(0);
    // Neither the session key alone nor a certificate of another CA is enough.
    run(tls.command("agx"), &["queue", "stats"]).expect(3);
    let stranger = Authority::new(&tls.lab, "stranger").certify(&tls.lab, "forged", &["w1"]);
    run(tls.certified("agx", &stranger), &["queue", "stats"]).expect(3);
}

#[test]
fn new_certificate_is_taken_up_and_a_broken_one_is_not() {
    let tls = Encrypted::start(|_, _| Vec::new());
    let is_logged = |words: &str| {
        let log = std::fs::read_to_string(tls.lab.path().join("agq.log")).unwrap();
        log.contains(words).then_some(())
    };
    let stats = |ca: &str| {
        let mut agx = tls.lab.command("agx");
        agx.args(["--agq", &tls.flags[1], "--tls-ca", ca]);
        run(agx, &["queue", "stats"])
    };
    let next = Authority::new(&tls.lab, "next");
    next.certify(&tls.lab, "server", &["127.0.0.1"]);
    tls.agq.reload();
    eventually("the certificates are read again", || is_logged("SIGHUP, certificates: read again"));
    stats(&next.file).expect(0);
    stats(&tls.authority.file).expect(3);
    tls.lab.file("server.crt", "broken");
    tls.agq.reload();
    eventually("the broken one is named", || is_logged("SIGHUP, certificates: not reloaded, because"));
    stats(&next.file).expect(0);
}

/// Requests `path` by curl over HTTPS with the certificate of `alice`, and returns the status.
fn curl(tls: &Encrypted, alice: &Pair, path: &str, more: &[&str]) -> String {
    let url = format!("https://{}{path}", tls.agq.http_address());
    let mut curl = Command::new("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", &tls.authority.file, &url]);
    Ran::from(curl.args(["--cert", &alice.cert, "--key", &alice.key]).args(more).output().unwrap())
        .expect(0)
        .out
}

#[test]
fn over_https_a_key_counts_before_the_certificate_which_is_no_proof_for_another_site() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("SKIPPED: curl is not installed");
        return;
    }
    let tls = mutual();
    let alice = tls.authority.certify(&tls.lab, "alice", &["alice"]);
    let job = r#"{"type":"a","args":[]}"#;
    let jobs = |more: &[&str]| curl(&tls, &alice, "/ojs/v1/jobs", &[&["-d", job][..], more].concat());
    let json = ["-H", "Content-Type: application/json"];
    let bearer = |key: &str| format!("Authorization: Bearer {key}");
    let stats = |key: &str| curl(&tls, &alice, "/ojs/v1/admin/stats", &["-H", &bearer(key)]);
    assert_eq!(jobs(&json), "201");
    assert_eq!(curl(&tls, &alice, "/ojs/v1/admin/stats", &[]), "403", "alice is a client");
    assert_eq!((stats(tls.lab.key()), stats(&"x".repeat(64))), ("200".into(), "401".into()));
    assert_eq!(jobs(&["-H", "Content-Type:"]), "400", "with a certificate alone a body has a type");
    let keyed = bearer(tls.lab.key());
    assert_eq!(jobs(&["-H", "Content-Type:", "-H", &keyed]), "201");
    for of_another in ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site"] {
        let other = ["-H", of_another];
        assert_eq!(jobs(&[json, other].concat()), "403", "{of_another}");
        assert_eq!(curl(&tls, &alice, "/ojs/v1/jobs", &other), "200", "reading changes nothing");
        assert_eq!(curl(&tls, &alice, "/", &other), "200", "a link leads to the dashboard");
    }
    let own = format!("Origin: https://{}", tls.agq.http_address());
    assert_eq!(jobs(&[&json[..], &["-H", &own, "-H", "Sec-Fetch-Site: same-origin"]].concat()), "201");
}
