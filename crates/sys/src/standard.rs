//! Standard streams that were closed when this process started. Before `main` runs, the standard
//! library opens `/dev/null` in their place, so that writes to a closed stdout seem to succeed.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

/// A standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standard {
    /// Descriptor 0.
    Stdin,
    /// Descriptor 1.
    Stdout,
}

static IS_STDIN_CLOSED: AtomicBool = AtomicBool::new(false);
static IS_STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Function that the loader calls before the standard library starts.
#[used]
#[allow(unsafe_code)]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static AT_START: extern "C" fn() = look;

extern "C" fn look() {
    for (descriptor, is_closed) in [(0, &IS_STDIN_CLOSED), (1, &IS_STDOUT_CLOSED)] {
        is_closed.store(!is_open(descriptor), Ordering::Relaxed);
    }
}

#[allow(unsafe_code)]
fn is_open(descriptor: libc::c_int) -> bool {
    // SAFETY: the command takes no argument and accesses no memory of this process.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) >= 0 }
}

/// Checks that a standard stream was open when this process started.
///
/// # Errors
///
/// Returns the error `EBADF` if the stream was closed.
pub fn check(stream: Standard) -> io::Result<()> {
    let is_closed = match stream {
        Standard::Stdin => &IS_STDIN_CLOSED,
        Standard::Stdout => &IS_STDOUT_CLOSED,
    };
    if is_closed.load(Ordering::Relaxed) { Err(io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(()) }
}
