//! `agx up`, `join`, `profile` and `down`: an agq and workers in the background, and the profile
//! that selects one of them.

use std::{
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use e2e::{Agq, Lab, Ran, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{DownOnDrop, process_of};

/// Runs agx without an address of agq, and with the key of another agq in the environment.
fn agx(lab: &Lab, args: &[&str]) -> Ran {
    Ran::from(command(lab, args).output().unwrap())
}

fn command(lab: &Lab, args: &[&str]) -> Command {
    let mut command = lab.command("agx");
    command.env("AGX_HOME", lab.path().join("home")).args(args);
    command
}

fn up(lab: &Lab) -> DownOnDrop {
    let printed = agx(lab, &["up", "--jobs", "2", "--", "--port", "0", "--http", "off"]);
    let up = DownOnDrop(command(lab, &["down", "local"]));
    let printed = printed.expect(0);
    assert!(printed.out.starts_with("agq ") && printed.out.contains("agx down"), "{}", printed.out);
    up
}

fn workers(lab: &Lab, profile: &str) -> Vec<Value> {
    agx(lab, &["--profile", profile, "worker", "list", "--json"]).expect(0).data().as_array().unwrap().clone()
}

#[test]
fn up_is_spoken_to_until_down() {
    let lab = Lab::on_files();
    let without = agx(&lab, &["down"]).expect(2);
    assert!(without.err.contains("nothing named 'local' runs"), "{}", without.err);
    let up = up(&lab);
    assert_eq!(agx(&lab, &["map", "-k", "--", "echo", ":::", "1", "2"]).expect(0).out, "1\n2\n");
    assert!(agx(&lab, &["plan", "list"]).expect(0).out.starts_with("map-"), "it ran there");
    assert_eq!(workers(&lab, "local")[0]["max_concurrent_jobs"], 2);
    // Jobs run in the directory of agx, and not in the one of `agx up`.
    let elsewhere = lab.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("file"), "here\n").unwrap();
    let mut there = lab.command("agx");
    there
        .env("AGX_HOME", lab.path().join("home"))
        .current_dir(&elsewhere)
        .args(["map", "--", "cat", ":::", "file"]);
    assert_eq!(Ran::from(there.output().unwrap()).expect(0).out, "here\n");
    assert_eq!(agx(&lab, &["map", "--local", "--", "echo", ":::", "own"]).expect(0).out, "own\n");
    let own = agx(&lab, &["plan", "list"]).expect(0).out;
    assert_eq!(own.lines().count(), 2, "{own}");
    let again = agx(&lab, &["up"]).expect(2);
    assert!(
        again.err.contains("a supervisor already runs") && again.err.contains("`agx down` ends it"),
        "{}",
        again.err
    );
    let mode =
        |path: &str| lab.path().join("home").join(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("profiles.json"), mode("local/session-key"), mode("local")], [0o600, 0o600, 0o700]);
    agx(&lab, &["down"]).expect(0);
    drop(up);
    assert!(agx(&lab, &["profile", "list"]).expect(0).out.contains("there is no profile"));
    // The stored data survives the restart.
    let again = self::up(&lab);
    assert!(agx(&lab, &["plan", "list"]).expect(0).out.starts_with("map-"));
    drop(again);
}

/// File systems of macOS refuse a name in another encoding.
#[cfg(target_os = "linux")]
#[test]
fn up_and_profiles_work_below_a_directory_in_any_encoding() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let lab = Lab::on_files();
    let home = lab.path().join(OsStr::from_bytes(b"caf\xe9"));
    let command = |args: &[&str]| {
        let mut command = lab.command("agx");
        command.env("AGX_HOME", &home).args(args);
        command
    };
    let agx = |args: &[&str]| Ran::from(command(args).output().unwrap());
    let up = agx(&["up", "--json", "--", "--port", "0", "--http", "off"]);
    let _up = DownOnDrop(command(&["down"]));
    let directory = up.expect(0).data()["directory"].as_str().unwrap().to_owned();
    assert!(directory.ends_with("/caf\u{10fee9}/local"), "{directory}");
    assert_eq!(agx(&["map", "--", "echo", ":::", "there"]).expect(0).out, "there\n");
    let key = home.join("local/session-key");
    let mut set = command(&["profile", "set", "other", "--agq", "127.0.0.1:6380", "--session-key-file"]);
    Ran::from(set.arg(key).output().unwrap()).expect(0);
    assert!(agx(&["profile", "list"]).expect(0).out.contains("other"));
}

#[test]
fn commands_in_tasks_wait_for_no_slot_of_their_own_worker() {
    let lab = Lab::on_files();
    let _up = up(&lab);
    let program = lab.bin().join("agx").display().to_string();
    for command in ["map -- echo \"$2\" ::: x", "run -- echo \"$2\""] {
        // The outer jobs hold both slots.
        let script = format!("\"$1\" {command} 2> \"err-$2\"");
        let args = ["map", "-k", "--timeout", "100", "--", "sh", "-c", &script, "sh", &program, "{}"];
        let expected = if command.starts_with("map") { "a x\nb x\n" } else { "a\nb\n" };
        assert_eq!(agx(&lab, &[&args[..], &[":::", "a", "b"][..]].concat()).expect(0).out, expected);
        let note = std::fs::read_to_string(lab.path().join("err-a")).unwrap();
        assert!(note.contains("as with --local") && note.contains("--profile local"), "{note}");
    }
    let plans = agx(&lab, &["plan", "list"]).expect(0).out;
    assert_eq!(plans.lines().count(), 2, "the inner commands ran elsewhere: {plans}");
    let script = "\"$1\" --profile local map --dry-run -- echo ::: x";
    let named = ["map", "--", "sh", "-c", script, "sh", &program, ":::", "a"];
    let named = agx(&lab, &named).expect(0);
    assert!(!named.err.contains("as with --local"), "{}", named.err);
}

#[test]
fn killed_program_is_started_again() {
    let lab = Lab::on_files();
    let _up = up(&lab);
    let pid = process_of("agw", &lab.path().join("home")).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    eventually("another worker runs", || {
        let now = process_of("agw", &lab.path().join("home"))?;
        (now != pid).then_some(())
    });
    assert_eq!(agx(&lab, &["map", "--", "echo", ":::", "again"]).expect(0).out, "again\n");
}

#[test]
fn map_goes_on_when_agq_is_killed() {
    let lab = Lab::on_files();
    let _up = up(&lab);
    let mut map = lab.command("agx");
    let waits = "sh -c 'until test -e go; do sleep 0.02; done; echo $0' {}";
    map.env("AGX_HOME", lab.path().join("home")).args(["map", "-k", "--", waits, ":::", "1", "2", "3"]);
    let map = map.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("jobs run", || {
        workers(&lab, "local").iter().any(|worker| worker["active_jobs"] != 0).then_some(())
    });
    let agq = process_of("agq", &lab.path().join("home")).unwrap();
    kill_process(Pid::from_raw(agq).unwrap(), Signal::KILL).unwrap();
    eventually("another agq runs", || (process_of("agq", &lab.path().join("home"))? != agq).then_some(()));
    lab.file("go", "");
    let ran = Ran::from(map.wait_with_output().unwrap()).expect(0);
    assert_eq!(ran.out, "1\n2\n3\n");
    assert!(ran.err.contains("waiting for it to come back"), "{}", ran.err);
}

#[test]
fn one_pasted_line_makes_a_worker() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let token = lab.command("agq").args(["token", "--agq", &agq.address()]).output().unwrap();
    let line = Ran::from(token).expect(0).out;
    let token = line.trim().strip_prefix("agx join ").unwrap();
    assert!(!line.contains(lab.key()), "it is no key that could be taken for a word");
    let joined = agx(&lab, &["join", token, "--jobs", "3"]);
    let up = DownOnDrop(command(&lab, &["down", "cluster"]));
    let joined = joined.expect(0);
    assert!(joined.out.contains("`agx down cluster` ends it"), "{}", joined.out);
    eventually("the worker is there", || {
        (workers(&lab, "cluster").first()?["max_concurrent_jobs"] == 3).then_some(())
    });
    assert_eq!(agx(&lab, &["map", "--", "echo", ":::", "there"]).expect(0).out, "there\n");
    assert!(lab.agx(&agq, &["plan", "list"]).expect(0).out.starts_with("map-"), "it ran there");
    let again = agx(&lab, &["join", token]).expect(2);
    assert!(again.err.contains("`agx down cluster` ends it"), "{}", again.err);
    drop(up);
    eventually("the worker has gone", || {
        let left = lab.agx(&agq, &["worker", "list", "--json"]).expect(0).data();
        left.as_array().unwrap().is_empty().then_some(())
    });
    let broken = agx(&lab, &["join", &token[..token.len() - 4]]).expect(2);
    assert!(broken.err.contains("it is not whole") && !broken.err.contains(&token[..30]), "{}", broken.err);
    let mut by_stdin = lab.command("agx");
    by_stdin.env("AGX_HOME", lab.path().join("home")).args(["join", "-", "--no-worker", "--name", "two"]);
    let mut child = by_stdin.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(workers(&lab, "two").is_empty());
    let nothing = agx(&lab, &["down", "two"]).expect(2);
    assert!(nothing.err.contains("`agx profile remove two`"), "{}", nothing.err);
}

/// Returns a token with the address of `agq` and with `key`.
fn token_of(lab: &Lab, agq: &Agq, key: &str) -> String {
    let mut command = lab.command("agq");
    let file = lab.file("key", key);
    // The option wins over the session key, which `lab` sets in the environment.
    command.args(["token", "--agq", &agq.address(), "--session-key-file"]);
    let line = Ran::from(command.arg(file).output().unwrap()).expect(0).out;
    line.trim().strip_prefix("agx join ").unwrap().to_owned()
}

#[test]
fn join_with_the_key_of_a_worker_needs_its_id() {
    let lab = Lab::new();
    let [worker, client] = ["w", "c"].map(|letter| letter.repeat(64));
    let text = format!("[workers]\nw1 = '{worker}'\n[clients]\nalice = '{client}'\n");
    let config = lab.file("agq.toml", &text).display().to_string();
    let agq = lab.agq(&["--config", &config]);
    let token = |key: &str| token_of(&lab, &agq, key);
    let of_client = agx(&lab, &["join", &token(&client)]).expect(4).err;
    assert!(of_client.contains("may not use WORKER.HEARTBEAT"), "{of_client}");
    let token = token(&worker);
    for args in [vec!["join", &*token], vec!["join", &*token, "--worker-id", "w2"]] {
        let refused = agx(&lab, &args).expect(4).err;
        assert!(refused.contains("may not act for") && refused.contains("--worker-id"), "{refused}");
    }
    assert_eq!(process_of("agw", &lab.path().join("home")), None, "nothing was started");
    let joined = agx(&lab, &["join", &token, "--worker-id", "w1"]);
    let _up = DownOnDrop(command(&lab, &["down", "cluster"]));
    joined.expect(0);
    let workers = lab.agx(&agq, &["worker", "list", "--json"]).expect(0).data();
    assert_eq!((&workers[0]["worker_id"], &workers[0]["state"]), (&"w1".into(), &"active".into()));
}

#[test]
fn join_with_a_refused_token_keeps_the_profile_as_it_was() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    agx(&lab, &["join", &token_of(&lab, &agq, lab.key()), "--no-worker"]).expect(0);
    let wrong = token_of(&lab, &agq, &"x".repeat(64));
    let refused = agx(&lab, &["join", &wrong, "--no-worker"]).expect(3).err;
    assert!(refused.contains("refused the session key"), "{refused}");
    agx(&lab, &["plan", "list"]).expect(0);
    assert!(!lab.path().join("home/cluster/session-key.new").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn worker_that_joins_with_a_sandbox_runs_all_jobs_in_it() {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let token = lab.command("agq").args(["token", "--agq", &agq.address()]).output().unwrap();
    let token = String::from_utf8(token.stdout).unwrap();
    let token = token.trim().strip_prefix("agx join ").unwrap();
    agx(&lab, &["join", token, "--sandbox", "--no-worker"]).expect(2);
    let joined = agx(&lab, &["join", token, "--sandbox"]);
    let up = DownOnDrop(command(&lab, &["down", "cluster"]));
    let joined = joined.expect(0);
    assert!(joined.out.contains("its jobs run in a sandbox with the profile reader\n"), "{}", joined.out);
    let denied = agx(&lab, &["map", "--", "cat", ":::", "/etc/shadow"]).expect(1);
    assert!(denied.err.contains("/etc/shadow is not readable in profile reader"), "{}", denied.err);
    drop(up);
}

#[test]
fn profiles_say_which_agq_is_meant() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let key = lab.file("key", lab.key()).display().to_string();
    let address = agq.address();
    let set =
        |name: &str| agx(&lab, &["profile", "set", name, "--agq", &address, "--session-key-file", &key]);
    set("one").expect(0);
    set("two").expect(0);
    let listed = agx(&lab, &["profile", "list", "--json"]).expect(0).data();
    assert_eq!((listed[0]["name"].as_str(), listed[0]["in_use"].as_bool()), (Some("one"), Some(true)));
    agx(&lab, &["plan", "list"]).expect(0);
    let other = lab.file("other", &"0".repeat(64)).display().to_string();
    let list = |options: &[&str]| {
        let mut command = lab.command("agx");
        command.env("AGX_HOME", lab.path().join("home")).args(options).args(["plan", "list"]);
        Ran::from(command.env("AGQ_SESSION_KEY_FILE", &other).env("AGQ_CA", "ca.crt").output().unwrap())
    };
    list(&[]).expect(0);
    list(&["--profile", "two"]).expect(0);
    assert!(list(&["--session-key-file", &other]).expect(3).err.contains("refused the session key"));
    agx(&lab, &["profile", "use", "two"]).expect(0);
    agx(&lab, &["profile", "remove", "one"]).expect(0);
    let gone = agx(&lab, &["--profile", "one", "plan", "list"]).expect(2);
    assert!(
        gone.err.contains("there is no profile 'one'") && gone.err.contains("agx profile list"),
        "{}",
        gone.err
    );
    agx(&lab, &["profile", "set", "a/b", "--agq", &address]).expect(2);
    agx(&lab, &["profile", "set", "none"]).expect(2);
}
