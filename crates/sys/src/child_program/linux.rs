//! Start of a child by clone(2) with `CLONE_VM` and `CLONE_VFORK`: the child uses the memory of
//! this process, whose starting thread waits until the child has executed its program.
//!
//! `posix_spawn(3)` of glibc does the same, but makes a hundred system calls more: it maps a stack
//! for each child, and resets each of the 64 signals. The function has neither limits nor control
//! groups.

use std::{
    ffi::{CStr, CString, OsStr, OsString},
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicI32, Ordering},
    },
};

use super::{ChildProgram, data_limit};

/// Number of bytes of the stack of a child until it executes its program.
const STACK_BYTES: usize = 32 << 10;
/// First descriptor after stdin, stdout and stderr.
const FIRST_OTHER: RawFd = libc::STDERR_FILENO + 1;
/// Last signal that is no real-time signal. This process handles no real-time signals.
const LAST_SIGNAL: libc::c_int = 31;

/// Steps of a child. All of its memory belongs to the starting thread, which waits meanwhile.
struct Steps<'s> {
    program: &'s CStr,
    /// Arguments and variables: pointers to strings, and a null pointer at the end.
    args: &'s [*const libc::c_char],
    env: &'s [*const libc::c_char],
    cwd: Option<&'s CStr>,
    /// Descriptors that become stdin, stdout and stderr. Each descriptor is at least `FIRST_OTHER`.
    stdio: Vec<RawFd>,
    data_limit: Option<libc::rlimit>,
    control_group: Option<RawFd>,
    inherits_files: bool,
    /// Signals whose default action the child restores.
    reset: &'s [libc::c_int],
    /// Error number of the step that failed, or 0.
    error: AtomicI32,
}

pub(super) fn start(program: ChildProgram<'_>) -> io::Result<i32> {
    let path = c_string(program.program.as_os_str().as_bytes())?;
    let args = program.args.iter().map(|arg| c_string(arg.as_bytes())).collect::<io::Result<Vec<_>>>()?;
    let env =
        program.env.iter().map(|(name, value)| variable(name, value)).collect::<io::Result<Vec<_>>>()?;
    let cwd = program.cwd.map(|cwd| c_string(cwd.into_os_string().into_vec())).transpose()?;
    let mut streams = Vec::with_capacity(program.stdio.len());
    for descriptor in program.stdio {
        streams.push(above_stdio(descriptor)?);
    }
    let steps = Steps {
        program: &path,
        args: &pointers(&args),
        env: &pointers(&env),
        cwd: cwd.as_deref(),
        stdio: streams.iter().map(AsRawFd::as_raw_fd).collect(),
        data_limit: program.data_limit.map(data_limit).transpose()?,
        control_group: program.control_group.as_ref().map(AsRawFd::as_raw_fd),
        inherits_files: program.inherits_files,
        reset: signals_to_reset(),
        error: AtomicI32::new(0),
    };
    let pid = without_signals(|| clone(&steps))?;
    match steps.error.load(Ordering::Relaxed) {
        0 => Ok(pid),
        error => {
            wait_for(pid);
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

fn c_string(bytes: impl Into<Vec<u8>>) -> io::Result<CString> {
    let nul = |_| io::Error::new(io::ErrorKind::InvalidInput, "nul byte found in provided data");
    CString::new(bytes).map_err(nul)
}

fn variable(name: &OsString, value: &OsStr) -> io::Result<CString> {
    let mut variable = Vec::with_capacity(name.len() + value.len() + 2);
    variable.extend(name.as_bytes());
    variable.push(b'=');
    variable.extend(value.as_bytes());
    c_string(variable)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// Returns the descriptor, or a copy of one that the child would replace while it sets up its
/// stdin, stdout and stderr.
#[allow(unsafe_code)]
fn above_stdio(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() >= FIRST_OTHER {
        return Ok(descriptor);
    }
    // SAFETY: the descriptor is open, and the command takes an integer.
    let copy = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST_OTHER) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has opened the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Calls `start` while all signals of this thread are blocked. A signal handler must not run in the
/// child, because the child would change the memory of this process.
#[allow(unsafe_code)]
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the pointers are valid during the calls, and sigfillset(3) initializes `all`.
    // pthread_sigmask(3) cannot fail with these arguments, and initializes `before`.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = start();
    // SAFETY: `before` is initialized.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    started
}

/// Starts a child that takes `steps`, waits until it has executed its program or ended, and returns
/// its process id.
#[allow(unsafe_code)]
fn clone(steps: &Steps<'_>) -> io::Result<i32> {
    let mut stack = Vec::<MaybeUninit<u128>>::with_capacity(STACK_BYTES / size_of::<u128>());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack grows downwards from its end, which is aligned as a u128. The stack and
    // `steps` exist until the call returns, and with CLONE_VFORK the child no longer uses either by
    // then.
    let pid = unsafe {
        let end = stack.as_mut_ptr().add(stack.capacity());
        libc::clone(take, end.cast(), flags, ptr::from_ref(steps).cast_mut().cast())
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}

/// Runs in the child. Only system calls are allowed here, because other threads of this process run
/// on with the same memory.
#[allow(unsafe_code)]
extern "C" fn take(steps: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `clone` passes steps that live until the child has executed its program or ended.
    let steps = unsafe { &*steps.cast::<Steps<'_>>() };
    steps.take();
    // SAFETY: the call has no precondition, and runs no code of this process.
    unsafe {
        steps.error.store(*libc::__errno_location(), Ordering::Relaxed);
        libc::_exit(127)
    }
}

impl Steps<'_> {
    /// Takes the steps. Returns only if a step has failed, whose error is in `errno`.
    #[allow(unsafe_code)]
    fn take(&self) {
        // SAFETY: all pointers are valid during the calls. The calls change only the child, whose
        // descriptors, signal handlers and limits are copies.
        unsafe {
            if libc::setpgid(0, 0) < 0 {
                return;
            }
            if let Some(entrance) = self.control_group
                && libc::write(entrance, c"0".as_ptr().cast(), 1) < 0
            {
                return;
            }
            if let Some(limit) = &self.data_limit
                && libc::setrlimit(libc::RLIMIT_DATA, ptr::from_ref(limit)) < 0
            {
                return;
            }
            for (descriptor, own) in self.stdio.iter().zip(0..) {
                if libc::dup2(*descriptor, own) < 0 {
                    return;
                }
            }
            if !self.inherits_files {
                // The call is before the steps that may hang. A kernel without the call closes the
                // files at execve(2).
                libc::syscall(libc::SYS_close_range, FIRST_OTHER, libc::c_uint::MAX, 0);
            }
            if let Some(cwd) = self.cwd
                && libc::chdir(cwd.as_ptr()) < 0
            {
                return;
            }
            reset_signals(self.reset);
            libc::execve(self.program.as_ptr(), self.args.as_ptr(), self.env.as_ptr());
        }
    }
}

/// Restores the default actions of `signals` in the child, and then unblocks all signals.
///
/// # Safety
///
/// Only a child may call this, because it changes the signal handlers of its process.
#[allow(unsafe_code)]
unsafe fn reset_signals(signals: &[libc::c_int]) {
    // SAFETY: an action of zeros is the default action, without flags and with an empty mask. All
    // pointers are valid during the calls, which do not fail for these signals.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        for signal in signals {
            libc::sigaction(*signal, &raw const default, ptr::null_mut());
        }
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// Returns the signals that this process handled at its first start of a child, and SIGPIPE, which
/// the Rust runtime ignores. execve(2) resets handlers that were set since then.
fn signals_to_reset() -> &'static [libc::c_int] {
    static SIGNALS: OnceLock<Vec<libc::c_int>> = OnceLock::new();
    SIGNALS.get_or_init(|| {
        let is_reset = |signal: &libc::c_int| *signal == libc::SIGPIPE || is_handled(*signal);
        (1..=LAST_SIGNAL).filter(is_reset).collect()
    })
}

#[allow(unsafe_code)]
fn is_handled(signal: libc::c_int) -> bool {
    // SAFETY: an action of zeros is a valid value, and the call writes another one to it.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut action);
        action.sa_sigaction
    };
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action)
}

/// Reaps a child that ends by itself.
#[allow(unsafe_code)]
fn wait_for(pid: libc::pid_t) {
    // SAFETY: the call accepts a null pointer.
    while unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

#[cfg(test)]
mod tests {
    use super::{LAST_SIGNAL, signals_to_reset};

    #[test]
    fn signals_to_reset_are_the_handled_ones_and_sigpipe() {
        let reset = signals_to_reset();
        // The Rust runtime handles SIGSEGV, and ignores SIGPIPE.
        assert!([libc::SIGSEGV, libc::SIGPIPE].iter().all(|signal| reset.contains(signal)), "{reset:?}");
        assert!(![libc::SIGKILL, libc::SIGSTOP, LAST_SIGNAL].iter().any(|signal| reset.contains(signal)));
    }
}
