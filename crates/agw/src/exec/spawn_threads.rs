//! Spawn threads ("lanes"): threads that start processes and wait for them. Starting a process
//! blocks its thread for a moment. Separate threads keep the delay away from the protocol and from
//! the jobs of other lanes. No thread is created for a single child.

use std::{
    io,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};
use tracing::warn;

/// Maximum wait for the end of surplus threads.
const BOUND: Duration = Duration::from_secs(5);

/// Threads with a current-thread runtime each. The processes of a slot run on the same thread.
pub(crate) struct SpawnThreads(Vec<SpawnThread>);

struct SpawnThread {
    handle: Handle,
    /// The drop ends the thread. The runtime of the thread then drops its tasks.
    _end: oneshot::Sender<()>,
    /// Closed once the thread has ended.
    ended: mpsc::Receiver<()>,
}

impl SpawnThreads {
    /// Starts `count` threads, or half of those that the system allows. Returns an error if the
    /// system allows none.
    pub(crate) fn new(count: u32) -> io::Result<Self> {
        let mut threads = vec![spawn_thread()?];
        while threads.len() < count as usize {
            match spawn_thread() {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // The other half is given back, because tasks need threads and processes, too.
                    let kept = threads.len().div_ceil(2);
                    warn!(
                        "only {kept} of {count} threads that start processes could be created: {error}; check `ulimit -u`"
                    );
                    Self(threads.split_off(kept)).shut_down(BOUND);
                    break;
                }
            }
        }
        Ok(Self(threads))
    }

    /// Returns the runtimes of the threads.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        self.0.iter().map(|thread| thread.handle.clone()).collect()
    }

    /// Ends the threads. Waits at most `bound` in all for threads that hang in a system call, and
    /// returns whether all have ended.
    pub(crate) fn shut_down(self, bound: Duration) -> bool {
        let end = Instant::now() + bound;
        // All threads are notified before the first wait.
        let threads: Vec<_> = self.0.into_iter().map(|thread| thread.ended).collect();
        threads.into_iter().fold(true, |all, ended| {
            let left = end.saturating_duration_since(Instant::now());
            all & (ended.recv_timeout(left) != Err(RecvTimeoutError::Timeout))
        })
    }
}

fn spawn_thread() -> io::Result<SpawnThread> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (handle, (end, until), (tell, ended)) =
        (runtime.handle().clone(), oneshot::channel(), mpsc::channel());
    thread::Builder::new().name("lane".into()).spawn(move || {
        // The drop of the sender arrives as an error, and means the end too.
        let _ended = runtime.block_on(until);
        drop(runtime);
        drop::<mpsc::Sender<()>>(tell);
    })?;
    Ok(SpawnThread { handle, _end: end, ended })
}
