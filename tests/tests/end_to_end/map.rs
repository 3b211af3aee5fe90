//! `agx map` with private servers and on a cluster.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use e2e::{Lab, Ran, eventually, is_gone};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{map, process_of};

fn mapped(lab: &Lab, args: &[&str]) -> Ran {
    Ran::from(map(lab, args).output().unwrap())
}

fn fed(mut command: Command, stdin: &str) -> Ran {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    Ran::from(child.wait_with_output().unwrap())
}

fn logs(lab: &Lab) {
    for (name, text) in
        [("a.log", "ERROR 1\nfine\nERROR 2\n"), ("b c.log", "ERROR 3\n"), ("d.log", "ERROR\nERROR\nERROR\n")]
    {
        lab.file(name, text);
    }
}

/// Returns the files that private servers have left behind.
fn left_behind(lab: &Lab) -> Vec<String> {
    let entries = std::fs::read_dir(lab.path().join("tmp")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn one_line_with_nothing_running() {
    let lab = Lab::on_files();
    logs(&lab);
    let counted = fed(map(&lab, &["-k", "--", "grep -c ERROR {}"]), "a.log\nb c.log\nd.log\n").expect(0);
    assert_eq!((counted.out.as_str(), counted.err.as_str()), ("2\n1\n3\n", ""));
    assert!(left_behind(&lab).is_empty(), "{:?}", left_behind(&lab));
    let nothing = fed(map(&lab, &["--", "grep -c ERROR {}"]), "").expect(0);
    assert_eq!((nothing.out.as_str(), nothing.err.as_str()), ("", ""));
    let some = mapped(&lab, &["-k", "grep", "-c", "fine", ":::", "a.log", "d.log"]).expect(1);
    assert_eq!(some.out, "1\n0\n", "what a job wrote is shown, however it ended");
    assert_eq!(
        some.err,
        "agx: job 2 (d.log): grep exited with code 1: nothing was found\nagx: 1 of 2 jobs failed\n"
    );
}

#[test]
fn many_inputs_are_all_there_and_in_order() {
    let lab = Lab::on_files();
    let numbers: String = (1..=1000).map(|n| format!("{n}\n")).collect();
    assert_eq!(fed(map(&lab, &["-k", "--", "echo"]), &numbers).expect(0).out, numbers);
    let mut as_they_come: Vec<u32> = fed(map(&lab, &["--", "echo"]), &numbers)
        .expect(0)
        .out
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    as_they_come.sort_unstable();
    assert_eq!(as_they_come, (1..=1000).collect::<Vec<_>>());
}

#[test]
fn pipelines_mean_what_a_shell_means() {
    let lab = Lab::on_files();
    logs(&lab);
    let of = |pipeline: &str| mapped(&lab, &["--", pipeline, ":::", "b c.log"]);
    assert_eq!(of("cut -d' ' -f1 {} | sort | uniq -c | tr -s ' '").expect(0).out, " 1 ERROR\n");
    assert_eq!(of("grep nothing {} | wc -l").expect(0).out, "0\n", "only the last command counts");
    let strict = mapped(&lab, &["--pipefail", "--", "grep nothing {} | wc -l", ":::", "b c.log"]).expect(1);
    assert!(strict.err.contains("grep exited with code 1: nothing was found"), "{}", strict.err);
    assert_eq!(of("LC_ALL=C tr A-Z a-z < {} > '{.} low' 2>&1").expect(0).out, "");
    assert_eq!(std::fs::read_to_string(lab.path().join("b c low")).unwrap(), "error 3\n");
    let both = of("cat {}.nowhere 2>&1 | grep -o 'No such file'").expect(0);
    assert_eq!((both.out.as_str(), both.err.as_str()), ("No such file\n", ""));
    assert_eq!(of("cat {}.nowhere 2> complaint | wc -c").expect(0).out, "0\n");
    assert!(std::fs::read_to_string(lab.path().join("complaint")).unwrap().contains("No such file"));
    let missing = of("wc -l < {}.nowhere").expect(1);
    assert!(missing.err.contains("stdin_file 'b c.log.nowhere': No such file"), "{}", missing.err);
}

#[test]
fn placeholders_and_sources_are_those_of_gnu_parallel() {
    let lab = Lab::on_files();
    let shown = |args: &[&str]| mapped(&lab, args).expect(0).out;
    assert_eq!(
        shown(&["-k", "--", "echo {} {.} {/} {//} {/.} {#}", ":::", "x/a.tar.gz", "b"]),
        "x/a.tar.gz x/a.tar a.tar.gz x a.tar 1\nb b b . b 2\n"
    );
    assert_eq!(
        shown(&["-k", "--", "echo {2}-{1}", ":::", "a", "b", ":::", "1", "2"]),
        "1-a\n2-a\n1-b\n2-b\n"
    );
    assert_eq!(shown(&["-k", "--tag", "--", "echo x", ":::", "a", "b"]), "a\tx a\nb\tx b\n");
    lab.file("list", "p\nq\n");
    assert_eq!(shown(&["-k", "-a", "list", "--", "echo {1} {2}", ":::+", "1", "2"]), "p 1\nq 2\n");
    assert_eq!(
        shown(&["--dry-run", "--", "gzip -c {} > {.}.gz", ":::", "a b.txt"]),
        "gzip -c 'a b.txt' > 'a b.gz'\n"
    );
    let nul = fed(map(&lab, &["-0", "-k", "--", "echo"]), "a\nb\0c\0").expect(0);
    assert_eq!(nul.out, "a\nb\nc\n");
    let piped =
        fed(map(&lab, &["--pipe", "--block", "4", "-k", "--", "wc -l | tr -d ' '"]), "1\n2\n3\n4\n5\n")
            .expect(0);
    assert_eq!(piped.out, "2\n2\n1\n");
}

#[test]
fn input_runs_before_the_next_is_there() {
    let lab = Lab::on_files();
    let mut child =
        map(&lab, &["--", "echo got"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for word in ["one", "two"] {
        writeln!(stdin, "{word}").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, format!("got {word}\n"));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn failed_inputs_are_tried_again_and_no_others() {
    let lab = Lab::on_files();
    let run = |resume: &[&str]| {
        let args = [
            "--joblog",
            "log",
            "--results",
            "out",
            "--",
            "sh -c 'echo x >> ran.$0; test -e ok || exit $0' {}",
            ":::",
            "0",
            "3",
        ];
        mapped(&lab, &[resume, &args[..]].concat())
    };
    run(&[]).expect(1);
    lab.file("ok", "");
    let again = run(&["--resume"]).expect(0);
    assert_eq!(again.out, "", "all have ended");
    run(&["--resume-failed"]).expect(0);
    let ran = |name: &str| std::fs::read_to_string(lab.path().join(name)).unwrap();
    assert_eq!([ran("ran.0"), ran("ran.3")], ["x\n", "x\nx\n"]);
    let log = ran("log");
    let fields =
        |line: usize| log.lines().nth(line).unwrap().split('\t').map(String::from).collect::<Vec<_>>();
    assert_eq!(fields(0)[..2], ["Seq", "Host"]);
    let ends: Vec<_> = (1..4).map(|line| (fields(line)[0].clone(), fields(line)[6].clone())).collect();
    assert!(ends.contains(&("2".into(), "3".into())) && ends[2] == ("2".into(), "0".into()), "{ends:?}");
    assert_eq!(ran("out/1/3/seq"), "2");
}

#[test]
fn map_ends_early_on_request() {
    let lab = Lab::on_files();
    let halted = mapped(
        &lab,
        &[
            "-j",
            "2",
            "--halt",
            "now,fail=1",
            "--",
            "sh -c 'test $0 = 1 || sleep 1000; exit 7' {}",
            ":::",
            "1",
            "2",
            "3",
            "4",
        ],
    )
    .expect(1);
    assert!(
        halted.err.contains("sh exited with code 7")
            && halted.err.contains("1 of 4 jobs failed; --halt ended it, 3 were cancelled"),
        "{}",
        halted.err
    );
    let first = mapped(
        &lab,
        &[
            "-j",
            "2",
            "--halt",
            "now,success=1",
            "--",
            "sh -c 'test $0 = 1 || sleep 1000; echo $0' {}",
            ":::",
            "1",
            "2",
        ],
    )
    .expect(0);
    assert_eq!(first.out, "1\n");
    let found =
        ["-j", "1", "--halt", "now,success=1", "--", "sh -c 'test $0 = 2 && echo $0' {}", ":::", "1", "2"];
    assert_eq!(mapped(&lab, &found).expect(0).out, "2\n");
    let late = mapped(&lab, &["--timeout", "1", "--", "sleep", ":::", "1000"]).expect(1);
    assert!(late.err.contains("sleep timed out"), "{}", late.err);
}

#[test]
fn filter_ends_with_its_reader() {
    let lab = Lab::on_files();
    let mut child = map(&lab, &["--", "sh -c 'echo $0; test $0 = 1 || sleep 1000' {}", ":::", "1", "2", "3"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    drop(stdout);
    end(&child, Signal::INT);
    let ran = Ran::from(child.wait_with_output().unwrap()).expect(130);
    assert_eq!(ran.err, "agx: ended before all jobs were done\n");
    assert!(left_behind(&lab).is_empty(), "{:?}", left_behind(&lab));
}

fn end(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
}

fn pid_in(path: &Path) -> Option<i32> {
    std::fs::read_to_string(path).ok()?.strip_suffix('\n')?.parse().ok()
}

#[test]
fn killed_it_leaves_no_process_and_the_next_one_sweeps_up() {
    let lab = Lab::on_files();
    let mut child = map(&lab, &["--", "sh -c 'echo $$ > pid.new; mv pid.new pid; sleep 1000'", ":::", "1"])
        .spawn()
        .unwrap();
    let pid = eventually("the job runs", || pid_in(&lab.path().join("pid")));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("its task ends", || is_gone(pid).then_some(()));
    assert_eq!(left_behind(&lab).len(), 1);
    eventually("the next one sweeps up", || {
        mapped(&lab, &["--", "true", ":::", "1"]).expect(0);
        left_behind(&lab).is_empty().then_some(())
    });
}

#[test]
fn without_its_worker_it_ends_and_says_so() {
    let lab = Lab::on_files();
    let child = map(
        &lab,
        &["--", "sh -c 'touch runs; until test -e stop || ! test -e runs; do sleep 0.02; done'", ":::", "1"],
    )
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    eventually("the job runs", || lab.path().join("runs").exists().then_some(()));
    let agw = process_of("agw", &lab.path().join("tmp")).unwrap();
    kill_process(Pid::from_raw(agw).unwrap(), Signal::KILL).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap()).expect(2);
    // On other systems than Linux, the job continues without its worker.
    lab.file("stop", "");
    assert!(ran.err.contains("agw of this command has ended"), "{}", ran.err);
}

#[test]
fn errors_are_printed_before_anything_runs() {
    let lab = Lab::on_files();
    let refused = |args: &[&str]| mapped(&lab, args).expect(2).err;
    let marked = refused(&["--", "sort $x {}", ":::", "a"]);
    assert!(marked.contains("    sort $x {}\n         ^^\n") && marked.contains("single quotes"), "{marked}");
    let typo = refused(&["--", "sortt {}", ":::", "a"]);
    assert_eq!(typo, "agx: there is no program 'sortt' on PATH\n  did you mean sort?\n");
    assert!(refused(&["--", "sort | uniq", ":::", "a"]).contains("does not say where the input goes"));
    assert!(
        refused(&["--", "echo {2}", ":::", "a"]).contains("{2} stands for source 2, and 1 source is given")
    );
    assert!(refused(&["-a", "nowhere", "--", "echo"]).contains("cannot read nowhere"));
    assert!(refused(&["--halt", "never", "--", "echo", ":::", "a"]).contains("now,fail=1"));
    assert!(refused(&[]).contains("<COMMAND>"));
    let bytes = {
        std::fs::write(lab.path().join("bytes"), b"a\n\0\n").unwrap();
        mapped(&lab, &["-a", "bytes", "--", "echo"]).expect(1).err
    };
    assert!(bytes.contains("input 2 of bytes contains a NUL byte"), "{bytes}");
}

#[test]
fn map_on_a_cluster_gives_the_same_output() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agws = [lab.agw(&agq, "w1", &[]), lab.agw(&agq, "w2", &[])];
    logs(&lab);
    let args =
        ["map", "-k", "--tag", "--", "grep -c ERROR {} | tr 0-9 a-j", ":::", "a.log", "b c.log", "d.log"];
    let here = mapped(&lab, &args[1..]).expect(0).out;
    assert_eq!(lab.agx(&agq, &args).expect(0).out, here);
    let by_url = lab.command("agx").env("AGQ_URL", agq.address()).args(args).output().unwrap();
    assert_eq!(Ran::from(by_url).expect(0).out, here, "one plan, stored once");
    let plans = lab.agx(&agq, &["plan", "list"]).expect(0).out;
    assert!(plans.starts_with("map-") && plans.lines().count() == 1, "{plans}");
    let mut waiting = lab.command("agx");
    waiting.env("AGQ_ADDR", agq.address()).args([
        "map",
        "--",
        "sh -c 'until test -e go; do sleep 0.02; done; echo $0' {}",
        ":::",
        "done",
    ]);
    let child = waiting.stderr(Stdio::piped()).spawn().unwrap();
    let action = || {
        let workers = lab.agx(&agq, &["worker", "list", "--json"]).expect(0).data();
        workers.as_array().unwrap().iter().any(|worker| worker["active_jobs"] == 1).then_some(())
    };
    eventually("the job runs", action);
    end(&child, Signal::INT);
    let left = Ran::from(child.wait_with_output().unwrap()).expect(130);
    let id = left.err.split("action ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    assert!(left.err.contains(&format!("watch it again with `agx action watch {id}`")), "{}", left.err);
    lab.file("go", "");
    lab.agx(&agq, &["action", "status", "--watch", &id]).expect(0);
    assert_eq!(lab.agx(&agq, &["action", "results", &id]).expect(0).out, "done\n");
    drop(agws);
}
