//! Runtime of the main thread, with the signal handlers that the worker needs from its start on.

use std::{io, time::Duration};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::Signal,
};

use crate::worker::signals;

/// Idle time after which tokio ends a blocking thread: long enough to keep the thread for ever.
const KEPT_FOR: Duration = Duration::from_secs(1 << 32);

/// Builds the runtime, and returns it with the stream of SIGHUP, which no longer ends the worker.
///
/// One thread runs the protocol: with several threads, each message would wake another one. The
/// blocking thread is built now, because tokio panics if the system refuses the thread later.
pub(crate) fn build() -> io::Result<(Runtime, Signal)> {
    let runtime = Builder::new_current_thread().enable_all().thread_keep_alive(KEPT_FOR).build()?;
    // The standard library returns an error if the system refuses a thread; tokio panics.
    let tried = std::thread::Builder::new().spawn(|| ())?;
    drop(tried.join());
    drop(runtime.spawn_blocking(|| ()));
    let hangups = runtime.block_on(async { signals::survive_start() })?;
    Ok((runtime, hangups))
}
