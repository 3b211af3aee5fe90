//! Tests of the start of children, by programs of the system.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::{
        fd::OwnedFd,
        unix::{fs::MetadataExt, process::ExitStatusExt},
    },
    path::Path,
};

use rustix::process::{Pid, getpgid};

use super::ChildProgram;
use crate::reap;

fn null() -> OwnedFd {
    File::options().read(true).write(true).open("/dev/null").unwrap().into()
}

fn path() -> BTreeMap<OsString, OsString> {
    BTreeMap::from([("PATH".into(), std::env::var_os("PATH").unwrap())])
}

/// Runs a shell script with the settings of `set`, and returns its stdout and its exit code.
fn output(script: &str, set: impl FnOnce(&mut ChildProgram<'_>)) -> (String, Option<i32>) {
    let (mut stdout, pipe) = io::pipe().unwrap();
    let env = path();
    let mut child = ChildProgram::new(Path::new("/bin/sh"), &env, [null(), pipe.into(), null()]);
    child.args = ["sh", "-c", script].map(OsStr::new).to_vec();
    set(&mut child);
    let pid = child.start().unwrap();
    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    (text, reap(pid).unwrap().status.code())
}

#[test]
fn child_has_the_given_arguments_variables_directory_and_streams() {
    let dir = tempfile::tempdir().unwrap();
    let (from_input, mut input) = io::pipe().unwrap();
    input.write_all(b"input\n").unwrap();
    drop(input);
    let mut stderr = tempfile::tempfile().unwrap();
    let env = BTreeMap::from([("A".into(), "1 = one".into()), ("B".into(), OsString::new())]);
    let (mut stdout, pipe) = io::pipe().unwrap();
    let stdio = [from_input.into(), pipe.into(), stderr.try_clone().unwrap().into()];
    let mut child = ChildProgram::new(Path::new("/bin/sh"), &env, stdio);
    let script = r#"read line; echo "$line $0 $1 $A${B+ set}"; pwd -P; echo error >&2; exit 3"#;
    child.args = ["sh", "-c", script, "name", "an argument"].map(OsStr::new).to_vec();
    child.cwd = Some(dir.path().to_owned());
    let pid = child.start().unwrap();
    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    let directory = fs::canonicalize(dir.path()).unwrap();
    assert_eq!(text, format!("input name an argument 1 = one set\n{}\n", directory.display()));
    assert_eq!(reap(pid).unwrap().status.code(), Some(3));
    stderr.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(io::read_to_string(stderr).unwrap(), "error\n");
}

#[test]
fn child_leads_a_process_group() {
    // The child waits for the end of its stdin.
    let (from_input, input) = io::pipe().unwrap();
    let env = path();
    let mut child = ChildProgram::new(Path::new("/bin/cat"), &env, [from_input.into(), null(), null()]);
    child.args = vec![OsStr::new("cat")];
    let pid = child.start().unwrap();
    let group = getpgid(Pid::from_raw(pid)).unwrap();
    assert_eq!(group.as_raw_pid(), pid);
    drop(input);
    assert_eq!(reap(pid).unwrap().status.code(), Some(0));
}

#[test]
fn errors_of_the_child_are_those_of_the_start() {
    let (env, stdio) = (path(), || [null(), null(), null()]);
    let code = |child: ChildProgram<'_>| child.start().unwrap_err().raw_os_error();
    assert_eq!(code(ChildProgram::new(Path::new("/no/such"), &env, stdio())), Some(libc::ENOENT));
    assert_eq!(code(ChildProgram::new(Path::new("/dev/null"), &env, stdio())), Some(libc::EACCES));
    let mut elsewhere = ChildProgram::new(Path::new("/bin/sh"), &env, stdio());
    elsewhere.cwd = Some("/no/such".into());
    assert_eq!(code(elsewhere), Some(libc::ENOENT));
    let mut long = ChildProgram::new(Path::new("/bin/sh"), &env, stdio());
    // The argument exceeds the limits of Linux and of macOS.
    let argument = "x".repeat(4 << 20);
    long.args = vec![OsStr::new("sh"), OsStr::new(&argument)];
    assert_eq!(code(long), Some(libc::E2BIG));
    let mut with_nul = ChildProgram::new(Path::new("/bin/sh"), &env, stdio());
    with_nul.args = vec![OsStr::new("a\0b")];
    assert_eq!(with_nul.start().unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn program_is_relative_to_the_working_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::copy("/bin/sh", dir.path().join("own")).unwrap();
    let (text, code) = output("echo ran", |child| {
        child.program = Path::new("./own");
        child.cwd = Some(dir.path().to_owned());
    });
    assert_eq!((&*text, code), ("ran\n", Some(0)));
}

#[test]
fn streams_may_be_each_other() {
    use std::os::fd::{AsRawFd, FromRawFd};

    // The test runs in a separate process, because it replaces descriptors that the process uses.
    const OWN_PROCESS: &str = "AGENIX_SYS_TEST_OF_STREAMS";
    if std::env::var_os(OWN_PROCESS).is_none() {
        let name = "child_program::tests::streams_may_be_each_other";
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        assert!(own.args(["--exact", name]).env(OWN_PROCESS, "1").status().unwrap().success());
        return;
    }
    let mut file = tempfile::tempfile().unwrap();
    let env = path();
    // Descriptor 1 becomes stderr, so that stdout must not overwrite it before.
    #[allow(unsafe_code)]
    // SAFETY: the copy is open, and this owner does not live longer than the process.
    let stderr = unsafe {
        libc::dup2(file.as_raw_fd(), 1);
        OwnedFd::from_raw_fd(1)
    };
    let mut child = ChildProgram::new(Path::new("/bin/sh"), &env, [null(), null(), stderr]);
    child.args = ["sh", "-c", "echo out; echo error >&2"].map(OsStr::new).to_vec();
    reap(child.start().unwrap()).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(io::read_to_string(file).unwrap(), "error\n");
}

#[cfg(target_os = "linux")]
#[test]
fn child_has_the_signals_of_a_new_program() {
    let (text, _) = output("exec cat /proc/self/status", |_| ());
    let mask = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    assert_eq!(mask("SigBlk"), 0);
    assert_eq!(mask("SigIgn") & 1 << (libc::SIGPIPE - 1), 0, "the Rust runtime ignores it");
    let own = fs::read_to_string("/proc/thread-self/status").unwrap();
    assert!(own.contains("SigBlk:\t0000000000000000"), "the thread has its own mask again");
}

#[test]
fn ended_by_a_signal_is_reported_as_such() {
    let env = path();
    let mut child = ChildProgram::new(Path::new("/bin/sh"), &env, [null(), null(), null()]);
    child.args = ["sh", "-c", "kill -TERM $$"].map(OsStr::new).to_vec();
    assert_eq!(reap(child.start().unwrap()).unwrap().status.signal(), Some(libc::SIGTERM));
}

#[test]
fn descriptors_of_the_streams_are_closed_here() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = || OwnedFd::from(file.reopen().unwrap());
    let before = open_files(file.path());
    let env = path();
    let mut child = ChildProgram::new(Path::new("/bin/sh"), &env, [open(), open(), open()]);
    child.args = ["sh", "-c", "exit"].map(OsStr::new).to_vec();
    reap(child.start().unwrap()).unwrap();
    assert_eq!(open_files(file.path()), before);
}

/// Returns how many descriptors of this process refer to the file.
fn open_files(file: &Path) -> usize {
    let wanted = fs::metadata(file).unwrap().ino();
    let entries = fs::read_dir("/dev/fd").unwrap().filter_map(Result::ok);
    entries.filter(|entry| fs::metadata(entry.path()).is_ok_and(|found| found.ino() == wanted)).count()
}

#[cfg(target_os = "linux")]
#[test]
fn data_of_a_child_and_its_children_are_bounded() {
    let limits = |bytes| {
        let script = "sh -c 'grep \"Max data size\" /proc/self/limits'";
        let (text, _) = output(script, |child| child.data_limit = Some(bytes));
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u64>>()
    };
    assert_eq!(limits(256 << 20), [256 << 20, 256 << 20]);
    // tail(1) keeps all bytes that it may have to print.
    let copy = |bytes| {
        let script = "head -c 100000000 /dev/zero | tail -c 100000000 2> /dev/null | wc -c";
        output(script, |child| child.data_limit = Some(bytes)).0
    };
    assert_eq!(copy(400 << 20).trim(), "100000000");
    assert_eq!(copy(32 << 20).trim(), "0");
}

#[cfg(target_os = "linux")]
#[test]
fn child_joins_a_group_before_it_executes_its_program() {
    let mut file = tempfile::tempfile().unwrap();
    let (_, code) = output("exit", |child| child.control_group = Some(file.try_clone().unwrap()));
    assert_eq!(code, Some(0));
    file.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(io::read_to_string(file).unwrap(), "0");
    let env = path();
    let mut child = ChildProgram::new(Path::new("/bin/sh"), &env, [null(), null(), null()]);
    child.control_group = Some(File::open("/dev/null").unwrap());
    assert_eq!(child.start().unwrap_err().raw_os_error(), Some(libc::EBADF), "it does not start outside");
}

#[cfg(target_os = "linux")]
#[test]
fn child_that_hangs_before_its_program_holds_nothing_of_others() {
    use rustix::fs::{OFlags, fcntl_setfl};

    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("true");
    fs::copy("/bin/true", &program).unwrap();
    let (mut from_other, other) = io::pipe().unwrap();
    fcntl_setfl(&from_other, OFlags::NONBLOCK).unwrap();
    // The execve(2) of the child waits for the end of the lease.
    let leased = Lease::take(&program);
    let (env, program) = (path(), &program);
    std::thread::scope(|scope| {
        let started = scope.spawn(|| {
            let mut child = ChildProgram::new(program, &env, [null(), null(), null()]);
            child.args = vec![OsStr::new("true")];
            child.start()
        });
        leased.wait_for_execve();
        drop(other);
        assert_eq!(from_other.read(&mut [0]).ok(), Some(0), "the end of the pipe");
        drop(leased);
        let pid = started.join().unwrap().unwrap();
        assert_eq!(reap(pid).unwrap().status.code(), Some(0));
    });
}

/// Write lease of a file, which another process cannot open during the lease.
#[cfg(target_os = "linux")]
struct Lease(File);

#[cfg(target_os = "linux")]
impl Lease {
    fn take(file: &Path) -> Self {
        // The kernel signals the wait of the other process, by default with a signal that ends this
        // process.
        let file = File::open(file).unwrap();
        crate::control(&file, crate::F_SETSIG, libc::SIGURG).unwrap();
        crate::control(&file, libc::F_SETLEASE, libc::F_WRLCK).unwrap();
        Self(file)
    }

    /// Waits until another process waits for the end of the lease.
    #[allow(unsafe_code)]
    fn wait_for_execve(&self) {
        use std::os::fd::AsRawFd;

        // SAFETY: the descriptor is open, and the command takes no argument.
        while unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) } == libc::F_WRLCK {
            std::thread::yield_now();
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn child_inherits_files_only_if_it_is_told_to() {
    use std::os::fd::AsRawFd;

    use rustix::io::{FdFlags, fcntl_setfd};

    let file = tempfile::tempfile().unwrap();
    fcntl_setfd(&file, FdFlags::empty()).unwrap();
    let script = format!("test -e /proc/self/fd/{} && echo inherited", file.as_raw_fd());
    assert_eq!(output(&script, |_| ()).0, "");
    assert_eq!(output(&script, |child| child.inherits_files = true).0, "inherited\n");
}

#[test]
fn many_threads_start_children_at_once() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for number in 0..50 {
                    assert_eq!(output(&format!("echo {number}"), |_| ()).0.trim(), number.to_string());
                }
            });
        }
    });
}
