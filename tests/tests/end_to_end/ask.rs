//! `agx plan new --ask`: a language model writes a plan, agx checks it, and nothing runs.

use std::process::Command;

use ChatAnswer::{Cut, Raw, Silence, Text};
use e2e::{Agq, Agw, ChatAnswer, ChatServer, Lab, Ran};
use serde_json::{Value, json};

use crate::certificates::Authority;

const GOOD: &str = r#"{"tasks":[{"task_number":1,"command":"sort","args":["-u","{{input.file}}"]},
{"task_number":2,"command":"wc","args":["-l"],"input_from_task":1,"stream":true}]}"#;
const KEY: &str = "a-key-that-nobody-sees";

/// Returns a command that asks `server`, without an agq.
fn asking(lab: &Lab, server: &ChatServer, args: &[&str]) -> Command {
    let mut command = lab.command("agx");
    command.env_remove("AGQ_SESSION_KEY").env("AGX_ASK_URL", server.url()).env("AGX_ASK_MODEL", "small");
    command.env_remove("AGX_ASK_KEY").args(["plan", "new", "--ask", "count the distinct lines"]).args(args);
    command
}

fn ran(command: &mut Command) -> Ran {
    Ran::from(command.output().unwrap())
}

fn plan(command: &str, args: &[&str]) -> String {
    json!({"tasks": [{"task_number": 1, "command": command, "args": args}]}).to_string()
}

fn response(status: &str, kind: &str, body: &str) -> ChatAnswer {
    let length = body.len();
    Raw(format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    ))
}

/// Returns the content of the last message of a request.
fn last_message(request: &Value) -> &str {
    request["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap()
}

/// Lab with an agq, and with a worker that has three programs.
fn with_worker() -> (Lab, Agq, Agw) {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &["--tools", "sort,uniq,wc"]);
    (lab, agq, agw)
}

#[test]
fn good_plan_is_printed_with_its_check_and_can_be_submitted() {
    let (lab, agq, _agw) = with_worker();
    let server = ChatServer::start([Text(GOOD.into())]);
    let mut command = asking(&lab, &server, &[]);
    command.env("AGQ_SESSION_KEY", lab.key()).env("AGQ_ADDR", agq.address()).env("AGX_ASK_KEY", KEY);
    let asked = ran(&mut command).expect(0);
    assert!(asked.err.contains(&format!("asking the model small at {}", server.host())), "{}", asked.err);
    assert!(asked.err.contains("the names of 3 programs of 1 worker"), "{}", asked.err);
    assert!(asked.err.contains("the plan is valid: 2 tasks; its workers need sort, wc"), "{}", asked.err);
    assert!(!(asked.err + &asked.out).contains(KEY));
    let printed: Value = serde_json::from_str(&asked.out).unwrap();
    let about = format!("count the distinct lines (planned by small at {})", server.host());
    assert_eq!(printed["plan_description"], about);
    assert_eq!(printed["tasks"][1]["command"], "wc");
    lab.submit_plan(&agq, &asked.out);

    let [request] = &server.requests()[..] else { panic!("one request") };
    assert!(request.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", request.head);
    assert!(request.head.contains(&format!("uthorization: Bearer {KEY}\r\n")), "{}", request.head);
    assert_eq!(request.body["model"], "small");
    assert_eq!(last_message(&request.body), "count the distinct lines");
    let schema = &request.body["response_format"]["json_schema"]["schema"];
    assert_eq!(schema["required"], json!(["tasks"]), "{schema}");
    let system = request.body["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains("Programs: sort, uniq, wc\n"), "{system}");
    let body = request.body.to_string();
    assert!(!body.contains(lab.key()) && !body.contains(KEY), "no key is in the text of the request");
}

#[test]
fn plan_is_found_within_prose_and_nothing_has_to_run_for_it() {
    let lab = Lab::on_files();
    let server = ChatServer::start([Text(format!("Here it is:\n```json\n{GOOD}\n```\nGood luck!"))]);
    let asked = ran(&mut asking(&lab, &server, &["--sandbox"])).expect(0);
    assert!(asked.err.contains("of this machine, because no agq is configured"), "{}", asked.err);
    let printed: Value = serde_json::from_str(&asked.out).unwrap();
    assert_eq!(printed["sandbox"]["profile"], "reader");
    assert!(!server.requests()[0].head.contains("uthorization"), "there is no key to send");
}

#[test]
fn refused_plan_is_corrected_by_the_model() {
    let (lab, agq, _agw) = with_worker();
    let server = ChatServer::start([
        Text(plan("sotr", &[])),
        Text(r#"{"tasks":[{"task_number":1,"comand":"sort"}]}"#.into()),
        Text(GOOD.into()),
    ]);
    let mut command = asking(&lab, &server, &["--json"]);
    let asked = ran(command.env("AGQ_SESSION_KEY", lab.key()).env("AGQ_ADDR", agq.address())).expect(0);
    let data = asked.data();
    assert_eq!(data["repairs"], 2, "{data}");
    assert_eq!((&data["host"], &data["model"]), (&json!(server.host()), &json!("small")));
    assert_eq!(data["check"]["tools"], json!(["sort", "wc"]));
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    let unknown = "tasks[0].command is 'sotr': no worker has this program; did you mean sort?";
    assert!(last_message(&requests[1].body).contains(unknown), "{:?}", requests[1].body);
    assert_eq!(requests[1].body["messages"][2]["content"], plan("sotr", &[]));
    assert!(last_message(&requests[2].body).contains("tasks[0].comand: unknown field"), "{:?}", requests[2]);
    assert_eq!(requests[2].body["messages"].as_array().unwrap().len(), 6);
    assert!(asked.err.contains("asking again for a corrected plan: 2 of 2"), "{}", asked.err);
}

#[test]
fn programs_are_compared_with_each_worker() {
    let lab = Lab::on_files();
    let agent = "1".repeat(64);
    let config = lab.file("agq.toml", &format!("[agents]\none = '{agent}'\n")).display().to_string();
    let agq = lab.agq(&["--config", &config]);
    let _one = lab.agw(&agq, "w1", &["--tools", "sort,uniq"]);
    let _two = lab.agw(&agq, "w2", &["--tools", "sort,wc"]);
    let divided = GOOD.replace("\"sort\"", "\"uniq\"");
    let asked = |key: &str, server: &ChatServer| {
        let mut command = asking(&lab, server, &["--json"]);
        ran(command.env("AGQ_SESSION_KEY", key).env("AGQ_ADDR", agq.address()))
    };
    let server = ChatServer::start([Text(divided.clone()), Text(GOOD.into())]);
    assert_eq!(asked(lab.key(), &server).expect(0).data()["repairs"], 1);
    let reason = "no worker has all programs: uniq, wc; the nearest worker lacks wc";
    assert!(last_message(&server.requests()[1].body).contains(reason), "{:?}", server.requests()[1]);

    // The key of an agent may not list the workers, so only the names of all programs are known.
    let server = ChatServer::start([Text(divided)]);
    assert_eq!(asked(&agent, &server).expect(0).data()["repairs"], 0);
    let unknown = asked(&"2".repeat(64), &ChatServer::start([])).expect(3);
    assert!(unknown.err.contains("refused the session key"), "{}", unknown.err);
}

#[test]
fn draft_and_cut_answer_are_not_the_plan() {
    let lab = Lab::on_files();
    let draft = format!("<think>A draft: {GOOD} but that is wrong");
    let server = ChatServer::start([Cut(draft), Cut(GOOD.into()), Text(GOOD.into())]);
    let asked = ran(&mut asking(&lab, &server, &["--json"])).expect(0);
    assert_eq!(asked.data()["repairs"], 2, "{}", asked.out);
    let requests = server.requests();
    let within = "a limit of the server ended the answer; the answer ends within its reasoning";
    assert!(last_message(&requests[1].body).contains(within), "{:?}", requests[1]);
    let cut = "a limit of the server ended the answer\n";
    assert!(last_message(&requests[2].body).contains(cut), "{:?}", requests[2]);

    let two = format!("First idea: {GOOD}. Better: {}", plan("wc", &["-l"]));
    let server = ChatServer::start([Text(two), Text("No.".into()), Text("No.".into())]);
    let asked = ran(&mut asking(&lab, &server, &[])).expect(1);
    assert_eq!(asked.out, "");
    assert!(asked.err.contains("refused: the answer has two different plans"), "{}", asked.err);
}

#[test]
fn key_that_the_server_repeats_is_not_shown() {
    let lab = Lab::on_files();
    let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}."}}}}"#);
    let moved = format!(
        "HTTP/1.1 308 {KEY}\r\nLocation: https://llm.example/{KEY}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let echo = Text(plan("sort", &[KEY]));
    for (answers, code, reason) in [
        (
            vec![response("401 No", "application/json", &body)],
            3,
            "the status 401: Incorrect API key provided: ***.",
        ),
        (vec![response("200 OK", KEY, "x")], 3, "(***) is not JSON"),
        (
            vec![response("200 OK", "application/json", &body)],
            3,
            "is an error: Incorrect API key provided: ***.",
        ),
        (vec![Raw(moved)], 3, "this one is to https://llm.example/***"),
        (
            vec![echo, Text(format!("{KEY}? No.")), Text("No.".into())],
            1,
            "refused: the answer has the key of the server in it",
        ),
    ] {
        let server = ChatServer::start(answers);
        let asked = ran(asking(&lab, &server, &[]).env("AGX_ASK_KEY", KEY)).expect(code);
        assert!(asked.err.contains(reason), "{reason}: {}", asked.err);
        assert!(!(asked.err + &asked.out).contains(KEY));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn certificate_of_the_server_has_to_be_of_a_trusted_ca() {
    let lab = Lab::on_files();
    let (authority, other) = (Authority::new(&lab, "ca"), Authority::new(&lab, "other"));
    let pair = authority.certify(&lab, "server", &["127.0.0.1"]);
    let agq = lab.agq(&["--tls-cert", &pair.cert, "--tls-key", &pair.key]);
    let host = agq.http_address();
    let no_server = ChatServer::start([]);
    let asked = |host: &str, ca: &Authority| {
        let url = format!("https://{host}/v1");
        let mut command = asking(&lab, &no_server, &["--ask-url", &url]);
        ran(command.env("SSL_CERT_FILE", &ca.file).env_remove("SSL_CERT_DIR")).expect(3).err
    };
    // agq is no model, but its answer comes through TLS.
    let trusted = asked(&host, &authority);
    assert!(trusted.contains(&format!("{host} answered with the status 4")), "{trusted}");
    let unknown = asked(&host, &other);
    let reason = format!("{host}'s certificate is of a CA that is not trusted here");
    assert!(unknown.contains(&reason) && unknown.contains("SSL_CERT_FILE names a file"), "{unknown}");

    let plain = lab.agq(&["--data-dir", "plain"]);
    let plain = asked(&plain.http_address(), &authority);
    assert!(plain.contains("the server at this address does not use TLS"), "{plain}");
    assert!(plain.contains("AGX_ASK_URL begins with http://"), "{plain}");
}

#[test]
fn two_corrections_without_success_are_the_end() {
    let lab = Lab::on_files();
    let policy = lab
        .file("policy.toml", "version = 1\nuse = [\"sort\", \"wc\"]\n[tools.awk]\nclass = \"interpreter\"");
    let args = ["--policy", policy.to_str().unwrap()];
    let refused = [plan("sh", &["-c", "id"]), "I cannot.".into(), plan("sort", &["-o", "x"])];
    let server = ChatServer::start(refused.map(Text));
    let asked = ran(&mut asking(&lab, &server, &args)).expect(1);
    assert_eq!(asked.out, "", "a refused plan is not printed");
    let last = asked.err.rsplit("agx: ").next().unwrap();
    assert!(last.contains("gave no acceptable plan in 3 attempts"), "{}", asked.err);
    assert!(last.contains("task 1 (sort), args[0]: the option '-o' is not listed"), "{}", asked.err);
    let requests = server.requests();
    assert!(last_message(&requests[1].body).contains("the tool 'sh' is not listed"), "{:?}", requests[1]);
    assert!(last_message(&requests[2].body).contains("no JSON object: 'I cannot.'"), "{:?}", requests[2]);
    let system = requests[0].body["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains("Programs: awk, sort, wc\n"), "{system}");

    // A plan that a person has to approve is not refused.
    let server = ChatServer::start([Text(plan("awk", &["1"]))]);
    let asked = ran(&mut asking(&lab, &server, &args)).expect(1);
    assert!(asked.err.contains("task 1: awk 1: needs approval by tools.awk"), "{}", asked.err);
    assert!(asked.out.contains("\"awk\""), "{}", asked.out);
}

#[test]
fn worker_that_demands_types_is_satisfied_by_a_correction() {
    let lab = Lab::on_files();
    let key = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    let trust = format!("[signers.ci]\nkey = \"{key}\"\ntrust = \"full\"\n");
    let trust = lab.file("trust.toml", &trust).display().to_string();
    let mut typed: Value = serde_json::from_str(GOOD).unwrap();
    typed["inputs"] = json!({"file": {"type": "path", "under": "/data"}});
    let server = ChatServer::start([Text(GOOD.into()), Text(typed.to_string())]);
    let asked = ran(&mut asking(&lab, &server, &["--trust", &trust, "--as", "ci"])).expect(0);
    let repair = &server.requests()[1].body;
    assert!(last_message(repair).contains("the field 'file' has no type: add it to inputs"), "{repair}");
    assert!(asked.err.contains("signature of ci: it runs outside of the sandbox"), "{}", asked.err);
    let unknown = ran(&mut asking(&lab, &server, &["--trust", &trust, "--as", "who"])).expect(2);
    assert!(unknown.err.contains("the trust file has no signer 'who'"), "{}", unknown.err);
}

#[test]
fn server_without_a_usable_answer_is_exit_code_three_and_no_plan() {
    let lab = Lab::on_files();
    let large = "x".repeat(4 * 1024 * 1024 + 1);
    let moved = "HTTP/1.1 308 Moved\r\nLocation: https://llm.example/v1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for (answer, reasons) in [
        (
            response("500 Oops", "application/json", r#"{"error":{"message":"out of\nmemory"}}"#),
            ["answered with the status 500: out of\\nmemory", "look at the log of the model's server"],
        ),
        (response("401 No", "text/plain", "no"), ["the status 401: no", "set AGX_ASK_KEY to a key"]),
        (
            response("404 No", "application/json", r#"{"error":"no model"}"#),
            ["404: no model", "AGX_ASK_MODEL has"],
        ),
        (
            Raw(moved.into()),
            ["the status 308", "follows no redirection, and this one is to https://llm.example/v1"],
        ),
        (
            response("200 OK", "text/html", "<html>sign in</html>"),
            ["(text/html) is not JSON: expected value", "which mostly ends with /v1"],
        ),
        (response("200 OK", "application/json", r#"{"choices":[]}"#), ["without a choice", "try again"]),
        (
            response("200 OK", "application/json", r#"{"error":{"message":"out of memory"}}"#),
            ["(application/json) is an error: out of memory", "look at the log of the model's server"],
        ),
        (
            Raw("HTTP/1.1 500 Oops\r\nContent-Length: 9\r\nConnection: close\r\n\r\ncut".into()),
            ["answered with the status 500", "look at the log of the model's server"],
        ),
        (response("200 OK", "application/json", &large), ["has more than 4194304 bytes", "much shorter"]),
        (Raw("not HTTP at all\r\n\r\n".into()), ["cannot ask the model at", "AGX_ASK_URL"]),
    ] {
        let server = ChatServer::start([answer]);
        let asked = ran(&mut asking(&lab, &server, &[])).expect(3);
        assert_eq!(asked.out, "");
        for reason in reasons.into_iter().chain([server.host().as_str()]) {
            assert!(asked.err.contains(reason), "{reason}: {}", asked.err);
        }
    }
}

#[test]
fn silent_server_and_closed_port_are_named() {
    let lab = Lab::on_files();
    let server = ChatServer::start([Silence]);
    let slow = ran(&mut asking(&lab, &server, &["--ask-timeout", "1", "--json"])).expect(3);
    let error: Value = serde_json::from_str(slow.err.lines().last().unwrap()).unwrap();
    let message = format!("{} has not answered within 1 s", server.host());
    assert_eq!((&error["error"]["code"], &error["error"]["message"]), (&json!("no_answer"), &json!(message)));
    assert!(error["error"]["help"].as_str().unwrap().contains("--ask-timeout TIME"), "{error}");

    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = asking(&lab, &server, &["--ask-url", &format!("http://{port}/v1")]);
    let closed = ran(&mut command).expect(3);
    assert!(closed.err.contains(&format!("cannot ask the model at {port}: ")), "{}", closed.err);
    assert!(closed.err.contains("start the server of the model"), "{}", closed.err);
}

#[test]
fn settings_that_are_missing_or_wrong_are_named_before_any_request() {
    let lab = Lab::on_files();
    let server = ChatServer::start([]);
    let without = |name: &str| ran(asking(&lab, &server, &[]).env_remove(name)).expect(2).err;
    let no_url = without("AGX_ASK_URL");
    assert!(no_url.contains("--ask needs a server: AGX_ASK_URL is not set"), "{no_url}");
    assert!(no_url.contains("AGX_ASK_URL=http://127.0.0.1:11434/v1"), "{no_url}");
    assert!(without("AGX_ASK_MODEL").contains("--ask needs a model: AGX_ASK_MODEL is not set"));
    let with = |name: &str, value: &str| ran(asking(&lab, &server, &[]).env(name, value)).expect(2).err;
    assert!(with("AGX_ASK_URL", "").contains("AGX_ASK_URL is not set"), "an empty variable is not set");
    let secret = with("AGX_ASK_URL", "http://me:secret@127.0.0.1/v1");
    assert!(secret.contains("the key belongs in AGX_ASK_KEY") && !secret.contains("secret"), "{secret}");
    let key = with("AGX_ASK_KEY", "a\nsecret");
    assert!(key.contains("AGX_ASK_KEY has characters that no key has") && !key.contains("secret"), "{key}");
    let bytes = std::os::unix::ffi::OsStrExt::from_bytes(b"sk-\xff");
    let bytes: &std::ffi::OsStr = bytes;
    let bytes = ran(asking(&lab, &server, &[]).env("AGX_ASK_KEY", bytes)).expect(2);
    assert!(bytes.err.contains("AGX_ASK_KEY is not UTF-8"), "{}", bytes.err);
    let long = ran(&mut asking(&lab, &server, &["--ask-timeout", "18446744073709551615"])).expect(2);
    assert!(long.err.contains("give at most a year"), "{}", long.err);
    let empty = lab.command("agx").args(["plan", "new", "--ask", " "]).output().unwrap();
    assert!(Ran::from(empty).expect(2).err.contains("--ask has no text"));
    for alone in [["--ask-timeout", "5"], ["--ask-url", "http://127.0.0.1/v1"], ["--ask-model", "small"]] {
        let alone = lab.command("agx").args(["plan", "new"]).args(alone).output().unwrap();
        assert!(Ran::from(alone).expect(2).err.contains("are for --ask"));
    }
    let url = "http://me:secret@127.0.0.1/v1";
    let new = |more: &[&str]| {
        ran(lab
            .command("agx")
            .env("AGX_ASK_URL", url)
            .env("AGX_ASK_MODEL", "small")
            .args(["plan", "new"])
            .args(more))
    };
    let questions = new(&[]).expect(2).err;
    assert!(questions.contains("there is no terminal for the questions"), "{questions}");
    let help = new(&["--help"]).expect(0).out;
    assert!(help.contains("AGX_ASK_URL") && !help.contains("secret"), "{help}");
    let nobody =
        ran(asking(&lab, &server, &[]).args(["--agq", "127.0.0.1:1"]).env("AGQ_SESSION_KEY", lab.key()));
    assert!(
        nobody.expect(3).err.contains("cannot reach agq at 127.0.0.1:1"),
        "an agq that is named has to answer"
    );
    assert!(server.requests().is_empty());
}
