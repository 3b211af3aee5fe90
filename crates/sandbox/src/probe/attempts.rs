//! Attacks of a task on its sandbox. Each line of the output is the result of one attack.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, IoSliceMut, Read, Write},
    net::{TcpStream, UdpSocket},
    os::unix::{fs::symlink, net::UnixDatagram, net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
};

use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
    sys::{
        ptrace,
        uio::{RemoteIoVec, process_vm_readv},
    },
    unistd::Pid,
};
use rustix::{
    fs::MemfdFlags,
    mount::FsOpenFlags,
    process::{getppid, prlimit, setsid, test_kill_process},
    thread::{CapabilitySet, CapabilitySets, no_new_privs, set_capabilities},
};

use super::{Attempt, Targets};
use crate::{
    property::Property,
    setup::{ATTEMPT_ARGUMENT, SUPERVISOR_ARGUMENT},
};

/// Properties that [`attempt`] attacks. The end of the job shows [`Property::Leftovers`].
pub(super) const ATTACKED: [Property; 12] = [
    Property::FilesRead,
    Property::FilesWrite,
    Property::Exec,
    Property::Network,
    Property::UnixSockets,
    Property::Signals,
    Property::Memory,
    Property::Terminal,
    Property::Privileges,
    Property::KernelSurface,
    Property::LimitsProcess,
    Property::LimitsDisk,
];
/// Argument of a daemon, in the place of the targets.
const DAEMON: &str = "daemon";
/// Argument of a task that takes memory, in the place of the targets. The next argument is a number
/// of bytes.
pub(super) const MEMORY: &str = "memory";

/// Attacks the targets that the third argument names.
pub(crate) fn attempt() -> ExitCode {
    let Some(argument) = std::env::args().nth(3) else { return ExitCode::FAILURE };
    if argument == DAEMON {
        return daemon();
    }
    if argument == MEMORY {
        return take_memory();
    }
    let Ok(targets) = serde_json::from_str::<Targets>(&argument) else { return ExitCode::FAILURE };
    match attack_all(&targets) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Leaves the session of the task, reports that, and waits for the end of the task.
fn daemon() -> ExitCode {
    let _is_leader = setsid();
    let _is_gone = io::stdout().write_all(b"1");
    let _is_gone = io::stdout().flush();
    loop {
        let _interrupted = rustix::event::poll(&mut [], None);
    }
}

/// Takes memory, and writes to each page of it.
fn take_memory() -> ExitCode {
    let bytes = std::env::args().nth(4).and_then(|bytes| bytes.parse().ok());
    let Some(bytes) = bytes else { return ExitCode::FAILURE };
    let taken = vec![1_u8; bytes];
    if std::hint::black_box(&taken).iter().all(|&byte| byte == 1) {
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

fn attack_all(targets: &Targets) -> io::Result<()> {
    type AttackFunction = fn(&Targets) -> io::Result<Vec<(&'static str, bool)>>;
    let attacks: [(Property, AttackFunction); 12] = [
        (Property::FilesRead, files_read),
        (Property::FilesWrite, files_write),
        (Property::Exec, exec),
        (Property::Network, network),
        (Property::UnixSockets, unix_sockets),
        (Property::Signals, signals),
        (Property::Memory, memory),
        (Property::Terminal, terminal),
        (Property::Privileges, privileges),
        (Property::KernelSurface, kernel_surface),
        (Property::LimitsProcess, limits_process),
        (Property::LimitsDisk, limits_disk),
    ];
    for (property, attack) in attacks {
        for (attack, is_stopped) in attack(targets)? {
            let attempt = Attempt { property, attack: attack.to_owned(), is_stopped };
            let mut line = serde_json::to_vec(&attempt)?;
            line.push(b'\n');
            io::stdout().write_all(&line)?;
        }
    }
    leave_daemon()
}

/// Starts a daemon that holds the stderr of this task, and waits until it has left the session.
fn leave_daemon() -> io::Result<()> {
    let mut daemon = Command::new(std::env::current_exe()?);
    daemon.args([SUPERVISOR_ARGUMENT, ATTEMPT_ARGUMENT, DAEMON]).stdout(Stdio::piped());
    let mut daemon = daemon.spawn()?;
    let mut ready = [0];
    daemon.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.read_exact(&mut ready)
}

fn files_read(targets: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    let link = PathBuf::from("link-to-secret");
    symlink(&targets.secret, &link)?;
    let is_executable_readable = File::open(std::env::current_exe()?).is_ok();
    let found = vec![
        ("reads a file outside", File::open(&targets.secret).is_err() && is_executable_readable),
        ("reads it through a link", File::open(&link).is_err()),
        ("lists a directory outside", fs::read_dir(&targets.directory).is_err()),
    ];
    fs::remove_file(link)?;
    Ok(found)
}

fn files_write(targets: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    let (own, new) = (Path::new("own"), targets.directory.join("new"));
    fs::write(own, "x")?;
    let found = vec![
        ("creates a file outside", File::create(&new).is_err()),
        ("appends to a file outside", OpenOptions::new().append(true).open(&targets.secret).is_err()),
        (
            "truncates a file outside",
            rustix::fs::open(&targets.secret, rustix::fs::OFlags::TRUNC, rustix::fs::Mode::empty()).is_err(),
        ),
        ("moves a file outside", fs::rename(own, &new).is_err()),
        ("links a file outside", fs::hard_link(own, &new).is_err()),
    ];
    fs::remove_file(own)?;
    Ok(found)
}

fn exec(_: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    let others = ["/bin/true", "/usr/bin/true", "/bin/sh"].map(Path::new);
    let other = others.into_iter().find(|path| path.exists());
    let script = Path::new("script");
    fs::write(script, "#!/bin/sh\n")?;
    fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    let found = vec![
        (
            "executes another program",
            other.is_some_and(|other| Command::new(other).stdin(Stdio::null()).spawn().is_err()),
        ),
        ("executes a file of its own", Command::new("./script").spawn().is_err()),
        ("creates a file in memory", rustix::fs::memfd_create("m", MemfdFlags::empty()).is_err()),
    ];
    fs::remove_file(script)?;
    Ok(found)
}

fn network(targets: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    Ok(vec![
        ("connects by TCP", TcpStream::connect(&*targets.address).is_err()),
        ("opens a UDP socket", UdpSocket::bind("127.0.0.1:0").is_err()),
    ])
}

fn unix_sockets(targets: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    Ok(vec![
        ("connects to a Unix socket", UnixStream::connect(&targets.socket).is_err()),
        ("opens a Unix socket", UnixDatagram::unbound().is_err()),
        // Each socket of the pair could send to other sockets by their paths.
        ("opens a pair of Unix datagram sockets", UnixDatagram::pair().is_err()),
    ])
}

/// Returns true if the process ids of the worker mean the same processes here.
fn has_namespace_of_worker(targets: &Targets) -> bool {
    let own = fs::read_link("/proc/self/ns/pid").ok();
    own.is_none() || own == targets.pid_namespace
}

fn signals(targets: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    let reaches =
        || rustix::process::Pid::from_raw(targets.worker).is_some_and(|pid| test_kill_process(pid).is_ok());
    Ok(vec![("signals the worker", !has_namespace_of_worker(targets) || !reaches())])
}

fn memory(targets: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    // Without permission, the kernel does not read the address.
    let is_denied = |error| matches!(error, Errno::EPERM | Errno::ESRCH | Errno::ENOSYS);
    let reads = |pid| {
        let mut byte = [0];
        process_vm_readv(pid, &mut [IoSliceMut::new(&mut byte)], &[RemoteIoVec { base: 4096, len: 1 }])
    };
    let [worker, parent] = [Pid::from_raw(targets.worker), Pid::parent()];
    let is_worker_safe = !has_namespace_of_worker(targets) || reads(worker).is_err_and(is_denied);
    Ok(vec![
        ("reads the memory of the worker", is_worker_safe),
        ("reads the memory of the supervisor", reads(parent).is_err_and(is_denied)),
        ("traces the supervisor", ptrace::attach(parent).is_err_and(is_denied)),
    ])
}

fn terminal(_: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    let open = |path: &str| OpenOptions::new().read(true).write(true).open(path);
    Ok(vec![
        ("opens its terminal", open("/dev/tty").is_err()),
        ("creates a terminal", open("/dev/ptmx").is_err()),
    ])
}

fn privileges(_: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    let all = CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::SETUID;
    let gained = set_capabilities(None, CapabilitySets { effective: all, permitted: all, inheritable: all });
    Ok(vec![
        ("raises capabilities", gained.is_err()),
        ("gains privileges by a program", no_new_privs().is_ok_and(|holds| holds)),
        ("is root", !rustix::process::geteuid().is_root()),
    ])
}

fn kernel_surface(_: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    let is_denied = |error| error == rustix::io::Errno::PERM;
    // The limit of the supervisor is the same.
    let nothing = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let limit = |process| prlimit(Some(process), rustix::process::Resource::Core, nothing);
    Ok(vec![
        ("creates a user namespace", unshare(CloneFlags::CLONE_NEWUSER) == Err(Errno::EPERM)),
        ("opens a file system", rustix::mount::fsopen("tmpfs", FsOpenFlags::empty()).is_err_and(is_denied)),
        ("traces itself", ptrace::traceme() == Err(Errno::EPERM)),
        (
            "limits the supervisor",
            getppid().is_some_and(|supervisor| limit(supervisor).is_err_and(is_denied)),
        ),
    ])
}

fn limits_process(targets: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    let limits = &targets.limits;
    let mut files = Vec::new();
    while u64::try_from(files.len()).is_ok_and(|open| open <= limits.open_files)
        && let Ok(file) = File::open("/dev/null")
    {
        files.push(file);
    }
    let are_files_bounded = u64::try_from(files.len()).is_ok_and(|open| open <= limits.open_files);
    drop(files);
    let limit = rustix::process::getrlimit;
    let is_at_most = |resource, most| limit(resource).maximum.is_some_and(|limit| limit <= most);
    use rustix::process::Resource;
    Ok(vec![
        ("opens more files", are_files_bounded),
        ("starts more threads", are_threads_bounded(limits.processes, targets.has_control_group)),
        ("has a greater address space", is_at_most(Resource::As, limits.address_space)),
        ("writes a greater file", is_at_most(Resource::Fsize, limits.file_size)),
        ("uses more processor time", is_at_most(Resource::Cpu, limits.cpu_secs + 1)),
    ])
}

/// Returns true if the system refuses more than `most` threads.
fn are_threads_bounded(most: u64, has_control_group: bool) -> bool {
    if has_control_group {
        return is_thread_refused(most);
    }
    // The probe does not try more threads than one user has on a machine, because the limit may be
    // relative to the threads of the user.
    const TRIED: u64 = 100_000;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nproc).maximum;
    let Some(limit) = limit.filter(|&limit| limit >= most && limit < TRIED) else { return false };
    // Other processes of the user may count as well.
    limit > most || is_thread_refused(limit)
}

/// Starts up to `limit` threads beside the present one. Returns true if the system refuses a
/// thread.
fn is_thread_refused(limit: u64) -> bool {
    let (sender, receiver) = mpsc::channel::<()>();
    let receiver = Arc::new(Mutex::new(receiver));
    let mut threads = Vec::new();
    let mut is_bounded = false;
    for _ in 0..=limit {
        let receiver = Arc::clone(&receiver);
        let thread = thread::Builder::new().stack_size(64 << 10).spawn(move || {
            // Waits until the sender is gone.
            let _is_gone = receiver.lock().map(|receiver| receiver.recv());
        });
        match thread {
            Ok(thread) => threads.push(thread),
            Err(_) => {
                is_bounded = true;
                break;
            }
        }
    }
    drop(sender);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    is_bounded
}

fn limits_disk(targets: &Targets) -> io::Result<Vec<(&'static str, bool)>> {
    let (block, path) = (vec![1; 64 << 10], Path::new("big"));
    let mut file = File::create(path)?;
    let mut written = 0;
    while written <= targets.limits.scratch_bytes && file.write_all(&block).is_ok() {
        written += block.len() as u64;
    }
    drop(file);
    fs::remove_file(path)?;
    let name = |number: u64| PathBuf::from(format!("file-{number}"));
    let mut files = 0;
    while files <= targets.limits.scratch_inodes && File::create(name(files)).is_ok() {
        files += 1;
    }
    (0..files).try_for_each(|number| fs::remove_file(name(number)))?;
    Ok(vec![
        ("fills the disk", written <= targets.limits.scratch_bytes),
        ("creates more files", files <= targets.limits.scratch_inodes),
    ])
}
