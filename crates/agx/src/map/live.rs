//! Output of running jobs, printed as it comes: in whole lines (`--line-buffer`), or in the chunks
//! in which agx gets it (`--ungroup`).

use std::collections::BTreeMap;

use agenix_protocol::documents::{JobStatus, Status};

use crate::{
    error::Result,
    logs::{FollowedJob, LineForm, SilentWorkers},
    map::{input::MapInput, tag::tag_of},
    output::OutputFormat,
    remote::retrying_client::RetryingClient,
};

/// Time at which output is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// When the job of the output ends.
    AsJobsEnd,
    /// When the job of the output ends, in the order of the inputs.
    InOrder,
    /// In whole lines, while the job runs.
    Lines,
    /// In chunks, while the job runs.
    Ungrouped,
}

impl Grouping {
    pub(crate) fn is_live(self) -> bool {
        matches!(self, Self::Lines | Self::Ungrouped)
    }
}

/// Jobs whose output is being printed.
pub(crate) struct LiveJobs {
    jobs: BTreeMap<u64, FollowedJob>,
    /// Last failed attempt, with complete output, of each job that has waited for a retry.
    failed: BTreeMap<u64, u32>,
    silent: SilentWorkers,
    output: OutputFormat,
    grouping: Grouping,
    tags: bool,
}

impl LiveJobs {
    /// Returns `None` for a grouping in which the output waits for the end of the job. With `tags`,
    /// output is printed in whole lines.
    pub(crate) fn new(output: OutputFormat, grouping: Grouping, tags: bool) -> Option<Self> {
        let new = || Self {
            jobs: BTreeMap::new(),
            failed: BTreeMap::new(),
            silent: SilentWorkers::new(output),
            output,
            grouping,
            tags,
        };
        grouping.is_live().then(new)
    }

    /// Prints the new output of job `at`, up to its end if it has ended. A job that waits for a
    /// retry has the output of its failed attempt, which is printed once. Returns the reason if the
    /// output of an ended job could not be fetched.
    pub(crate) async fn print(
        &mut self,
        at: u64,
        job: &JobStatus,
        input: &MapInput,
        agq: &mut RetryingClient,
    ) -> Result<Option<String>> {
        let is_retried = job.status == Status::Pending;
        if is_retried && self.failed.insert(at, job.attempt) == Some(job.attempt) {
            return Ok(None);
        }
        // As in GNU Parallel, a last line without a line feed gets none.
        let lines = |prefix| LineForm::Lines { prefix, is_completed: false };
        let form = match (self.tags, self.grouping) {
            (true, _) => lines(tag_of(input)),
            (false, Grouping::Lines) => lines(String::new()),
            (false, _) => LineForm::Chunks,
        };
        let new = || FollowedJob::new(job.job_id.clone(), form, None, self.output);
        let followed = self.jobs.entry(at).or_insert_with(new);
        let unread = match followed.poll(agq, job, true, &mut self.silent).await {
            Ok(true) => None,
            Ok(false) => return Ok(None),
            Err(failure) if failure.is_of_an_output() => {
                if is_retried {
                    // The next attempt may have begun while agx fetched the output.
                    self.output.note(&format!("agx: {failure}; the job runs again"));
                }
                if !job.status.is_ended() {
                    return Ok(None);
                }
                Some(failure.to_string())
            }
            Err(failure) => return Err(failure),
        };
        followed.end()?;
        self.jobs.remove(&at);
        self.failed.remove(&at);
        Ok(unread)
    }

    /// Prints the incomplete lines of all jobs.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.jobs.values_mut().try_for_each(FollowedJob::end)
    }
}
