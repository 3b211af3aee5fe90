//! Real Redis clients, each through a session as its users would have it.

use std::process::Command;

use e2e::Lab;

use crate::support::plan;

/// Whether a program is there; a client that is not is skipped aloud, and `cargo xtask test` has named it.
fn has(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        println!("SKIPPED: {program} is not installed");
    }
    is_there
}

#[test]
fn redis_cli() {
    if !has("redis-cli") {
        return;
    }
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let port = agq.address().split(':').nth(1).unwrap().to_owned();
    let cli = |args: &[&str]| {
        let output = Command::new("redis-cli")
            .args(["-p", &port])
            .env("REDISCLI_AUTH", lab.key())
            .args(args)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(cli(&["PING"]), "PONG");
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
fn the_redis_crate() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let client = redis::Client::open(format!("redis://default:{}@{}/", lab.key(), agq.address())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut pipe = redis::pipe();
        pipe.cmd("SET").arg("k").arg("v").cmd("GET").arg("k").cmd("LPUSH").arg("l").arg(1).arg(2);
        let replies: (String, String, i64) = pipe.query_async(&mut connection).await.unwrap();
        assert_eq!(replies, ("OK".into(), "v".into(), 2));
        // The crate introduces itself by CLIENT SETINFO, and so gets the pair that Redis answers.
        let pair: (String, i64) =
            redis::cmd("BRPOP").arg("l").arg(0).query_async(&mut connection).await.unwrap();
        assert_eq!(pair, ("l".into(), 1));
        let none: Option<(String, i64)> =
            redis::cmd("BRPOP").arg("none").arg(0.01).query_async(&mut connection).await.unwrap();
        assert_eq!(none, None);
        let wrong: redis::RedisResult<i64> = redis::cmd("LLEN").arg("k").query_async(&mut connection).await;
        assert_eq!(wrong.unwrap_err().code(), Some("WRONGTYPE"));
    });
}

#[test]
fn redis_py() {
    let Some(python) = std::env::var_os("AGENIX_PYTHON") else {
        println!("SKIPPED: AGENIX_PYTHON names no Python that has redis-py; `cargo xtask test` installs one");
        return;
    };
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let port = agq.address().split(':').nth(1).unwrap().to_owned();
    let script = Lab::repository("examples/redis_client.py");
    let output = Command::new(python)
        .arg(script)
        .env("AGQ_PORT", port)
        .env("AGQ_SESSION_KEY", lab.key())
        .output()
        .unwrap();
    let ran = e2e::Ran::from(output).expect(0);
    assert!(ran.out.ends_with("redis-py: all went well\n"), "{}", ran.out);
}
