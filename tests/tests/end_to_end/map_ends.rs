//! Early ends of `agx map`, and the results of jobs that had ended by then.

use std::{
    io::Write,
    path::Path,
    process::{Child, Command, Stdio},
};

use e2e::{Lab, Ran, eventually};
use rustix::process::{Pid, Signal, kill_process};

/// Returns an `agx map` command without a running agq, with `tmp` of the lab as the directory for
/// temporary files.
fn map(lab: &Lab, args: &[&str]) -> Command {
    let tmp = lab.path().join("tmp");
    std::fs::create_dir_all(&tmp).unwrap();
    let mut command = lab.command("agx");
    command.env("TMPDIR", tmp).arg("map").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn fed(mut command: Command, stdin: &[u8]) -> Ran {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let (mut pipe, bytes) = (child.stdin.take().unwrap(), stdin.to_vec());
    let writer = std::thread::spawn(move || {
        // The command may end before it has read all bytes.
        let _closed = pipe.write_all(&bytes);
    });
    let ran = Ran::from(child.wait_with_output().unwrap());
    writer.join().unwrap();
    ran
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns the number of lines of a file, or 0 if the file is missing.
fn lines(path: &Path) -> usize {
    text(path).lines().count()
}

fn numbers(count: usize) -> Vec<u8> {
    (1..=count).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[test]
fn resume_runs_what_did_not_run_before_a_halt() {
    let lab = Lab::on_files();
    for (halt, log) in [("soon,fail=1", "soon"), ("now,fail=1", "now")] {
        let wait = "test $0 -le 3 || test -e fast || sleep 0.1";
        let pipeline = format!("sh -c '{wait}; echo x >> {log}.$0; test $0 != 3' {{}}");
        let results = format!("out.{log}");
        let args = |more: &[&'static str]| {
            let mut args = more.to_vec();
            args.extend(["-j", "1"]);
            args
        };
        let own = ["--joblog", log, "--results", &results, "--", &pipeline];
        fed(map(&lab, &[&args(&["--halt", halt])[..], &own[..]].concat()), &numbers(40)).expect(1);
        let ran = |number: usize| lines(&lab.path().join(format!("{log}.{number}")));
        let ran_first = (1..=40).filter(|&number| ran(number) > 0).count();
        assert!(ran_first < 40, "it was not halted");
        assert_eq!(
            lines(&lab.path().join(log)),
            1 + ran_first,
            "a line for each that ran: {}",
            text(&lab.path().join(log))
        );
        let kept = std::fs::read_dir(lab.path().join(&results).join("1")).unwrap().count();
        assert_eq!(kept, ran_first);
        lab.file("fast", "");
        fed(map(&lab, &[&args(&["--resume"])[..], &own[..]].concat()), &numbers(40)).expect(0);
        assert!((1..=40).all(|number| ran(number) == 1), "each ran once");
        std::fs::remove_file(lab.path().join("fast")).unwrap();
    }
}

#[test]
fn results_before_a_halt_are_printed_and_logged() {
    let lab = Lab::on_files();
    let args = ["--halt", "soon,success=1", "--joblog", "log", "--", "sh -c 'echo x >> ran; echo $0' {}"];
    let halted = fed(map(&lab, &args), &numbers(1500)).expect(0);
    let ran = lines(&lab.path().join("ran"));
    assert!(ran < 1500, "it was not halted");
    assert_eq!((halted.out.lines().count(), lines(&lab.path().join("log"))), (ran, 1 + ran));
    let failing =
        fed(map(&lab, &["-j", "2", "--halt", "1", "--", "sh -c 'echo x >> failed; exit 1'"]), &numbers(1500));
    let failing = failing.expect(1);
    let ran = lines(&lab.path().join("failed"));
    // On a busy machine, the halt comes before the last inputs are sent.
    let unsent = failing.err.split_once("were cancelled; ").and_then(|(_, rest)| rest.split_once(" inputs"));
    let sent = 1500 - unsent.map_or(0, |(count, _)| count.parse::<usize>().unwrap());
    assert!(
        failing.err.contains(&format!(
            "agx: {ran} of {sent} jobs failed; --halt ended it, {} were cancelled",
            sent - ran
        )),
        "{}",
        failing.err
    );
}

#[test]
fn halt_in_order_does_not_wait_for_the_first() {
    let lab = Lab::on_files();
    let pipeline = "sh -c 'test $0 = 1 && sleep 1000; test $0 = 2 && exit 7; echo $0' {}";
    let args = ["-k", "-j", "2", "--halt", "now,fail=1", "--joblog", "log", "--", pipeline];
    let halted = fed(map(&lab, &args), &numbers(20)).expect(1);
    assert!(halted.err.contains("job 2 (2): sh exited with code 7"), "{}", halted.err);
    let mut logged: Vec<u32> = text(&lab.path().join("log"))
        .lines()
        .skip(1)
        .map(|line| line.split('\t').next().unwrap().parse().unwrap())
        .collect();
    logged.sort_unstable();
    let printed: Vec<u32> = halted.out.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(
        logged.iter().filter(|&&seq| seq != 2).copied().collect::<Vec<_>>(),
        printed,
        "what is logged is printed"
    );
}

#[test]
fn in_order_only_printing_waits_for_the_first() {
    let lab = Lab::on_files();
    let pipeline = "sh -c 'if test $0 = 1; then until test -e go; do sleep 0.02; done; fi; echo $0' {}";
    let mut command = map(&lab, &["-k", "-j", "2", "--joblog", "log", "--results", "out", "--", pipeline]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&numbers(80)).unwrap();
    let are_kept = || (2..=80).all(|seq| lab.path().join(format!("out/1/{seq}/stdout")).exists());
    eventually("the files of all others are there", || are_kept().then_some(()));
    assert_eq!(lines(&lab.path().join("log")), 1, "an output that waits is not logged");
    lab.file("go", "");
    let ran = Ran::from(child.wait_with_output().unwrap()).expect(0);
    assert_eq!(ran.out.into_bytes(), numbers(80));
    assert_eq!(lines(&lab.path().join("log")), 81);
}

#[test]
fn map_in_order_resumes_what_a_closed_reader_did_not_get() {
    let lab = Lab::on_files();
    let pipeline = "sh -c 'if test $0 = 1; then until test -e go; do sleep 0.02; done; fi; echo $0' {}";
    let inputs: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let args =
        [&["-k", "-j", "2", "--joblog", "log", "--results", "out", "--", pipeline, ":::"][..], &inputs];
    let mut child = map(&lab, &args.concat()).spawn().unwrap();
    drop(child.stdout.take());
    let are_kept = || (2..=20).all(|seq| lab.path().join(format!("out/1/{seq}/stdout")).exists());
    eventually("all others have ended", || are_kept().then_some(()));
    lab.file("go", "");
    Ran::from(child.wait_with_output().unwrap()).expect(141);
    let again = [&["-k", "--resume", "--joblog", "log", "--", "echo", ":::"][..], &inputs].concat();
    let resumed = Ran::from(map(&lab, &again).output().unwrap()).expect(0);
    assert_eq!(resumed.out.into_bytes(), numbers(20), "no output was printed before");
}

#[test]
fn interrupted_map_has_logged_what_ran() {
    let lab = Lab::on_files();
    let mut command = map(&lab, &["-j", "1", "--joblog", "log", "--", "sh -c 'echo $0 >> ran; echo $0' {}"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let (mut stdin, all) = (child.stdin.take().unwrap(), numbers(9000));
    let writer = std::thread::spawn(move || {
        let _closed = stdin.write_all(&all);
    });
    eventually("some have ended", || (lines(&lab.path().join("log")) > 100).then_some(()));
    signal(&child, Signal::INT);
    let ended = Ran::from(child.wait_with_output().unwrap()).expect(130);
    writer.join().unwrap();
    let (ran, logged) = (lines(&lab.path().join("ran")), lines(&lab.path().join("log")) - 1);
    assert!(ran < 9000, "it was not interrupted");
    // One job may have been killed while it ran.
    assert!(ran - logged <= 1, "{ran} ran, {logged} are logged");
    assert_eq!(ended.out.lines().count(), logged);
}

#[test]
fn interrupted_map_prints_large_outputs_that_wait_for_the_first() {
    let lab = Lab::on_files();
    let pipeline = "sh -c 'test $0 != 1 || exec sleep 1000; seq 100000; touch ended.$0' {}";
    let args = ["-k", "-j", "2", "--joblog", "log", "--", pipeline, ":::", "1", "2", "3"];
    let child = map(&lab, &args).spawn().unwrap();
    eventually("the last one has ended", || lab.path().join("ended.3").exists().then_some(()));
    signal(&child, Signal::INT);
    let ended = Ran::from(child.wait_with_output().unwrap()).expect(130);
    let printed = String::from_utf8(numbers(100_000)).unwrap().repeat(2);
    assert!(ended.out == printed, "{} of {} bytes", ended.out.len(), printed.len());
    let log = text(&lab.path().join("log"));
    assert!(["2\t", "3\t"].iter().all(|at| log.lines().any(|line| line.starts_with(at))), "{log}");
}

#[test]
fn input_that_cannot_be_one_fails_alone() {
    let lab = Lab::on_files();
    let bad = fed(map(&lab, &["-k", "--", "echo"]), b"a\nx\0\nb\n\0c\nd\n").expect(1);
    assert_eq!(bad.out, "a\nb\nd\n");
    assert!(bad.err.contains("agx: job 2: input 2 of - contains a NUL byte"), "{}", bad.err);
    assert!(bad.err.contains("agx: job 4: input 4 of - contains a NUL byte"), "{}", bad.err);
    assert!(bad.err.ends_with("agx: 2 of 5 jobs failed\n"), "{}", bad.err);
    let long = [b"a\n".to_vec(), vec![b'x'; 11_000_000], b"\nb\n".to_vec()].concat();
    let refused = fed(map(&lab, &["-k", "--", "sh -c 'echo $#' sh {}"]), &long).expect(1);
    assert_eq!(refused.out, "1\n1\n");
    assert!(
        refused.err.contains("agx: job 2: agq refused its input of") && refused.err.len() < 1000,
        "{}",
        refused.err
    );
    let only = fed(map(&lab, &["--", "echo"]), b"\0\n").expect(1);
    assert!(only.err.ends_with("agx: 1 of 1 jobs failed\n"), "{}", only.err);
    let block = fed(map(&lab, &["--pipe", "--block", "2", "-k", "--", "cat"]), b"a\n\0\nb\n").expect(1);
    assert_eq!(block.out, "a\nb\n");
    assert!(block.err.contains("block 2 of stdin contains a NUL byte"), "{}", block.err);
}

#[test]
fn blocks_that_are_too_large_together_travel_apart() {
    let lab = Lab::on_files();
    let lines = [[b'a'; 99].as_slice(), b"\n"].concat().repeat(40_000);
    let stdin = [lines, b"\n".repeat(8_000_000)].concat();
    let counted = fed(map(&lab, &["--pipe", "--block", "4000000", "-k", "--", "wc -c"]), &stdin).expect(0);
    let counted: Vec<u32> = counted.out.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(counted, [4_000_000; 3]);
}

#[test]
fn long_input_has_results_of_its_own_and_short_messages() {
    let lab = Lab::on_files();
    let long = "x".repeat(300);
    let args = ["--results", "out", "--", "sh -c 'printf %s $0; exit 3' {}", ":::", &long, "a", "b"];
    let ran = Ran::from(map(&lab, &args).output().unwrap()).expect(1);
    assert_eq!(ran.out.len(), 302);
    let dirs = std::fs::read_dir(lab.path().join("out/1")).unwrap();
    let mut seqs: Vec<String> = dirs.map(|dir| text(&dir.unwrap().path().join("seq"))).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, ["1", "2", "3"]);
    let message = ran.err.lines().find(|line| line.starts_with("agx: job 1 ")).unwrap();
    assert!(message.contains("sh exited with code 3") && message.len() < 300, "{message}");
    lab.file("file", "");
    let nowhere = Ran::from(
        map(&lab, &["--results", "file", "--joblog", "log", "--", "echo", ":::", "a", "b"]).output().unwrap(),
    );
    let nowhere = nowhere.expect(1);
    assert_eq!(nowhere.out.lines().count(), 2, "what cannot be kept is printed");
    assert!(nowhere.err.contains("cannot write file/1/a"), "{}", nowhere.err);
    let log = text(&lab.path().join("log"));
    assert!(log.lines().skip(1).all(|line| line.split('\t').nth(6) == Some("-1")), "{log}");
}

#[test]
fn output_that_was_cut_is_tried_again() {
    let lab = Lab::on_files();
    let agq = lab.agq(&["--blob-dir", "off"]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let run = |more: &[&str]| {
        let own = ["--joblog", "log", "--", "sh -c 'echo x >> ran.$0; seq $0' {}", ":::", "1000000", "1"];
        let mut command = map(&lab, &[more, &own].concat());
        Ran::from(command.env("AGQ_ADDR", agq.address()).output().unwrap()).expect(1)
    };
    assert!(run(&[]).err.contains("only 65536 of 6888896 bytes"));
    run(&["--resume-failed"]);
    assert_eq!(["ran.1000000", "ran.1"].map(|name| lines(&lab.path().join(name))), [2, 1]);
}

#[test]
fn results_that_retention_has_removed_are_reported_as_lost() {
    let lab = Lab::new();
    let agq = lab.agq(&["--keep-ended-count", "10"]);
    let agw = lab.agw(&agq, "w1", &[]);
    let mut command = map(&lab, &["-k", "--", "sh -c 'until test -e go; do sleep 0.02; done; echo $0' {}"]);
    let mut child = command.env("AGQ_ADDR", agq.address()).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&numbers(60)).unwrap();
    let status = || {
        let actions = lab.agx(&agq, &["--json", "history"]).expect(0).data();
        actions.as_array().unwrap().first().cloned()
    };
    eventually("all are submitted", || status().filter(|action| action["total_jobs"] == 60));
    // A stopped agx takes no results while agq removes them.
    signal(&child, Signal::STOP);
    lab.file("go", "");
    let id =
        eventually("all have ended", || status().filter(|action| action["completed"] == 60))["action_id"]
            .clone();
    let id = id.as_str().unwrap();
    let listed = || lab.agx(&agq, &["job", "list", id]).expect(0).out.lines().count();
    eventually("most are removed", || (listed() <= 10).then_some(()));
    signal(&child, Signal::CONT);
    let ran = Ran::from(child.wait_with_output().unwrap()).expect(1);
    assert!(ran.err.contains("of 60 jobs are no longer kept"), "{}", ran.err);
    let results = lab.agx(&agq, &["action", "results", id]).expect(1);
    assert!(results.err.contains("of 60 results are no longer kept"), "{}", results.err);
    drop(agw);
}

#[test]
fn map_that_is_left_closes_its_action_and_says_what_was_not_sent() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &[]);
    let mut command = map(&lab, &["--", "echo"]);
    let mut child = command.env("AGQ_ADDR", agq.address()).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&numbers(20)).unwrap();
    let action = || lab.agx(&agq, &["--json", "history"]).expect(0).data()[0].clone();
    eventually("what came has ended", || (action()["completed"] == 20).then_some(()));
    signal(&child, Signal::INT);
    let left = Ran::from(child.wait_with_output().unwrap()).expect(130);
    drop(stdin);
    assert!(left.err.contains("agx: further inputs were not read"), "{}", left.err);
    let id = left.err.split("action ").find_map(|rest| rest.split_once(" continues")).unwrap().0.to_owned();
    let status = lab.agx(&agq, &["--json", "action", "status", &id]).expect(0).data();
    assert_eq!((&status["open"], &status["completed"]), (&false.into(), &20.into()), "{status}");
    drop(agw);
}

#[test]
fn inputs_are_submitted_no_further_ahead_than_a_bound() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut command = map(&lab, &["--", "echo"]);
    let mut child = command
        .env("AGQ_ADDR", agq.address())
        .stderr(std::fs::File::create(lab.path().join("stderr")).unwrap())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        let _closed = stdin.write_all(&numbers(40_000));
    });
    let total = || {
        let actions = lab.agx(&agq, &["--json", "history"]).expect(0).data();
        actions.as_array().unwrap().first().and_then(|action| action["total_jobs"].as_u64())
    };
    eventually("as many as may be ahead are there", || total().filter(|&total| total == 10_000));
    eventually("it was looked why nothing runs", || {
        text(&lab.path().join("stderr")).contains("there is no worker").then_some(())
    });
    assert_eq!(total(), Some(10_000));
    signal(&child, Signal::INT);
    child.wait().unwrap();
    writer.join().unwrap();
    assert!(
        text(&lab.path().join("stderr")).contains("inputs that were read were not sent"),
        "{}",
        text(&lab.path().join("stderr"))
    );
}

#[test]
fn reason_why_nothing_runs_is_printed() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &[]);
    for (args, says) in [
        (["--queue", "nobody", "--", "true"], "start one with `agw --queues nobody`"),
        (
            ["--retries", "0", "--", "sh -c 'exit 75' {}"],
            "input 0 exited with code 75, which asks for a later retry: at 2",
        ),
    ] {
        let stderr = std::fs::File::create(lab.path().join("stderr")).unwrap();
        let mut command = map(&lab, &args);
        let mut child =
            command.env("AGQ_ADDR", agq.address()).args([":::", "a"]).stderr(stderr).spawn().unwrap();
        eventually(says, || text(&lab.path().join("stderr")).contains(says).then_some(()));
        signal(&child, Signal::INT);
        child.wait().unwrap();
    }
    drop(agw);
}
