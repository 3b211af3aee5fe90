//! The threads that start processes and wait for them. To start a process takes its thread a fraction of a millisecond; on
//! threads of their own, what is said to agq, and what other jobs have to say, does not wait for that. None is made for a child.

use std::{
    io,
    sync::mpsc,
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

/// The lanes; each has a thread and sees to the processes of its slots.
pub(crate) struct SpawnThreads(Vec<SpawnThread>);

struct SpawnThread {
    handle: Handle,
    /// Dropped, the thread lets go of its work and ends.
    _end: oneshot::Sender<()>,
    /// Closed when it has.
    ended: mpsc::Receiver<()>,
}

impl SpawnThreads {
    /// Starts `count` threads. If the system allows fewer, keeps half of the started threads.
    /// Returns an error if the system allows none.
    pub(crate) fn new(count: u32) -> io::Result<Self> {
        let mut threads = vec![spawn_thread()?];
        while threads.len() < count as usize {
            match spawn_thread() {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // The other half is given back, because tasks need threads and processes, too.
                    let kept = threads.len().div_ceil(2);
                    warn!("{kept} threads start processes, and not {count}: {error}; check `ulimit -u`");
                    Self(threads.split_off(kept)).shut_down(BOUND);
                    break;
                }
            }
        }
        Ok(Self(threads))
    }

    /// What work is given to.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        self.0.iter().map(|thread| thread.handle.clone()).collect()
    }

    /// Ends them; waits at most so long for what hangs in a system call.
    pub(crate) fn shut_down(self, bound: Duration) {
        let end = Instant::now() + bound;
        // All are told before one is waited for.
        let threads: Vec<_> = self.0.into_iter().map(|thread| thread.ended).collect();
        for ended in threads {
            let _hangs = ended.recv_timeout(end.saturating_duration_since(Instant::now()));
        }
    }
}

fn spawn_thread() -> io::Result<SpawnThread> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (handle, (end, until), (tell, ended)) =
        (runtime.handle().clone(), oneshot::channel(), mpsc::channel());
    thread::Builder::new().name("lane".into()).spawn(move || {
        // An error says the same: whoever would tell has gone.
        let _told = runtime.block_on(until);
        drop(runtime);
        drop::<mpsc::Sender<()>>(tell);
    })?;
    Ok(SpawnThread { handle, _end: end, ended })
}
