//! Threads that move bytes, kept for the next joint: to make one takes longer than most of what has to be moved.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

/// Most threads that wait for something to do.
const MOST_IDLE: usize = 16;
/// By how much they are nicer than tasks (nice(2)).
#[cfg(target_os = "linux")]
const NICER: i32 = 10;

type RelayTask = Box<dyn FnOnce() + Send>;

/// How to reach those that wait.
static IDLE: Mutex<Vec<mpsc::Sender<RelayTask>>> = Mutex::new(Vec::new());

/// Does this on a thread of its own, at once: in a pool that is full, a joint would wait for those that wait for it.
pub(crate) fn run(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut work: RelayTask = Box::new(work);
    let waiting = idle().pop();
    if let Some(mover) = waiting {
        match mover.send(work) {
            Ok(()) => return Ok(()),
            Err(mpsc::SendError(unsent)) => work = unsent,
        }
    }
    let (reach, inbox) = mpsc::channel();
    thread::Builder::new().name("mover".into()).spawn(move || {
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
            if idle.len() >= MOST_IDLE {
                return;
            }
            idle.push(reach.clone());
        }
        let Ok(next) = inbox.recv() else { return };
        work = next;
    }
}

/// Tasks go first: woken by every piece that a task writes, a mover would take the processor from the very task it works for.
/// 990 MB through `cat`, `tr` and `wc` took 1.6 s and take 0.9 on two processors, 1.2 in a shell.
#[cfg(target_os = "linux")]
fn lower_priority() {
    // Of this thread alone, on Linux. Where it may not be, it works as well.
    let _as_before = rustix::process::nice(NICER);
}

#[cfg(not(target_os = "linux"))]
fn give_way() {}

fn idle() -> MutexGuard<'static, Vec<mpsc::Sender<RelayTask>>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, mpsc};

    use super::{MOST_IDLE, run};

    #[test]
    fn nobody_waits_for_another_and_threads_are_used_again() {
        let count = 2 * MOST_IDLE;
        for _round in 0..3 {
            let (all, (tell, told)) = (Arc::new(Barrier::new(count)), mpsc::channel());
            for _ in 0..count {
                let (all, tell) = (Arc::clone(&all), tell.clone());
                run(move || {
                    all.wait();
                    tell.send(()).unwrap();
                })
                .unwrap();
            }
            assert_eq!(told.iter().take(count).count(), count);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn relays_run_at_lower_priority() {
        use rustix::process::nice;

        let (ours, (tell, told)) = (nice(0).unwrap(), mpsc::channel());
        run(move || tell.send(nice(0).unwrap()).unwrap()).unwrap();
        assert_eq!(told.recv().unwrap(), (ours + super::NICER).min(19));
        assert_eq!(nice(0).unwrap(), ours, "of the mover alone");
    }
}
