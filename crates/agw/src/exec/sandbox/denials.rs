//! Explanations of failures that a sandbox has probably caused, from the end of a task and from its
//! stderr. The kernel reports denials to administrators only, so a text of the task is the source.

use std::path::{Component, Path, PathBuf};

use agenix_protocol::documents::TaskResult;
use agenix_sandbox::profile::{Execute, Network, Profile};

/// Maximum number of explanations for a task.
const MAX_SHOWN: usize = 3;
/// Maximum number of bytes of stderr that are read, from its end.
const MAX_BYTES: usize = 16 << 10;
/// Texts of `EACCES` and `EPERM` of the C library.
const DENIED: &str = "Permission denied";
const NOT_PERMITTED: &str = "Operation not permitted";
/// Directories whose files every task reads, and whose programs a task executes if its plan names
/// them.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];
/// Ways to permit a program.
const REMEDY: &str = "name it in requires.tools of the plan, or use a profile with execute = \"any\"";
/// Signals of limits and of the filter of system calls.
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;
const SIGSYS: i32 = 31;

/// Returns explanations for a task that failed, in the order of its messages.
pub(super) fn denied(result: &TaskResult, profile: &Profile) -> Vec<String> {
    if result.exit_code == 0 {
        return Vec::new();
    }
    let signal = result.signal.or_else(|| (result.exit_code > 128).then(|| result.exit_code - 128));
    let of_signal = signal.and_then(|signal| of_signal(signal, profile));
    let bytes = &result.stderr.bytes;
    let stderr = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(MAX_BYTES)..]);
    let mut found: Vec<String> = of_signal.into_iter().collect();
    for text in stderr.lines().filter_map(|line| of_line(line, profile)) {
        if found.len() < MAX_SHOWN && !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

fn of_signal(signal: i32, profile: &Profile) -> Option<String> {
    let (name, limits) = (&profile.name, &profile.limits);
    match signal {
        SIGXCPU => Some(format!(
            "the task took more processor time than limits.cpu_secs = {} of profile {name}",
            limits.cpu_secs
        )),
        SIGXFSZ => Some(format!(
            "a file or the output exceeded limits.file_size = {} bytes of profile {name}",
            limits.file_size
        )),
        SIGSYS => Some(format!("the task made a system call that profile {name} does not permit")),
        _ => None,
    }
}

fn of_line(line: &str, profile: &Profile) -> Option<String> {
    let name = &profile.name;
    if line.contains(NOT_PERMITTED) {
        let network = if profile.network == Network::Off { "no network, " } else { "" };
        return Some(format!(
            "profile {name} permits {network}no Unix sockets and no privileged system calls"
        ));
    }
    if !line.contains(DENIED) {
        return None;
    }
    let Some(path) = path_in(line).map(without_parents) else {
        return Some(of_line_without_path(line, profile));
    };
    let is_below = |roots: &[String]| roots.iter().any(|root| Path::new(&path).starts_with(root));
    if is_below(&profile.write) {
        return None;
    }
    // The supervisor opens the files that the plan names for outputs, and names the step.
    let is_output = ["step stdout: ", "step stderr: "].iter().any(|step| line.contains(step));
    if is_output || is_below(&profile.read) {
        return Some(format!("{path} is not writable in profile {name}"));
    }
    if SYSTEM.iter().any(|root| Path::new(&path).starts_with(root)) {
        let programs = profile.execute == Execute::Listed;
        return programs.then(|| format!("{path} may not be executed in profile {name}: {REMEDY}"));
    }
    Some(format!("{path} is not readable in profile {name}"))
}

/// Explains a message that names no absolute path: a shell names a program that it may not execute
/// by its name alone.
fn of_line_without_path(line: &str, profile: &Profile) -> String {
    let name = &profile.name;
    let before = line.split(DENIED).next().unwrap_or_default().trim_end_matches([':', ' ']);
    let subject = before.rsplit(": ").next().unwrap_or_default().trim();
    if subject.is_empty() {
        return format!("profile {name} does not permit what the task tried");
    }
    if subject.contains(' ') || profile.execute == Execute::Any {
        return format!("profile {name} does not permit: {subject}");
    }
    format!("{subject} may not be executed in profile {name}: {REMEDY}")
}

/// Returns the first absolute path in a message.
fn path_in(line: &str) -> Option<&str> {
    let is_end = |c: char| c.is_whitespace() || "'\"`\u{2018}\u{2019}:;,()[]".contains(c);
    line.split(is_end).find(|word| word.len() > 1 && word.starts_with('/'))
}

/// Returns `path` with `..` resolved, as if no directory were a link.
fn without_parents(path: &str) -> String {
    let mut resolved = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            part => resolved.push(part),
        }
    }
    resolved.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{CapturedOutput, TaskResult};
    use agenix_sandbox::profile::Profile;

    use super::denied;

    fn of(exit_code: i32, signal: Option<i32>, stderr: &str) -> Vec<String> {
        let stderr = CapturedOutput::whole(stderr.into());
        let result = TaskResult { exit_code, signal, stderr, ..TaskResult::default() };
        let profile =
            Profile { read: vec!["/data".into()], write: vec!["/build".into()], ..Profile::reader() };
        denied(&result, &profile)
    }

    #[test]
    fn denied_paths_are_explained() {
        let cases = [
            ("cat: /srv/u/x: Permission denied", "/srv/u/x is not readable in profile reader"),
            (
                "sort: cannot read: '/srv/u/x': Permission denied",
                "/srv/u/x is not readable in profile reader",
            ),
            ("touch: cannot touch '/data/x': Permission denied", "/data/x is not writable in profile reader"),
            (
                "agw: task 1 could not be started: sandbox, step stdout: '/srv/x': Permission denied (os error 13)",
                "/srv/x is not writable in profile reader",
            ),
            ("cat: /usr/share/../../../srv/x: Permission denied", "/srv/x is not readable in profile reader"),
            (
                "sh: 1: /usr/bin/id: Permission denied",
                "/usr/bin/id may not be executed in profile reader: name it in requires.tools of the plan, or use a profile with execute = \"any\"",
            ),
            (
                "sh: 1: id: Permission denied",
                "id may not be executed in profile reader: name it in requires.tools of the plan, or use a profile with execute = \"any\"",
            ),
            ("sh: 1: cannot create x: Permission denied", "profile reader does not permit: cannot create x"),
            ("Permission denied", "profile reader does not permit what the task tried"),
            (
                "PermissionError: [Errno 1] Operation not permitted",
                "profile reader permits no network, no Unix sockets and no privileged system calls",
            ),
        ];
        for (stderr, expected) in cases {
            assert_eq!(of(1, None, stderr), [expected], "{stderr}");
        }
    }

    #[test]
    fn limits_are_explained() {
        for exit in [(137 - 9 + 24, None), (152, Some(24))] {
            assert_eq!(
                of(exit.0, exit.1, ""),
                ["the task took more processor time than limits.cpu_secs = 600 of profile reader"]
            );
        }
        assert!(of(153, Some(25), "")[0].contains("limits.file_size = 1073741824 bytes"));
        assert!(of(159, Some(31), "")[0].contains("system call"));
    }

    #[test]
    fn success_and_other_failures_need_no_explanation() {
        assert!(of(0, None, "cat: /srv/x: Permission denied").is_empty());
        assert!(of(1, None, "no such thing").is_empty());
        assert!(
            of(1, None, "cp: /build/x: Permission denied").is_empty(),
            "the file has its own permissions"
        );
        let many: String = (0..9).map(|n| format!("cat: /srv/{n}: Permission denied\n")).collect();
        assert_eq!(of(1, None, &many).len(), 3);
    }
}
