//! Relay threads, which move bytes between pipes. Idle threads are kept and reused, because
//! creating a thread takes longer than most relays.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

/// Maximum number of idle threads.
const MAX_IDLE: usize = 16;
/// Increase of the nice value of relay threads over tasks (nice(2)).
#[cfg(target_os = "linux")]
const NICER: i32 = 10;

type RelayTask = Box<dyn FnOnce() + Send>;

/// Channels to the idle threads.
static IDLE: Mutex<Vec<mpsc::Sender<RelayTask>>> = Mutex::new(Vec::new());

/// Runs `work` on an idle or a new thread at once. The pool has no upper bound, because pipes would
/// deadlock if they waited for each other's threads. Returns an error if the system refuses a
/// thread.
pub(crate) fn run(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut work: RelayTask = Box::new(work);
    let waiting = idle().pop();
    if let Some(relay) = waiting {
        match relay.send(work) {
            Ok(()) => return Ok(()),
            Err(mpsc::SendError(unsent)) => work = unsent,
        }
    }
    let (reach, inbox) = mpsc::channel();
    thread::Builder::new().name("relay".into()).spawn(move || {
        lower_priority();
        serve(work, &reach, &inbox);
    })?;
    Ok(())
}

fn serve(mut work: RelayTask, reach: &mpsc::Sender<RelayTask>, inbox: &mpsc::Receiver<RelayTask>) {
    loop {
        work();
        {
            let mut idle = idle();
            if idle.len() >= MAX_IDLE {
                return;
            }
            idle.push(reach.clone());
        }
        let Ok(next) = inbox.recv() else { return };
        work = next;
    }
}

/// Lowers the priority of the calling thread. A relay thread wakes up for each write of a task, and
/// would otherwise take the processor from that task.
#[cfg(target_os = "linux")]
fn lower_priority() {
    // On Linux, nice(2) affects only the calling thread. The relay works without a low priority,
    // too.
    let _as_before = rustix::process::nice(NICER);
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

fn idle() -> MutexGuard<'static, Vec<mpsc::Sender<RelayTask>>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, mpsc};

    use super::{MAX_IDLE, run};

    #[test]
    fn relays_run_in_parallel_on_reused_threads() {
        let count = 2 * MAX_IDLE;
        for _round in 0..3 {
            let (all, (sender, receiver)) = (Arc::new(Barrier::new(count)), mpsc::channel());
            for _ in 0..count {
                let (all, sender) = (Arc::clone(&all), sender.clone());
                run(move || {
                    all.wait();
                    sender.send(()).unwrap();
                })
                .unwrap();
            }
            assert_eq!(receiver.iter().take(count).count(), count);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn relays_run_at_lower_priority() {
        use rustix::process::nice;

        let (ours, (sender, receiver)) = (nice(0).unwrap(), mpsc::channel());
        run(move || sender.send(nice(0).unwrap()).unwrap()).unwrap();
        assert_eq!(receiver.recv().unwrap(), (ours + super::NICER).min(19));
        assert_eq!(nice(0).unwrap(), ours, "of the relay thread alone");
    }
}
