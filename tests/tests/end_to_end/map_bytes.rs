//! Inputs, commands, file names and passed-on outputs that are not UTF-8, from the arguments and
//! stdin of agx to the processes of the worker and back.

use std::{
    ffi::{OsStr, OsString},
    io::Write,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use agenix_protocol::byte_escape::encode;
use e2e::{Lab, Ran, eventually};

/// `café.txt` in Latin-1.
const NAME: &[u8] = b"caf\xe9.txt";
/// UTF-8 of the byte escape of 0xE9, as a character of the user.
const ESCAPE: &[u8] = "\u{10fee9}".as_bytes();

/// Returns `agx` with these arguments, without a running agq, in the directory of the lab.
fn agx(lab: &Lab, args: &[&[u8]]) -> Command {
    let tmp = lab.path().join("tmp");
    std::fs::create_dir_all(&tmp).unwrap();
    let mut command = lab.command("agx");
    command.env("TMPDIR", tmp).args(args.iter().map(|arg| OsStr::from_bytes(arg)));
    command
}

fn fed(mut command: Command, stdin: &[u8]) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let (mut pipe, bytes) = (child.stdin.take().unwrap(), stdin.to_vec());
    // A program that has its inputs elsewhere may end without a read.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&bytes)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// Runs agx, and returns its stdout.
fn out(lab: &Lab, args: &[&[u8]], stdin: &[u8]) -> Vec<u8> {
    let output = fed(agx(lab, args), stdin);
    assert!(output.status.success(), "{}", output.stderr.escape_ascii());
    output.stdout
}

fn path(lab: &Lab, name: &[u8]) -> PathBuf {
    lab.path().join(OsStr::from_bytes(name))
}

fn with_file() -> Lab {
    let lab = Lab::on_files();
    std::fs::write(path(&lab, NAME), "x\n").unwrap();
    lab
}

#[test]
fn map_and_run_work_below_a_directory_for_temporary_files_in_any_encoding() {
    let lab = Lab::on_files();
    let tmp = path(&lab, b"caf\xe9");
    std::fs::create_dir(&tmp).unwrap();
    for args in [&["map", "--", "echo", ":::", "a"][..], &["run", "--", "echo", "a"]] {
        let ran = Ran::from(lab.command("agx").env("TMPDIR", &tmp).args(args).output().unwrap());
        assert_eq!(ran.expect(0).out, "a\n");
    }
}

#[test]
fn map_passes_file_names_in_any_encoding_to_commands_and_back() {
    let lab = with_file();
    let listed = Command::new("ls").arg("-1").current_dir(lab.path()).output().unwrap().stdout;
    assert_eq!(listed, [NAME, b"\n"].concat(), "the list of names");
    let tagged = b"caf\xe9.txt\tx\n";
    assert_eq!(out(&lab, &[b"map", b"--tag", b"--", b"cat", b"{}"], &listed), tagged);
    assert_eq!(out(&lab, &[b"map", b"--tag", b"-u", b"--", b"cat {}"], &listed), tagged);
    assert_eq!(out(&lab, &[b"map", b"-0", b"--tag", b"--", b"cat"], &[NAME, b"\0"].concat()), tagged);
    assert_eq!(out(&lab, &[b"map", b"--tag", b"--", b"cat", b":::", NAME], b""), tagged);
    std::fs::write(path(&lab, b"list\xff"), &listed).unwrap();
    assert_eq!(out(&lab, &[b"map", b"--", b"cat", b"::::", b"list\xff"], b""), b"x\n");
    assert_eq!(out(&lab, &[b"map", b"-a", b"list\xff", b"--", b"cat"], b""), b"x\n");
    // Redirections, placeholder variants, and a script with the input as its argument.
    out(&lab, &[b"map", b"--", b"cat < {} > {.}.copy", b":::", NAME], b"");
    assert_eq!(std::fs::read(path(&lab, b"caf\xe9.copy")).unwrap(), b"x\n");
    let script: &[&[u8]] = &[b"map", b"--", b"sh", b"-c", b"printf '%s' \"$1\"", b"sh", b"{/.}", b":::"];
    assert_eq!(out(&lab, &[script, &[NAME]].concat(), b""), b"caf\xe9");
    let words: &[&[u8]] = &[b"map", b"-k", b"--", b"printf", b"%s-\xe9\\n", b":::", b"\xff", b"a"];
    assert_eq!(out(&lab, words, b""), b"\xff-\xe9\na-\xe9\n", "the command");
}

#[test]
fn map_splits_and_pipes_text_in_any_encoding() {
    let lab = Lab::on_files();
    let columns: &[&[u8]] = &[b"map", b"-C", b"\xa7", b"--", b"printf '%s,%s\\n' {2} {1}"];
    assert_eq!(out(&lab, columns, b"\xe9\xa7b\xfc\n"), b"b\xfc,\xe9\n");
    let header: &[&[u8]] = &[b"map", b"--header", b":", b"--", b"printf '%s\\n' {gr\xf6\xdfe}"];
    assert_eq!(out(&lab, header, b"gr\xf6\xdfe\tx\n\xe9\ty\n"), b"\xe9\n");
    let grouped: &[&[u8]] = &[b"map", b"-k", b"-n", b"2", b"--", b"printf", b"[%s]"];
    assert_eq!(out(&lab, grouped, b"\xe9\n\xff\n\x80\n"), b"[\xe9][\xff][\x80]");
    let blocks: &[&[u8]] = &[b"map", b"-k", b"--pipe", b"--block", b"3", b"--", b"cat"];
    let text = [b"\xe9\xe8\n\xff\xfe\n", ESCAPE, b"\n"].concat();
    assert_eq!(out(&lab, blocks, &text), text);
}

#[test]
fn map_prints_bytes_that_xargs_prints() {
    let lab = Lab::on_files();
    let each = (1..=u8::MAX).map(|byte| vec![b'a', byte]);
    let utf_8 = ["é日🙂", "\u{10fe80}", "\u{10feff}x", "\u{10ff00}", "\u{feff}"].map(Vec::from);
    let broken = [&b"\xc3"[..], b"\xe6\x97", b"\xf4\x8f\xbb", b"\xed\xb3\xa9", b"\xc0\xaf", b"\xff\xfe\xe9"];
    let inputs: Vec<Vec<u8>> = each.chain(utf_8).chain(broken.map(Vec::from)).collect();
    let stdin: Vec<u8> = inputs.iter().flat_map(|input| [input, &b"\0"[..]].concat()).collect();
    let mut xargs = Command::new("xargs");
    xargs.args(["-0", "-n", "50", "printf", "[%s]\\n"]);
    let expected = fed(xargs, &stdin).stdout;
    let lines: Vec<u8> = inputs.iter().flat_map(|input| [b"[", &**input, b"]\n"].concat()).collect();
    assert_eq!(expected, lines, "xargs");
    let args: &[&[u8]] = &[b"map", b"-k", b"-0", b"-n", b"50", b"--", b"printf", b"[%s]\\n"];
    assert_eq!(out(&lab, args, &stdin), expected);
}

#[test]
fn map_resumes_and_keeps_results_of_inputs_in_any_encoding() {
    let lab = with_file();
    let args: &[&[u8]] = &[b"map", b"-k", b"--joblog", b"log\xe9", b"--results", b"out\xe9"];
    let rest: &[&[u8]] = &[b"--", b"cat", b":::", NAME, b"gone\xff"];
    let failed = fed(agx(&lab, &[args, rest].concat()), b"");
    assert_eq!((failed.status.code(), &*failed.stdout), (Some(1), &b"x\n"[..]));
    let err = String::from_utf8(failed.stderr).unwrap();
    assert!(err.contains(r"agx: job 2 (gone\xff): cat exited with code 1"), "{err}");
    assert_eq!(std::fs::read(path(&lab, b"out\xe9/1/caf\xe9.txt/stdout")).unwrap(), b"x\n");
    assert_eq!(std::fs::read(path(&lab, b"out\xe9/1/gone\xff/seq")).unwrap(), b"2");
    let log = || std::fs::read(path(&lab, b"log\xe9")).unwrap();
    let mut commands: Vec<Vec<u8>> = log()
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.split(|&byte| byte == b'\t').nth(8).map(<[u8]>::to_vec))
        .collect();
    // The joblog has the order of the ends, and both jobs run at the same time.
    commands.sort();
    assert_eq!(commands, [&b"Command"[..], b"cat 'caf\xe9.txt'", b"cat 'gone\xff'"]);
    std::fs::write(path(&lab, b"gone\xff"), "y\n").unwrap();
    let again = fed(agx(&lab, &[args, &[b"--resume-failed"], rest].concat()), b"");
    let err = String::from_utf8(again.stderr).unwrap();
    assert_eq!((&*again.stdout, &*err), (&b"y\n"[..], ""), "and no warning about another command");
    let done = fed(agx(&lab, &[args, &[b"--resume"], rest].concat()), b"");
    assert_eq!((done.stdout, done.stderr), (Vec::new(), Vec::new()));
    assert_eq!(log().iter().filter(|&&byte| byte == b'\n').count(), 4);
}

#[test]
fn map_shows_bytes_as_bytes_in_pipes_and_as_characters_in_json() {
    let lab = with_file();
    let dry: &[&[u8]] = &[b"map", b"--dry-run", b"--", b"cat", b":::", NAME];
    assert_eq!(out(&lab, dry, b""), b"cat 'caf\xe9.txt'\n");
    let json: &[&[u8]] = &[b"map", b"--json", b"--", b"cat", b":::", NAME];
    let json = String::from_utf8(out(&lab, json, b"")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["data"]["inputs"]["line"], *encode(NAME));
}

#[test]
fn run_passes_commands_and_stdin_in_any_encoding() {
    let lab = with_file();
    let dir = path(&lab, b"d\xe9");
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.canonicalize().unwrap();
    assert_eq!(out(&lab, &[b"run", b"--", b"cat", NAME], b""), b"x\n");
    assert_eq!(out(&lab, &[b"run", b"--", b"printf", b"%s", ESCAPE], b""), ESCAPE);
    assert_eq!(out(&lab, &[b"run", b"cat caf\xe9.txt | tr x \xe9"], b""), b"\xe9\n");
    for stdin in [ESCAPE, b"\xe9\0\xff", "é".as_bytes()] {
        assert_eq!(out(&lab, &[b"run", b"--", b"cat"], stdin), stdin);
    }
    let expected = [dir.as_os_str().as_bytes(), b"\n"].concat();
    assert_eq!(out(&lab, &[b"run", b"--cwd", b"d\xe9", b"--", b"pwd", b"-P"], b""), expected);
    let mut inside = agx(&lab, &[b"run", b"--", b"pwd", b"-P"]);
    inside.current_dir(&dir);
    assert_eq!(fed(inside, b"").stdout, expected);
    let tool = dir.join(OsStr::from_bytes(b"t\xf6\xf6l"));
    std::fs::write(&tool, "#!/bin/sh\necho by name\n").unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(out(&lab, &[b"run", b"--", b"d\xe9/t\xf6\xf6l"], b""), b"by name\n");
    let mut on_path = agx(&lab, &[b"run", b"--", b"t\xf6\xf6l"]);
    let directories = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect::<Vec<_>>();
    let joined: OsString = std::env::join_paths([vec![dir], directories].concat()).unwrap();
    on_path.env("PATH", joined);
    assert_eq!(fed(on_path, b"").stdout, b"by name\n");
}

#[test]
fn action_gets_lines_and_values_in_any_encoding() {
    let lab = Lab::new();
    std::fs::write(path(&lab, NAME), "x\n").unwrap();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let cwd = serde_json::to_string(lab.path()).unwrap();
    let task = r#"{"task_number":1,"command":"cat","args":["{{input.line}}"],"stderr":"{{input.line}}.err""#;
    lab.submit_plan(&agq, &format!(r#"{{"plan_id":"p","tasks":[{task},"cwd":{cwd}}}]}}"#));
    lab.file("inputs", &serde_json::json!([{"line": encode(NAME)}]).to_string());
    std::fs::write(lab.path().join("lines"), [NAME, b"\n"].concat()).unwrap();
    for (id, args) in [("lines", ["--lines", "lines"]), ("inputs", ["--inputs", "inputs"])] {
        lab.agx(&agq, &[&["action", "submit", "p", "--id", id, "--wait"], &args[..]].concat()).expect(0);
        assert_eq!(lab.agx(&agq, &["action", "results", id]).expect(0).out, "x\n");
        std::fs::remove_file(path(&lab, b"caf\xe9.txt.err")).unwrap();
    }
    lab.agx(&agq, &["action", "submit", "p", "--id", "open", "--open"]).expect(0);
    let add = agx(&lab, &[b"action", b"add", b"open", NAME]).env("AGQ_ADDR", agq.address()).output().unwrap();
    Ran::from(add).expect(0);
    lab.agx(&agq, &["action", "close", "open"]).expect(0);
    lab.agx(&agq, &["action", "watch", "open"]).expect(0);
    assert_eq!(lab.agx(&agq, &["action", "results", "open"]).expect(0).out, "x\n");
    let job = lab.agx(&agq, &["job", "list", "open"]).expect(0).out;
    let shown = lab.agx(&agq, &["job", "status", job.trim()]).expect(0).out;
    assert!(shown.contains(r"caf\xe9.txt"), "{shown}");
}

#[test]
fn workflow_hands_on_outputs_in_any_encoding() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let plan = |id: &str, args: &[&str]| {
        let tasks = serde_json::json!([{"task_number": 1, "command": "printf", "args": args}]);
        lab.submit_plan(&agq, &serde_json::json!({"plan_id": id, "tasks": tasks}).to_string());
    };
    plan("write", &["{{input.format}}"]);
    plan("say", &["[%s]\\n", "{{input.output}}"]);
    // The last output is a large one, and its last character is incomplete.
    let formats = [r"caf\351.txt", r"\364\217\273\251", r"\377%070000d\303"];
    let inputs = formats.map(|format| serde_json::json!({"format": format}));
    let steps = serde_json::json!([{"plan_id": "write", "inputs": inputs}, {"plan_id": "say"}]);
    lab.file("workflow.json", &serde_json::json!({"steps": steps}).to_string());
    let begun = lab.agx(&agq, &["--json", "workflow", "submit", "workflow.json"]).expect(0).data();
    let id = begun["workflow_id"].as_str().unwrap();
    let actions = eventually("the workflow is completed", || {
        let workflow = lab.agx(&agq, &["--json", "workflow", "status", id]).expect(0).data();
        let action = |step: usize| workflow["steps"][step]["action_id"].as_str().unwrap().to_owned();
        (workflow["state"] == "completed").then(|| [0, 1].map(action))
    });
    let mut results = lab.command("agx");
    results.env("AGQ_ADDR", agq.address()).args(["action", "results", &actions[1], "--ordered"]);
    let results = results.output().unwrap();
    let large = [b"\xff", "0".repeat(70_000).as_bytes(), b"\xc3"].concat();
    let expected = [NAME, ESCAPE, &large].map(|output| [b"[", output, b"]\n"].concat()).concat();
    assert!(results.stdout == expected, "{}", results.stdout.escape_ascii());
    let jobs = lab.agx(&agq, &["job", "list", &actions[0]]).expect(0).out;
    let shown = lab.agx(&agq, &["job", "status", jobs.lines().next().unwrap()]).expect(0).out;
    assert!(shown.lines().any(|line| line.trim() == r"caf\xe9.txt"), "{shown}");
}
