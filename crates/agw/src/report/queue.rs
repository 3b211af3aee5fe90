//! Queue of finished jobs that wait for their report. The protocol thread sends the reports in
//! batches, because separate reports would wake this thread and agq for each job.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agenix_protocol::{documents::JobUpdate, ids::JobId};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tracing::error;

use crate::{
    exec::{cancel::CancelToken, live_output::LargeOutput},
    report::{
        batch_timer::BatchTimer,
        end_report::Reported,
        reporter::{JobReporter, StartReport},
        upload::LargeOutputs,
    },
};

/// Pauses before the large outputs of a job are sent again, because agq lacks one that it has
/// stored.
const UPLOAD_PAUSES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(16)];

/// A finished job that is not yet reported.
pub(crate) struct FinishedJob {
    /// Number of the run.
    pub(crate) number: u64,
    /// Guard whose drop ends the run.
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
    /// Reports the end of the job unless the job is cancelled, and ends its run. If agq refuses
    /// every report, the worker gives the job back.
    pub(crate) async fn report(self) {
        let Self { run, number: _, job_id, update, large_outputs, mut reporter, under_way, cancel } = self;
        let reported = async {
            if let Some(start) = under_way {
                // The reply does not matter, but the progress must reach agq before the end.
                let _started = start.await;
            }
            report_end(&mut reporter, &job_id, &large_outputs.streams, update, &UPLOAD_PAUSES).await
        };
        let is_reported = tokio::select! {
            reported = reported => reported == Reported::Done,
            () = cancel.cancelled() => true,
        };
        drop(run);
        if !is_reported {
            // The next registration no longer names the job.
            reporter.give_back();
        }
    }
}

/// Uploads the large outputs of a job, and reports its end. If agq lacks an output that it has
/// stored, repeats upload and report after each of `pauses`, and then reports the first bytes only.
async fn report_end(
    reporter: &mut JobReporter,
    job_id: &JobId,
    streams: &[LargeOutput],
    update: JobUpdate,
    pauses: &[Duration],
) -> Reported {
    let mut pauses = pauses.iter();
    loop {
        let mut with_blobs = update.clone();
        if !reporter.upload(job_id, streams, &mut with_blobs).await {
            return Reported::Done;
        }
        match (reporter.report(job_id, with_blobs).await, pauses.next()) {
            (Reported::BlobMissing, Some(pause)) => sleep(*pause).await,
            (Reported::BlobMissing, None) => break,
            (reported, _) => return reported,
        }
    }
    error!(
        %job_id,
        "agq lacks outputs that it has stored, and the result keeps their first bytes: check that all nodes of agq have the same --blob-dir or --blobs"
    );
    reporter.report(job_id, update).await
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
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        os::unix::fs::FileExt,
        sync::{Arc, LazyLock, mpsc},
        time::Duration,
    };

    use agenix_client::{Connection, Server};
    use agenix_protocol::{
        blob::OutputStream,
        documents::{JobUpdate, parse},
    };
    use futures_util::FutureExt;
    use tokio::sync::{Semaphore, watch};

    use super::{FinishedJob, LargeOutput, ReportQueue, report_end};
    use crate::exec::cancel::CancelToken;
    use crate::report::{
        batch_timer::BatchTimer, end_report::Reported, link::ReportLink, reporter::JobReporter,
        upload::LargeOutputs,
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

    /// Starts an agq that takes every output, and then does not have its blob. Returns the address
    /// of this agq, and the reports that it gets.
    fn forgetful_agq() -> (String, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, reports) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, sender) = (stream.unwrap(), sender.clone());
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                std::thread::spawn(move || {
                    for line in lines.map_while(Result::ok) {
                        let reply = match line.as_str() {
                            "AUTH" | "CLIENT" | "OUTPUT.COMMIT" => "+OK\r\n",
                            "OUTPUT.WRITE" => ":3\r\n",
                            report if report.starts_with('{') => {
                                sender.send(report.to_owned()).unwrap();
                                let names_a_blob = report.contains("stdout_blob");
                                if names_a_blob { "-ERR Blob not found: d749\r\n" } else { "+OK\r\n" }
                            }
                            _ => continue,
                        };
                        stream.write_all(reply.as_bytes()).unwrap();
                    }
                });
            }
        });
        (address, reports)
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
    async fn report_has_the_first_bytes_only_if_agq_never_has_a_stored_output() {
        let (address, reports) = forgetful_agq();
        let server = Server::new(&address, "k".into()).unwrap();
        let connection = Connection::open(&server).await.unwrap();
        let link = ReportLink::new(connection, server, "w".parse().unwrap());
        let current = watch::Sender::new(Some(link));
        let mut reporter = JobReporter::new(current.subscribe(), Arc::default());
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        let (stream, file) = (OutputStream::Stdout, Arc::new(file.into()));
        let output = LargeOutput { task_number: 1, stream, file, length: 3 };
        let json = r#"{"status":"completed","attempt":1,"task_results":[{"task_number":1,"command":"seq","exit_code":0,"stdout":"a","stdout_bytes":3}]}"#;
        let (job_id, update) = ("job-1".parse().unwrap(), parse(json.as_bytes()).unwrap());
        let pauses = [Duration::ZERO; 3];
        let reported = report_end(&mut reporter, &job_id, &[output], update, &pauses).await;
        assert_eq!(reported, Reported::Done);
        let name_blobs: Vec<_> = reports.try_iter().map(|report| report.contains("stdout_blob")).collect();
        assert_eq!(name_blobs, [true, true, true, true, false]);
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
