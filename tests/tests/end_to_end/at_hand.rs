//! Uses of agx besides submitting: inspecting, changing, comparing, and reading errors.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use e2e::{Lab, Ran};

use crate::support::{ended, numbered, only_job, plan};

#[test]
fn pipeline_becomes_a_plan_and_an_edited_one_another() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let shown = lab.agx(&agq, &["plan", "from", "sort {input.file} | uniq -c", "--json"]).expect(0).data();
    assert_eq!(shown["tasks"][0]["args"][0], "{{input.file}}");
    assert_eq!((&shown["tasks"][1]["stream"], &shown["pipefail"]), (&true.into(), &false.into()));
    lab.file("plan.json", &shown.to_string());
    lab.agx(&agq, &["plan", "check", "plan.json"]).expect(0);
    let of_map = lab.agx(&agq, &["plan", "from", "cat {.}"]).expect(2);
    assert!(of_map.err.contains("{.} is made by `agx map` alone"), "{}", of_map.err);
    lab.agx(&agq, &["plan", "from", "tr a-z A-Z < {}", "--id", "up", "--submit"]).expect(0);
    lab.file("words", "word\n");
    lab.file("inputs", "words\n");
    lab.agx(&agq, &["action", "submit", "up", "--lines", "inputs", "--id", "a", "--wait"]).expect(0);
    assert_eq!(lab.agx(&agq, &["action", "results", "a"]).expect(0).out, "WORD\n");
    let script = |name: &str, text: &str| {
        let path = lab.file(name, &format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let editor = script("editor", "sed -i s/A-Z/B-ZA/ \"$1\"");
    let edit_as = |editor: &str, options: &[&str]| {
        let mut command = lab.command("agx");
        command.env("AGQ_ADDR", agq.address()).env("EDITOR", editor).env_remove("VISUAL");
        command.env("TMPDIR", lab.path()).args(["plan", "edit", "up"]).args(options);
        Ran::from(command.output().unwrap())
    };
    let edit = |editor: &str| edit_as(editor, &[]);
    assert_eq!(edit(&editor).expect(0).out, "plan up-2 is stored\n");
    assert!(lab.agx(&agq, &["plan", "get", "up-2"]).expect(0).out.contains("B-ZA"));
    assert_eq!(edit(&editor).expect(0).out, "plan up-3 is stored\n");
    let interrupted = script("interrupted", "kill -INT $PPID\nsed -i s/A-Z/B-ZA/ \"$1\"");
    assert_eq!(edit(&interrupted).expect(0).out, "plan up-4 is stored\n");
    let refused = edit_as(&editor, &["--id", "up-2"]).expect(4).err;
    let kept = refused.lines().next().unwrap().split("the edited plan is in ").nth(1).unwrap();
    assert!(std::fs::read_to_string(kept).unwrap().contains("B-ZA"), "{refused}");
    let fails = script("fails", "echo edited > \"$1\"; exit 1");
    assert!(edit(&fails).expect(2).err.contains("the edited plan is in "), "it was changed");
    assert!(edit("false").expect(2).err.contains("nothing was stored"));
    assert!(edit("no-such-editor").expect(2).err.contains("set EDITOR"));
    lab.agx(&agq, &["plan", "delete", "up-2"]).expect(0);
    assert!(lab.agx(&agq, &["plan", "delete", "up-2"]).expect(4).err.contains("there is no plan 'up-2'"));
    let nobody = lab.agx(&agq, &["plan", "new"]).expect(2);
    assert!(nobody.err.contains("there is no terminal for the questions"), "{}", nobody.err);
}

#[test]
fn waiting_job_is_explained_cancelled_and_tried_again() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = only_job(&lab, &agq, "a")["job_id"].as_str().unwrap().to_owned();
    let why = lab.agx(&agq, &["job", "explain", &job]).expect(0).out;
    assert!(why.contains("is pending: There is no worker."), "{why}");
    let overview = lab.agx(&agq, &[]).expect(0).out;
    assert!(
        overview.contains("workers  none: start one with `agw`")
            && overview.contains("queue    ready: 1 job waits"),
        "{overview}"
    );
    assert!(
        lab.agx(&agq, &["action", "cancel", "a"]).expect(0).out.starts_with("1 job of action a is cancelled")
    );
    lab.agx(&agq, &["queue", "pause", "ready"]).expect(0);
    lab.agx(&agq, &["job", "retry", &job]).expect(4);
    lab.agx(&agq, &["job", "retry", &job, "--force"]).expect(0);
    let _agw = lab.agw(&agq, "w1", &[]);
    assert!(lab.agx(&agq, &["job", "explain", &job]).expect(0).out.contains("is paused"));
    lab.agx(&agq, &["queue", "resume", "ready"]).expect(0);
    lab.agx(&agq, &["action", "watch", "a"]).expect(0);
    assert_eq!(ended(&lab, &agq, "a")["status"], "completed");
    assert!(lab.agx(&agq, &["job", "cancel", &job]).expect(4).err.contains("Job already ended"));
    lab.submit_plan(&agq, &plan("f", "false", &[]));
    lab.submit_action(&agq, "f", "f", "[{},{}]");
    lab.agx(&agq, &["action", "watch", "f"]).expect(1);
    let retried = lab.agx(&agq, &["action", "retry", "f"]).expect(0).out;
    assert!(retried.starts_with("2 jobs of action f are retried"), "{retried}");
    lab.agx(&agq, &["worker", "drain", "w1"]).expect(0);
    let workers = lab.agx(&agq, &["worker", "list", "--json"]).expect(0).data();
    assert_eq!(workers[0]["state"], "draining");
    lab.agx(&agq, &["worker", "resume", "w1"]).expect(0);
}

#[test]
fn history_shows_the_latest_first_and_diff_what_came_out_differently() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    assert_eq!(lab.agx(&agq, &["history"]).expect(0).out, "there are no actions yet\n");
    lab.submit_plan(&agq, &plan("cat", "cat", &["{{input.line}}"]));
    lab.file("lines", "a\nb\n");
    lab.file("a", "1\n");
    lab.file("b", "2\n");
    let run = |id: &str| {
        lab.agx(&agq, &["action", "submit", "cat", "--lines", "lines", "--id", id, "--wait"]).expect(0)
    };
    run("one");
    run("two");
    lab.agx(&agq, &["action", "diff", "one", "two"]).expect(0);
    lab.file("b", "3\n");
    run("three");
    let diff = lab.agx(&agq, &["action", "diff", "one", "three"]).expect(1);
    assert_eq!(diff.out, "{\"line\":\"b\"}: completed\n  - 2\n  + 3\n");
    std::fs::write(lab.path().join("b"), b"\xff").unwrap();
    run("four");
    std::fs::write(lab.path().join("b"), b"\xfe").unwrap();
    run("five");
    let bytes = lab.agx(&agq, &["action", "diff", "four", "five"]).expect(1);
    assert!(bytes.err.contains("1 input has a different result"), "{}", bytes.err);
    let history = lab.agx(&agq, &["history", "-n", "2", "--json"]).expect(0).data();
    assert_eq!((&history[0]["action_id"], &history[1]["action_id"]), (&"five".into(), &"four".into()));
    assert_eq!(history.as_array().unwrap().len(), 2);
    let text = lab.agx(&agq, &["history"]).expect(0).out;
    assert!(text.starts_with("ACTION") && text.lines().nth(1).unwrap().contains("completed  2/2"), "{text}");
}

#[test]
fn doctor_names_what_is_wrong() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let alone = lab.agx(&agq, &["doctor"]).expect(1);
    assert!(alone.out.contains("WRONG workers none takes jobs"), "{}", alone.out);
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.agx(&agq, &["doctor"]).expect(0);
    lab.submit_plan(&agq, &plan("p", "no-such-tool", &[]));
    lab.submit_action(&agq, "p", "a", &numbered(3));
    let unmet = lab.agx(&agq, &["doctor"]).expect(1);
    assert!(
        unmet.out.contains("WRONG tools   3 jobs wait for a worker that has no-such-tool"),
        "{}",
        unmet.out
    );
    agq.kill();
    let gone = lab.agx(&agq, &["doctor"]).expect(1);
    assert!(
        gone.out.contains("WRONG agq     cannot reach agq") && gone.out.contains("start one with `agq`"),
        "{}",
        gone.out
    );
}

#[test]
fn without_any_agq_agx_says_what_to_do() {
    let lab = Lab::on_files();
    let alone = lab.command("agx").env_remove("AGQ_SESSION_KEY").output().unwrap();
    assert!(Ran::from(alone).expect(0).out.contains("No agq is configured: no --agq"));
    let help = lab.command("agx").env_remove("AGQ_SESSION_KEY").args(["plan", "list"]).output().unwrap();
    let help = Ran::from(help).expect(3).err;
    assert!(
        help.contains("no agq is configured or running")
            && help.contains("`agx up` starts an agq and a worker"),
        "{help}"
    );
    let all = "plan get p|action status a|action close a|job list a|worker list|queue stats|schedule list|workflow list|history|logs a";
    for words in all.split('|') {
        let run = |key: Option<&str>| {
            let mut command = lab.command("agx");
            command.env_remove("AGQ_SESSION_KEY").args(words.split(' '));
            // A socket that is not there stands for an agq that has ended.
            key.map(|key| {
                command.env("AGQ_SESSION_KEY", key).env("AGQ_ADDR", "unix:/no-such-directory/agq.sock")
            });
            Ran::from(command.output().unwrap()).expect(3).err
        };
        assert!(run(None).contains("no agq is configured or running"), "{words}");
        let gone = run(Some("key"));
        assert!(gone.contains("nothing is running there") && gone.contains("`agx up`"), "{words}: {gone}");
    }
    let typo = Ran::from(lab.command("agx").arg("actoin").output().unwrap()).expect(2);
    assert!(typo.err.contains("'action'"), "{}", typo.err);
    let blind = Ran::from(lab.command("agx").arg("top").output().unwrap()).expect(2);
    assert!(blind.err.contains("there is no terminal for it"), "{}", blind.err);
    Ran::from(lab.command("agx").args(["man", "man1"]).output().unwrap()).expect(0);
    let page = std::fs::read_to_string(lab.path().join("man1/agx-map.1")).unwrap();
    assert!(page.contains("keep\\-order") && page.contains("EXTRA"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        let script = Ran::from(lab.command("agx").args(["completions", shell]).output().unwrap()).expect(0);
        assert!(script.out.contains("agx") && script.out.contains("history"), "{shell}");
    }
}

#[test]
fn failures_are_printed_as_they_occur_with_the_last_output() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let script = "echo one >&2; echo two >&2; echo three >&2; echo four >&2; exit $0";
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", script, "{{input.line}}"]));
    lab.file("inputs", "0\n3\n0\n");
    let waited =
        lab.agx(&agq, &["action", "submit", "p", "--lines", "inputs", "--id", "a", "--wait"]).expect(1);
    let failure = "agx: input 1 {\"line\":\"3\"} failed: Task 1 (sh) exited with code 3: four\n    two\n    three\n    four\n";
    assert!(waited.err.contains(failure), "{}", waited.err);
    assert!(waited.err.contains("agx: 1 of 3 jobs did not complete"), "{}", waited.err);
    assert!(lab.agx(&agq, &["action", "watch", "a"]).expect(1).err.contains(failure));
    lab.file("inputs", &"1\n".repeat(25));
    let many =
        lab.agx(&agq, &["action", "submit", "p", "--lines", "inputs", "--id", "b", "--wait"]).expect(1);
    assert_eq!(many.err.matches("agx: input ").count(), 20, "{}", many.err);
    assert!(many.err.contains("further failures are counted, but not listed"), "{}", many.err);
}

#[test]
fn mistyped_id_is_detected() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("word-count", "wc", &[]));
    lab.submit_action(&agq, "word-count", "tonight", "[{}]");
    let meant = |args: &[&str]| lab.agx(&agq, args).expect(4).err;
    let plan = meant(&["plan", "get", "word-cuont"]);
    assert!(
        plan.contains("there is no plan 'word-cuont'\n  did you mean 'word-count'? see the plans"),
        "{plan}"
    );
    assert!(meant(&["action", "status", "tonigth"]).contains("did you mean 'tonight'?"));
    assert!(meant(&["logs", "tonigth"]).contains("did you mean 'tonight'?"));
    lab.file("inputs", "x\n");
    let submitted = meant(&["action", "submit", "word-coun", "--lines", "inputs"]);
    assert!(submitted.contains("there is no plan 'word-coun'\n  did you mean 'word-count'?"), "{submitted}");
    assert!(!meant(&["plan", "get", "zzz"]).contains("did you mean"));
    let _agw = lab.agw(&agq, "worker-1", &[]);
    let worker = meant(&["worker", "drain", "worker-l"]);
    assert!(worker.contains("there is no worker 'worker-l'\n  did you mean 'worker-1'?"), "{worker}");
    let paused = lab.agx(&agq, &["queue", "pause", "redy"]).expect(0).err;
    assert_eq!(paused, "agx: no job waits in the queue redy; did you mean 'ready'?\n");
}

#[test]
fn missing_tools_are_reported_with_the_workers_that_have_them() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _sorts = lab.agw(&agq, "w1", &["--tools", "sort"]);
    let _counts = lab.agw(&agq, "w2", &["--tools", "wc"]);
    lab.submit_plan(
        &agq,
        r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"},{"task_number":2,"command":"wc","input_from_task":1}]}"#,
    );
    lab.submit_action(&agq, "p", "a", "[{}]");
    let reason = "1 job waits for a worker that has sort, wc (sort is on w1; wc is on w2)";
    let doctor = lab.agx(&agq, &["doctor"]).expect(1).out;
    assert!(doctor.contains(reason), "{doctor}");
    let mut watch = lab.command("agx");
    watch.env("AGQ_ADDR", agq.address()).args(["action", "watch", "a"]).stderr(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watch.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), reason);
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// The test runs agx on a terminal of its own, because agx asks questions only on a terminal.
#[test]
fn plan_is_made_by_answering_questions() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agx = lab.bin().join("agx").display().to_string();
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &format!("{agx} plan new"), "typescript"]);
    terminal.current_dir(lab.path()).env("AGQ_ADDR", agq.address()).env("AGQ_SESSION_KEY", lab.key());
    terminal.env("AGX_HOME", lab.path().join("agx-home")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.spawn().unwrap();
    let answers = "grep ERROR {} | wc -l\nasked\nerrors of a file\n2\ny\n";
    terminal.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
    let printed = Ran::from(terminal.wait_with_output().unwrap()).expect(0).out;
    assert!(printed.contains("plan asked is stored"), "{printed}");
    let plan = lab.agx(&agq, &["plan", "get", "asked", "--json"]).expect(0).data();
    assert_eq!((&plan["tasks"][1]["command"], &plan["max_retries"]), (&"wc".into(), &2.into()));
}
