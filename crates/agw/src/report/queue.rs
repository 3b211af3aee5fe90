//! Jobs that have ended, on their way to agq. Whoever ran a job puts it here and goes on; what is due leaves together, from the one
//! thread that speaks with agq: told of each by itself, it would wake for each, and agq with it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agenix_protocol::{documents::JobUpdate, ids::JobId};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit},
    time::{Instant, sleep_until},
};

use crate::{
    exec::cancel::CancelToken,
    report::{
        batch_timer::BatchTimer,
        reporter::{Reporter, StartReport},
    },
};

/// A job that has ended and is not reported yet.
pub(crate) struct FinishedJob {
    /// Of its run.
    pub(crate) number: u64,
    pub(crate) job_id: JobId,
    pub(crate) update: JobUpdate,
    pub(crate) link: Reporter,
    /// The report that it runs, where that is still on its way.
    pub(crate) under_way: Option<StartReport>,
    pub(crate) stop: CancelToken,
    /// Its place among all that this worker has.
    pub(crate) berth: OwnedSemaphorePermit,
}

impl FinishedJob {
    /// Reports it, unless it is not ours any more; gives its place back.
    pub(crate) async fn report(self) -> OwnedSemaphorePermit {
        let Self { job_id, update, mut link, under_way, stop, berth, .. } = self;
        let reported = async {
            if let Some(start) = under_way {
                // What agq says to it does not matter any more, only that it is heard before the end.
                let _heard = start.await;
            }
            link.report(&job_id, update).await;
        };
        tokio::select! {
            () = reported => {}
            () = stop.cancelled() => {}
        }
        berth
    }
}

/// What waits for its departure.
#[derive(Default)]
pub(crate) struct ReportQueue {
    due: Mutex<Vec<FinishedJob>>,
    /// Told when the first comes.
    has_some: Notify,
}

impl ReportQueue {
    /// From now on it waits.
    pub(crate) fn put(&self, ended: FinishedJob) {
        let mut due = self.due();
        due.push(ended);
        if due.len() == 1 {
            self.has_some.notify_one();
        }
    }

    /// Those that leave together, when it is time.
    pub(crate) async fn next_batch(&self, departures: &mut BatchTimer) -> Vec<FinishedJob> {
        loop {
            self.has_some.notified().await;
            sleep_until(departures.next_send_at(Instant::now())).await;
            let leaving = self.empty();
            if !leaving.is_empty() {
                return leaving;
            }
        }
    }

    /// What waits leaves now, or never.
    pub(crate) fn empty(&self) -> Vec<FinishedJob> {
        std::mem::take(&mut *self.due())
    }

    fn due(&self) -> MutexGuard<'_, Vec<FinishedJob>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock};

    use agenix_client::Connection;
    use agenix_protocol::documents::JobUpdate;
    use futures_util::FutureExt;
    use tokio::sync::{Semaphore, watch};

    use super::{FinishedJob, ReportQueue};
    use crate::exec::cancel::CancelToken;
    use crate::report::{batch_timer::BatchTimer, reporter::Reporter};

    /// There is no connection, and there will be none.
    static NOWHERE: LazyLock<watch::Sender<Option<Connection>>> = LazyLock::new(|| watch::Sender::new(None));

    fn ended(berths: &Arc<Semaphore>, number: u64) -> FinishedJob {
        FinishedJob {
            number,
            job_id: format!("job-{number}").parse().unwrap(),
            update: JobUpdate::default(),
            link: Reporter::new(NOWHERE.subscribe(), Arc::default()),
            under_way: None,
            stop: CancelToken::default(),
            berth: Arc::clone(berths).try_acquire_owned().unwrap(),
        }
    }

    fn numbers(leaving: &[FinishedJob]) -> Vec<u64> {
        leaving.iter().map(|ended| ended.number).collect()
    }

    #[tokio::test]
    async fn what_is_due_leaves_together_and_what_comes_later_by_itself() {
        let (outbox, berths, mut departures) =
            (ReportQueue::default(), Arc::new(Semaphore::new(9)), BatchTimer::default());
        assert!(outbox.next_batch(&mut departures).now_or_never().is_none(), "nothing has ended");
        outbox.put(ended(&berths, 1));
        outbox.put(ended(&berths, 2));
        assert_eq!(numbers(&outbox.next_batch(&mut departures).await), [1, 2]);
        assert!(outbox.next_batch(&mut departures).now_or_never().is_none(), "all have left");
        outbox.put(ended(&berths, 3));
        assert_eq!(numbers(&outbox.next_batch(&mut departures).await), [3]);
    }

    #[tokio::test]
    async fn what_is_taken_out_is_not_waited_for_and_leaves_its_place() {
        let (outbox, berths, mut departures) =
            (ReportQueue::default(), Arc::new(Semaphore::new(1)), BatchTimer::default());
        outbox.put(ended(&berths, 1));
        drop(outbox.empty());
        assert!(outbox.next_batch(&mut departures).now_or_never().is_none());
        outbox.put(ended(&berths, 2));
        assert_eq!(numbers(&outbox.next_batch(&mut departures).await), [2]);
    }

    #[tokio::test]
    async fn whoever_is_called_off_is_not_reported() {
        let berths = Arc::new(Semaphore::new(1));
        let ended = ended(&berths, 1);
        let stop = ended.stop.clone();
        let mut report = std::pin::pin!(ended.report());
        assert!(report.as_mut().now_or_never().is_none(), "there is no connection");
        stop.cancel();
        drop(report.await);
        assert_eq!(berths.available_permits(), 1);
    }
}
