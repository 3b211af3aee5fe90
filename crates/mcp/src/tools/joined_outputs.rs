//! Joined outputs: the outputs of all jobs of an action, in the order of the inputs, as one blob
//! that another job reads as stdin. The outputs never pass through the model, or through memory
//! whole.

use agenix_client::ClientError;
use agenix_protocol::{
    blob::{BlobHash, BlobHasher, OutputStream},
    documents::{ActionStatus, JobStatus, Plan, TaskResult},
    errors::ErrorKind,
    ids::ActionId,
};
use bytes::Bytes;

use super::results::{BATCH, jobs_of};
use crate::{
    action,
    error::{Result, ToolError},
    queue::Queue,
};

/// Field of the input that names the blob.
pub(crate) const STDIN_FIELD: &str = "stdin";

/// Maximum number of bytes of joined outputs. A call should not last longer than clients wait.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;

const CHUNK_BYTES: usize = 1024 * 1024;

/// Maximum number of uploads from the beginning, after agq has lost the earlier ones.
const MAX_UPLOADS: u32 = 3;

/// Makes the first task of a plan read the joined outputs of an action as stdin. Returns the blob
/// of the outputs, or `None` if the outputs have no bytes, and the task has an empty stdin.
pub(crate) async fn read_by(
    queue: &Queue,
    action_id: &ActionId,
    plan: &mut Plan,
) -> Result<Option<BlobHash>> {
    let Some(first) = plan.tasks.first_mut() else { return Ok(None) };
    if first.stdin.is_some() || first.stdin_blob.is_some() || first.stdin_file.is_some() {
        let problem = "stdin_of: the first task has another stdin";
        return Err(ToolError::new(problem, "leave stdin_of or the stdin of the plan out"));
    }
    let blob = upload(queue, action_id).await?;
    first.stdin_blob = blob.map(|_| format!("{{{{input.{STDIN_FIELD}}}}}"));
    Ok(blob)
}

async fn upload(queue: &Queue, action_id: &ActionId) -> Result<Option<BlobHash>> {
    let status = action::status(queue, action_id).await?;
    check(&status)?;
    let mut failed = 0;
    loop {
        match BlobUpload::new(queue)?.write(&status).await {
            Err(UploadError::Lost) if failed < MAX_UPLOADS => failed += 1,
            Err(UploadError::Lost) => {
                let problem = "agq was restarted again and again while it stored the outputs";
                return Err(ToolError::new(problem, "call the tool again later"));
            }
            Err(UploadError::Tool(error)) => return Err(error),
            Ok(blob) => return Ok(blob),
        }
    }
}

/// Checks that all jobs of the action have completed.
fn check(status: &ActionStatus) -> Result<()> {
    let id = &status.action_id;
    if !action::has_ended(status) {
        let problem = format!("stdin_of: the jobs of {id} have not ended");
        return Err(ToolError::new(problem, format!("call agx_wait with action_id {id} first")));
    }
    let missing = status.total_jobs - status.completed;
    if missing > 0 {
        let problem = format!("stdin_of: {missing} jobs of {id} have no complete output");
        return Err(ToolError::new(problem, "call agx_retry, or run only the inputs whose jobs complete"));
    }
    Ok(())
}

/// Failure of an upload.
enum UploadError {
    /// agq does not have the earlier chunks any more.
    Lost,
    Tool(ToolError),
}

impl From<ToolError> for UploadError {
    fn from(error: ToolError) -> Self {
        Self::Tool(error)
    }
}

/// Upload of a blob in chunks.
struct BlobUpload<'q> {
    queue: &'q Queue,
    name: ActionId,
    hasher: BlobHasher,
    /// Bytes that agq has.
    written: u64,
    chunk: Vec<u8>,
}

impl<'q> BlobUpload<'q> {
    /// Begins an upload under a name that no other upload has.
    fn new(queue: &'q Queue) -> Result<Self> {
        let name = ActionId::new(format!("mcp-stdin-{}", uuid::Uuid::new_v4().simple()))
            .map_err(|error| ToolError::new(error.to_string(), "report this as a fault of agx"))?;
        let chunk = Vec::with_capacity(CHUNK_BYTES);
        Ok(Self { queue, name, hasher: BlobHasher::default(), written: 0, chunk })
    }

    /// Writes the outputs of all jobs. Returns `None` if the outputs have no bytes.
    async fn write(mut self, status: &ActionStatus) -> std::result::Result<Option<BlobHash>, UploadError> {
        let total = usize::try_from(status.total_jobs).unwrap_or(usize::MAX);
        for from in (0..total).step_by(BATCH) {
            let jobs = jobs_of(self.queue, &status.action_id, from).await?;
            for job in all_kept(jobs, BATCH.min(total - from))? {
                self.write_job(&job).await?;
            }
        }
        self.commit().await
    }

    async fn write_job(&mut self, job: &JobStatus) -> std::result::Result<(), UploadError> {
        let results = job.results();
        let Some(TaskResult { task_number, stdout, .. }) = results.last() else { return Ok(()) };
        check_length(self.written + self.chunk.len() as u64, stdout.total)?;
        if stdout.bytes.len() as u64 == stdout.total {
            return self.add(&stdout.bytes).await;
        }
        let (id, mut offset) = (&job.job_id, 0);
        while offset < stdout.total {
            let (stream, range) = ((*task_number, OutputStream::Stdout), (offset, CHUNK_BYTES as u64));
            let read = self.queue.call(|mut agq| async move { agq.job_result(id, stream, range).await });
            let Some((_, bytes)) = read.await?.filter(|(_, bytes)| !bytes.is_empty()) else {
                let problem = format!("stdin_of: the output of job {id} ends before its end");
                return Err(ToolError::new(problem, "run the job again").into());
            };
            self.add(&bytes).await?;
            offset += bytes.len() as u64;
        }
        Ok(())
    }

    async fn add(&mut self, mut bytes: &[u8]) -> std::result::Result<(), UploadError> {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            bytes = rest;
            if self.chunk.len() == CHUNK_BYTES {
                self.send().await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self) -> std::result::Result<(), UploadError> {
        self.hasher.update(&self.chunk);
        let chunk = Bytes::copy_from_slice(&self.chunk);
        let (name, offset) = (&self.name, self.written);
        let sent = self.queue.call(|mut agq| {
            let chunk = chunk.clone();
            async move { lost(agq.write_input(name, offset, chunk).await) }
        });
        sent.await?.ok_or(UploadError::Lost)?;
        self.written += self.chunk.len() as u64;
        self.chunk.clear();
        Ok(())
    }

    async fn commit(mut self) -> std::result::Result<Option<BlobHash>, UploadError> {
        if !self.chunk.is_empty() {
            self.send().await?;
        }
        if self.written == 0 {
            return Ok(None);
        }
        let (name, length, hash) = (&self.name, self.written, self.hasher.finish());
        let committed = self
            .queue
            .call(|mut agq| async move { lost(agq.commit_input(name, length, hash).await) })
            .await?;
        committed.map(|()| Some(hash)).ok_or(UploadError::Lost)
    }
}

/// Returns the jobs of `inputs` inputs. Fails if agq has forgotten one of them.
fn all_kept<T>(jobs: Vec<Option<T>>, inputs: usize) -> Result<Vec<T>> {
    let kept: Vec<T> = jobs.into_iter().flatten().collect();
    if kept.len() < inputs {
        let problem = "stdin_of: agq has forgotten an output";
        return Err(ToolError::new(problem, "run the jobs again"));
    }
    Ok(kept)
}

/// Returns `None` if agq does not have the earlier chunks of an upload.
fn lost(done: std::result::Result<(), ClientError>) -> std::result::Result<Option<()>, ClientError> {
    match done {
        Err(ClientError::Rejected(reason)) if ErrorKind::of(&reason) == ErrorKind::UploadOffset => Ok(None),
        done => done.map(Some),
    }
}

/// Checks that an output of `more` bytes may follow `before` bytes.
fn check_length(before: u64, more: u64) -> Result<()> {
    if before.saturating_add(more) <= MAX_BYTES {
        return Ok(());
    }
    let problem = format!("stdin_of: the outputs have more than {MAX_BYTES} bytes");
    Err(ToolError::new(problem, "let the jobs print less, or join a part of the inputs at a time"))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::parse;

    use super::{MAX_BYTES, all_kept, check, check_length};

    #[test]
    fn joined_outputs_may_have_the_limit_and_not_one_byte_more() {
        assert!(check_length(MAX_BYTES - 7, 7).is_ok());
        let refused = check_length(MAX_BYTES - 7, 8).unwrap_err().to_string();
        assert!(refused.starts_with("stdin_of: the outputs have more than 1073741824 bytes"), "{refused}");
        assert!(check_length(1, u64::MAX).is_err());
    }

    #[test]
    fn outputs_are_joined_only_if_agq_has_the_jobs_of_all_inputs() {
        assert_eq!(all_kept(vec![Some(1), Some(2)], 2).unwrap(), [1, 2]);
        for (jobs, inputs) in [(vec![Some(1), None], 2), (vec![Some(1)], 2), (Vec::new(), 1)] {
            let refused = all_kept(jobs, inputs).unwrap_err().to_string();
            assert_eq!(refused, "stdin_of: agq has forgotten an output\nNext: run the jobs again");
        }
    }

    #[test]
    fn only_outputs_of_completed_jobs_are_joined() {
        let refused = |[pending, completed, failed]: [u64; 3]| {
            let total = pending + completed + failed;
            let json = format!(
                r#"{{"action_id":"a","plan_id":"p","total_jobs":{total},"pending":{pending},"running":0,
                "completed":{completed},"failed":{failed},"dead":0,"cancelled":0,"queue":"ready","priority":0,
                "open":false,"created_at":"1970-01-01T00:00:10.000Z","completed_jobs_at":null}}"#
            );
            check(&parse(json.as_bytes()).unwrap()).err().map(|error| error.to_string())
        };
        assert_eq!(refused([0, 2, 0]), None);
        assert!(refused([1, 1, 0]).unwrap().contains("have not ended\nNext: call agx_wait"));
        assert!(refused([0, 1, 2]).unwrap().contains("2 jobs of a have no complete output"));
    }
}
