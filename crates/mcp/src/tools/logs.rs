//! `agx_logs`: a part of an output, also of a job that runs.

use agenix_protocol::{blob::OutputStream, ids::JobId};

use crate::{
    arguments::{LogsArguments, MAX_RESULT_BYTES, StreamName},
    error::{Result, ToolError},
    program_text::escape_within,
    queue::Queue,
    reports::LogReport,
};

pub(crate) async fn run(queue: &Queue, arguments: LogsArguments) -> Result<LogReport> {
    let budget = arguments.max_bytes.clamp(1, MAX_RESULT_BYTES);
    part(queue, arguments, budget).await
}

/// Returns at most `max_bytes` bytes of an output, of which the text takes at most `budget` bytes
/// of JSON.
pub(crate) async fn part(queue: &Queue, arguments: LogsArguments, budget: usize) -> Result<LogReport> {
    let LogsArguments { job_id, task_number, stream, from, max_bytes } = arguments;
    let task_number = match task_number {
        Some(task_number) => task_number,
        None => last_task(queue, &job_id).await?,
    };
    let (stream, name) = match stream {
        StreamName::Stdout => (OutputStream::Stdout, "stdout"),
        StreamName::Stderr => (OutputStream::Stderr, "stderr"),
    };
    let (id, range) = (&job_id, (from, max_bytes.clamp(1, MAX_RESULT_BYTES) as u64));
    let read =
        queue.call(|mut agq| async move { agq.job_result(id, (task_number, stream), range).await }).await?;
    let (total_bytes, bytes) = read.ok_or_else(|| {
        let problem = format!("task {task_number} of job {job_id} has no {name} to read");
        ToolError::new(
            problem,
            "the task may not have started, or its output goes to the next task: read another task",
        )
    })?;
    let text = escape_within(&bytes, budget);
    let end = from + text.consumed as u64;
    Ok(LogReport {
        job_id: job_id.to_string(),
        task_number,
        stream: name.to_owned(),
        from,
        text: text.text,
        total_bytes,
        next_from: (end < total_bytes && text.consumed > 0).then_some(end),
    })
}

/// Returns the number of the last task of the plan of a job.
async fn last_task(queue: &Queue, job_id: &JobId) -> Result<u32> {
    let job = queue.call(|mut agq| async move { agq.job(job_id).await }).await?;
    let job = job.ok_or_else(|| ToolError::no_job(job_id.as_str()))?;
    let plan_id = &job.plan_id;
    let plan = queue.call(|mut agq| async move { agq.plan(plan_id).await }).await?;
    Ok(plan.map_or(1, |plan| u32::try_from(plan.tasks.len()).unwrap_or(1)))
}
