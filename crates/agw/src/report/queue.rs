//! Queue of finished jobs that wait for their report. The protocol thread sends the reports in
//! batches, because separate reports would wake this thread and agq for each job.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agenix_protocol::{documents::JobUpdate, ids::JobId};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    exec::cancel::CancelToken,
    report::{
        batch_timer::BatchTimer,
        reporter::{JobReporter, Reported, StartReport},
        upload::LargeOutputs,
    },
};

/// A finished job that is not yet reported.
pub(crate) struct FinishedJob {
    /// Number of the run.
    pub(crate) number: u64,
    /// Guard of the run. Its drop ends the run.
    pub(crate) run: Box<dyn Send>,
    pub(crate) job_id: JobId,
    pub(crate) update: JobUpdate,
    pub(crate) large_outputs: LargeOutputs,
    pub(crate) reporter: JobReporter,
    /// Progress report that is still in flight.
    pub(crate) under_way: Option<StartReport>,
    pub(crate) cancel: CancelToken,
}

impl FinishedJob {
    /// Reports the end of the job unless the job is cancelled, and ends its run.
    pub(crate) async fn report(self) {
        let Self { run, number: _, job_id, mut update, large_outputs, mut reporter, under_way, cancel } =
            self;
        let reported = async {
            if let Some(start) = under_way {
                // The reply does not matter, but the progress must reach agq before the end.
                let _started = start.await;
            }
            while reporter.upload(&job_id, &large_outputs.streams, &mut update).await
                && reporter.report(&job_id, update.clone()).await == Reported::BlobMissing
            {}
        };
        tokio::select! {
            () = reported => {}
            () = cancel.cancelled() => {}
        }
        drop(run);
    }
}

#[derive(Default)]
pub(crate) struct ReportQueue {
    due: Mutex<Vec<FinishedJob>>,
    /// Notified when the queue becomes non-empty.
    has_some: Notify,
}

impl ReportQueue {
    pub(crate) fn put(&self, ended: FinishedJob) {
        let mut due = self.due();
        due.push(ended);
        if due.len() == 1 {
            self.has_some.notify_one();
        }
    }

    /// Waits until a batch is due, and returns its jobs.
    pub(crate) async fn next_batch(&self, batch_timer: &mut BatchTimer) -> Vec<FinishedJob> {
        loop {
            self.has_some.notified().await;
            sleep_until(batch_timer.next_send_at(Instant::now())).await;
            let leaving = self.empty();
            if !leaving.is_empty() {
                return leaving;
            }
        }
    }

    /// Removes and returns all jobs.
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

    use agenix_protocol::documents::JobUpdate;
    use futures_util::FutureExt;
    use tokio::sync::{Semaphore, watch};

    use super::{FinishedJob, ReportQueue};
    use crate::exec::cancel::CancelToken;
    use crate::report::{
        batch_timer::BatchTimer, link::ReportLink, reporter::JobReporter, upload::LargeOutputs,
    };

    /// Reporter channel that never gets a connection.
    static NOWHERE: LazyLock<watch::Sender<Option<ReportLink>>> = LazyLock::new(|| watch::Sender::new(None));

    fn ended(permits: &Arc<Semaphore>, number: u64) -> FinishedJob {
        FinishedJob {
            number,
            run: Box::new(Arc::clone(permits).try_acquire_owned().unwrap()),
            job_id: format!("job-{number}").parse().unwrap(),
            update: JobUpdate::default(),
            large_outputs: LargeOutputs::default(),
            reporter: JobReporter::new(NOWHERE.subscribe(), Arc::default()),
            under_way: None,
            cancel: CancelToken::default(),
        }
    }

    fn ids(leaving: &[FinishedJob]) -> Vec<&str> {
        leaving.iter().map(|ended| ended.job_id.as_str()).collect()
    }

    #[tokio::test]
    async fn report_queue_returns_all_due_jobs_as_one_batch() {
        let (reports, permits, mut batch_timer) =
            (ReportQueue::default(), Arc::new(Semaphore::new(9)), BatchTimer::default());
        assert!(reports.next_batch(&mut batch_timer).now_or_never().is_none(), "nothing has ended");
        reports.put(ended(&permits, 1));
        reports.put(ended(&permits, 2));
        assert_eq!(ids(&reports.next_batch(&mut batch_timer).await), ["job-1", "job-2"]);
        assert!(reports.next_batch(&mut batch_timer).now_or_never().is_none(), "all have left");
        reports.put(ended(&permits, 3));
        assert_eq!(ids(&reports.next_batch(&mut batch_timer).await), ["job-3"]);
    }

    #[tokio::test]
    async fn report_queue_emptied_early_releases_permits_and_yields_no_batch() {
        let (reports, permits, mut batch_timer) =
            (ReportQueue::default(), Arc::new(Semaphore::new(1)), BatchTimer::default());
        reports.put(ended(&permits, 1));
        drop(reports.empty());
        assert!(reports.next_batch(&mut batch_timer).now_or_never().is_none());
        reports.put(ended(&permits, 2));
        assert_eq!(ids(&reports.next_batch(&mut batch_timer).await), ["job-2"]);
    }

    #[tokio::test]
    async fn report_of_a_cancelled_job_is_skipped() {
        let permits = Arc::new(Semaphore::new(1));
        let ended = ended(&permits, 1);
        let cancel = ended.cancel.clone();
        let mut report = std::pin::pin!(ended.report());
        assert!(report.as_mut().now_or_never().is_none(), "there is no connection");
        cancel.cancel();
        report.await;
        assert_eq!(permits.available_permits(), 1);
    }
}
