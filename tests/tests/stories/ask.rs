//! `agx plan new --ask`: a language model writes a plan, agx checks it, and nothing runs.

use std::process::Command;

use ChatAnswer::{Raw, Silence, Text};
use e2e::{Agq, Agw, ChatAnswer, ChatServer, Lab, Ran};
use serde_json::{Value, json};

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
    let large = "x".repeat(1024 * 1024 + 1);
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
            ["(text/html) is not a chat completion: expected value", "AGX_ASK_URL is the address of an API"],
        ),
        (response("200 OK", "application/json", r#"{"choices":[]}"#), ["without a choice", "AGX_ASK_URL"]),
        (response("200 OK", "application/json", &large), ["has more than 1048576 bytes", "much shorter"]),
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
    assert!(secret.contains("the key belongs into AGX_ASK_KEY") && !secret.contains("secret"), "{secret}");
    let key = with("AGX_ASK_KEY", "a\nsecret");
    assert!(key.contains("AGX_ASK_KEY has characters that no key has") && !key.contains("secret"), "{key}");
    let empty = lab.command("agx").args(["plan", "new", "--ask", " "]).output().unwrap();
    assert!(Ran::from(empty).expect(2).err.contains("--ask has no text"));
    let alone = lab.command("agx").args(["plan", "new", "--ask-timeout", "5"]).output().unwrap();
    assert!(Ran::from(alone).expect(2).err.contains("are for --ask"));
    let nobody =
        ran(asking(&lab, &server, &[]).args(["--agq", "127.0.0.1:1"]).env("AGQ_SESSION_KEY", lab.key()));
    assert!(
        nobody.expect(3).err.contains("cannot reach agq at 127.0.0.1:1"),
        "an agq that is named has to answer"
    );
    assert!(server.requests().is_empty());
}
