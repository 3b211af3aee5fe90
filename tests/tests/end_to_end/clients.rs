//! Sessions of real Redis clients: the scripts in tests/sessions.

pub(crate) mod found;
mod handshakes;

use std::{
    fs::File,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use e2e::{Agq, Lab, Ran};

use crate::support::{RawConnection, plan};

macro_rules! sessions {
    ($($name:ident => $session:expr;)*) => {
        $(
            #[test]
            fn $name() {
                $session;
            }
        )*
    };
}

sessions! {
    redis_py_4 => python("redis-py-4", "redis_py.py", "2");
    redis_py_4_async => python("redis-py-4", "redis_py_async.py", "2");
    redis_py_5_resp2 => python("redis-py-5", "redis_py.py", "2");
    redis_py_5_resp2_async => python("redis-py-5", "redis_py_async.py", "2");
    redis_py_5_resp3 => python("redis-py-5", "redis_py.py", "3");
    redis_py_5_resp3_async => python("redis-py-5", "redis_py_async.py", "3");
    redis_py_newest_resp2 => python("redis-py-newest", "redis_py.py", "2");
    redis_py_newest_resp2_async => python("redis-py-newest", "redis_py_async.py", "2");
    redis_py_newest_resp3 => python("redis-py-newest", "redis_py.py", "3");
    redis_py_newest_resp3_async => python("redis-py-newest", "redis_py_async.py", "3");
    ioredis_5 => node("ioredis-5", "ioredis.mjs", "2");
    ioredis_6_resp2 => node("ioredis-6", "ioredis.mjs", "2");
    ioredis_6_resp3 => node("ioredis-6", "ioredis.mjs", "3");
    node_redis_5_resp2 => node("redis-5", "node_redis.mjs", "2");
    node_redis_5_resp3 => node("redis-5", "node_redis.mjs", "3");
    node_redis_6_resp2 => node("redis-6", "node_redis.mjs", "2");
    node_redis_6_resp3 => node("redis-6", "node_redis.mjs", "3");
    redis_cli_resp2 => redis_cli(&[], "2< ");
    redis_cli_resp3 => redis_cli(&["-3"], "3< ");
}

fn python(library: &str, script: &str, protocol: &str) {
    let (Some(python), Some(library)) = (found::program("python3"), found::library(library)) else { return };
    let mut command = Command::new(python);
    command.arg("-B").env("PYTHONPATH", library);
    session(&mut command, script, &["--protocol", protocol]);
}

fn node(package: &str, script: &str, protocol: &str) {
    let modules = found::library(&format!("node/node_modules/{package}"));
    let (Some(node), Some(modules)) = (found::program("node"), modules) else { return };
    let version = Command::new(&node).arg("--version").output().unwrap().stdout;
    let version = String::from_utf8_lossy(&version);
    let major: u32 =
        version.trim_start_matches('v').split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    if package.ends_with("-6") && major < 20 {
        println!("SKIPPED: {package} needs Node 20, and this is {}", version.trim());
        return;
    }
    let mut command = Command::new(node);
    command.env("NODE_PATH", modules.parent().unwrap());
    session(&mut command, script, &["--package", package, "--protocol", protocol]);
}

/// Runs a script of tests/sessions against a fresh agq.
fn session(command: &mut Command, script: &str, args: &[&str]) {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    command
        .arg(Lab::repository("tests/sessions").join(script))
        .arg(port(&agq))
        .args(args)
        .env("AGQ_SESSION_KEY", lab.key())
        .current_dir(lab.path())
        .stdin(Stdio::null());
    let ran = Ran::from(command.output().unwrap()).expect(0);
    assert!(ran.out.ends_with(": all went well\n"), "{}\n{}", ran.out, ran.err);
}

fn port(agq: &Agq) -> String {
    agq.address().split(':').nth(1).unwrap().to_owned()
}

/// Runs the commands of tests/sessions/redis_cli.txt with redis-cli, and compares the output with
/// the file.
fn redis_cli(options: &[&str], of_version: &str) {
    let Some(program) = found::program("redis-cli") else { return };
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let text = std::fs::read_to_string(Lab::repository("tests/sessions/redis_cli.txt")).unwrap();
    let commands: String =
        text.lines().filter_map(|line| line.strip_prefix("> ")).map(|line| format!("{line}\n")).collect();
    let mut command = Command::new(program);
    command
        .args(["--no-raw", "-p", &port(&agq)])
        .args(options)
        .env("REDISCLI_AUTH", lab.key())
        .stdin(File::open(lab.file("commands", &commands)).unwrap());
    let ran = Ran::from(command.output().unwrap()).expect(0);
    let expected = text.lines().filter_map(|line| line.strip_prefix("< ").or(line.strip_prefix(of_version)));
    let expected: Vec<&str> = expected.collect();
    let got: Vec<&str> = ran.out.lines().filter(|line| !line.is_empty()).collect();
    for (expected, got) in expected.iter().zip(&got) {
        let fits = expected.strip_suffix('…').map_or(expected == got, |start| got.starts_with(start));
        assert!(fits, "expected {expected}\ngot      {got}\nof all this:\n{}", ran.out);
    }
    assert_eq!(expected.len(), got.len(), "{}", ran.out);
}

#[test]
fn redis_cli_with_a_command_on_its_command_line() {
    let Some(program) = found::program("redis-cli") else { return };
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let cli = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["-p", &port(&agq)]).env("REDISCLI_AUTH", lab.key()).args(args);
        Ran::from(command.output().unwrap()).out.trim().to_owned()
    };
    assert_eq!(cli(&["PING"]), "PONG");
    assert_eq!(cli(&["--user", "default", "--pass", lab.key(), "PING"]), "PONG");
    assert_eq!(cli(&["LPUSH", "list", "a", "b"]), "2");
    assert_eq!(cli(&["BRPOP", "list", "1"]), "a");
    assert_eq!(cli(&["-3", "BRPOP", "list", "1"]), "list\nb");
    assert_eq!(cli(&["PLAN.SUBMIT", &plan("p", "true", &[])]), "OK plan_id=p");
    assert_eq!(
        cli(&["ACTION.SUBMIT", r#"{"action_id":"a","plan_id":"p","inputs":[{}]}"#]),
        "OK action_id=a jobs_created=1"
    );
    assert_eq!(cli(&["LLEN", "queue:ready"]), "1");
    assert!(cli(&["BRPOP", "queue:ready", "1"]).contains(r#""attempt":1"#));
    assert!(
        cli(&["SET", "queue:ready", "x"])
            .starts_with("ERR 'queue:ready' is kept by agq and cannot be written")
    );
}

#[test]
fn redis_cli_listens_to_a_channel() {
    let Some(program) = found::program("redis-cli") else { return };
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut publisher = RawConnection::open(&lab, &agq);
    for options in [&[] as &[&str], &["-3"]] {
        let mut listener = Command::new(&program)
            .args(options)
            .args(["-p", &port(&agq), "SUBSCRIBE", "news"])
            .env("REDISCLI_AUTH", lab.key())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
        let mut three = || -> Vec<String> { lines.by_ref().take(3).map(Result::unwrap).collect() };
        assert_eq!(three(), ["subscribe", "news", "1"]);
        assert_eq!(publisher.ask("PUBLISH news hello"), ":1");
        assert_eq!(three(), ["message", "news", "hello"]);
        listener.kill().unwrap();
        listener.wait().unwrap();
        e2e::eventually("the listener is forgotten", || {
            (publisher.ask("PUBLISH news nobody") == ":0").then_some(())
        });
    }
}

#[test]
fn redis_crate_works() {
    for query in ["", "?protocol=resp3"] {
        let lab = Lab::new();
        let agq = lab.agq(&[]);
        let url = format!("redis://default:{}@{}/{query}", lab.key(), agq.address());
        let client = redis::Client::open(url).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(crate_session(&client));
    }
}

async fn crate_session(client: &redis::Client) {
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut pipe = redis::pipe();
    pipe.cmd("SET").arg("k").arg("v").cmd("GET").arg("k").cmd("LPUSH").arg("l").arg(1).arg(2);
    let replies: (String, String, i64) = pipe.query_async(&mut connection).await.unwrap();
    assert_eq!(replies, ("OK".into(), "v".into(), 2));
    // The crate sends CLIENT SETINFO, and therefore gets the pair that Redis replies with.
    let pair: (String, i64) = redis::cmd("BRPOP").arg("l").arg(0).query_async(&mut connection).await.unwrap();
    assert_eq!(pair, ("l".into(), 1));
    let none: Option<(String, i64)> =
        redis::cmd("BRPOP").arg("none").arg(0.01).query_async(&mut connection).await.unwrap();
    assert_eq!(none, None);
    let wrong: redis::RedisResult<i64> = redis::cmd("LLEN").arg("k").query_async(&mut connection).await;
    assert_eq!(wrong.unwrap_err().code(), Some("WRONGTYPE"));
    let mut transaction = redis::pipe();
    transaction.atomic().cmd("INCR").arg("n");
    transaction.cmd("ZADD").arg("z").arg(1.5).arg("m").cmd("ZSCORE").arg("z").arg("m");
    let replies: (i64, i64, f64) = transaction.query_async(&mut connection).await.unwrap();
    assert_eq!(replies, (1, 1, 1.5));
}

#[test]
fn example_for_redis_py_works() {
    let (Some(python), Some(library)) = (found::program("python3"), found::library("redis-py-newest")) else {
        return;
    };
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let output = Command::new(python)
        .arg("-B")
        .arg(Lab::repository("examples/redis_client.py"))
        .env("PYTHONPATH", library)
        .env("AGQ_PORT", port(&agq))
        .env("AGQ_SESSION_KEY", lab.key())
        .output()
        .unwrap();
    let ran = Ran::from(output).expect(0);
    assert!(ran.out.ends_with("redis-py: all went well\n"), "{}", ran.out);
}
