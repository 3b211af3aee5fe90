//! Examples of the library: the judgement of each, and runs of the allowed ones with real tools.

#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its files fails")]

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use agenix_policy::{Access, Decision, Example, Policy, library_examples};

/// Policy that the examples are written for.
const POLICY: &str = "version = 1\nlibrary = true\n[paths]\nread = [\".\"]\nwrite = [\"out\"]\n";

fn policy() -> Policy {
    Policy::parse(POLICY).unwrap()
}

#[test]
fn every_example_of_the_library_is_judged_as_listed() {
    let policy = policy();
    for Example { tool, args, is_ok } in library_examples() {
        let judged = policy.judge_argv(&tool, &args);
        let expected = if is_ok { Decision::Allow } else { Decision::Refuse };
        assert_eq!(judged.decision, expected, "{tool} {args:?}: {:?}", judged.findings);
        let is_placed =
            |finding: &agenix_policy::Finding| finding.argument.is_some() && finding.instead.is_some();
        assert!(is_ok || judged.findings.iter().all(is_placed), "{tool} {args:?}: {:?}", judged.findings);
    }
}

fn prepare(directory: &Path) {
    let write = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).unwrap();
    write("a.txt", b"a 1\nb 2\nc 3\n");
    write("b.txt", b"a x\nc y\n");
    write("n.txt", b"3\n1\n2\n");
    write("pairs.txt", b"a b\nb c\n");
    write("data.json", b"{\"a\": 1}\n");
    // gzip of "a\n".
    write("a.gz", &[31, 139, 8, 0, 0, 0, 0, 0, 0, 3, 75, 228, 2, 0, 7, 161, 234, 221, 2, 0, 0, 0]);
    fs::create_dir(directory.join("dir")).unwrap();
    write("dir/a.txt", b"a\n");
    fs::create_dir(directory.join("out")).unwrap();
}

fn command(program: &Path, args: &[String], directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(directory).env_clear().env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn installed(tool: &str) -> Option<std::path::PathBuf> {
    ["/usr/bin", "/bin"].iter().map(|directory| Path::new(directory).join(tool)).find(|path| path.exists())
}

#[test]
fn every_allowed_example_runs_with_the_real_tool() {
    let mut skipped = BTreeSet::new();
    for Example { tool, args, .. } in library_examples().into_iter().filter(|example| example.is_ok) {
        let Some(program) = installed(&tool) else {
            skipped.insert(tool);
            continue;
        };
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        let before = listing(directory.path());
        let ran = command(&program, &args, directory.path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.success(), tool != "false", "{tool} {args:?}: {stderr}");
        assert_eq!(listing(directory.path()), before, "{tool} {args:?} changes a file outside of out");
    }
    println!("not installed: {skipped:?}");
}

/// Returns the names and contents of all files apart from those in `out`.
fn listing(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        } else if !path.ends_with("out") {
            found.extend(listing(&path));
        }
    }
    found.sort();
    found
}

#[test]
fn judgement_lists_the_files_that_are_read_and_written() {
    let judged = policy().judge_argv("split", &["-l2".into(), "a.txt".into(), "out/part-".into()]);
    let files: Vec<_> = judged.files.iter().map(|file| (file.access, file.argument, &*file.path)).collect();
    let expected = [(Access::Read, Some(1), "a.txt"), (Access::WritePrefix, Some(2), "out/part-")];
    assert_eq!(files, expected);
}

/// Directories and files of the system that every program may read.
const SYSTEM: [&str; 8] =
    ["/usr/", "/lib", "/etc/ld.so", "/etc/localtime", "/etc/magic", "/dev/", "/proc/", "/sys/"];
/// Files with the names of users and groups, which `ls -l` and `find -ls` read.
const NAMES: [&str; 4] = ["/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/run/systemd/userdb"];

#[test]
fn allowed_examples_open_no_file_outside_of_the_roots() {
    let Some(strace) = installed("strace") else {
        println!("not installed: strace");
        return;
    };
    for Example { tool, args, .. } in library_examples().into_iter().filter(|example| example.is_ok) {
        let Some(program) = installed(&tool) else { continue };
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut traced = command(&strace, &[], directory.path());
        traced.args(["-f", "-e", "trace=open,openat,creat", "-o"]).arg(log.path()).arg(&program).args(&args);
        traced.output().unwrap();
        let calls = fs::read_to_string(log.path()).unwrap();
        if !calls.contains("exited with") {
            println!("strace may not trace here");
            return;
        }
        let opened =
            calls.lines().filter(|line| !line.contains("= -1")).filter_map(|line| line.split('"').nth(1));
        for path in opened.filter(|path| path.starts_with('/')) {
            let is_own = path.starts_with(directory.path().to_str().unwrap());
            // tac keeps stdin in a temporary file, and sort may.
            let is_temporary = path.starts_with("/tmp/");
            let is_of_the_system = SYSTEM.iter().chain(&NAMES).any(|root| path.starts_with(root));
            assert!(is_own || is_temporary || is_of_the_system, "{tool} {args:?} opens {path}");
        }
    }
}
