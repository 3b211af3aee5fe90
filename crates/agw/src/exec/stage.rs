//! Runs one stage: starts its processes from first to last, connects them, waits for all of them,
//! and collects their results.

use std::{future::pending, io, os::unix::fs::FileExt, sync::Arc, time::Duration};

use agenix_protocol::documents::{CapturedOutput, TaskResult};
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use crate::exec::{
    cancel::CancelToken,
    ended::Ended,
    idle::idle,
    launch::Launcher,
    live_output::LiveOutput,
    out_of_memory,
    output_quota::{DiskSpace, QuotaCheck},
    processor_time::{LeaderProcess, ProcessorMeter},
    resource_wait::Unstarted,
    spool::{SpoolFile, kept},
    stages::{Stage, StageCommand, Stdout},
    start::{ExecContext, Out, StartedProcess, TaskInputs, start_with_retry},
    stray_sweep::UnendedProcess,
    subreaper::MAX_ABANDONED_WAIT,
    unstarted_result::{end_unknown, excessive, not_started, of_excess},
};

/// Maximum wait for the last output of a task that has ended, which its relays still have. The
/// output is not lost without `--kill-grace` either.
const RELAY_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the stage, and adds its output files to `inputs`. Ends the processes when `cancel` is
/// cancelled. If a task cannot be started, its result is the last one.
pub(crate) async fn run(
    stage: &Stage,
    context: &ExecContext,
    (inputs, launcher): (&mut TaskInputs, Launcher<'_>),
    (cancel, live_output): (&CancelToken, &LiveOutput),
) -> Vec<TaskResult> {
    let mut running = Vec::with_capacity(stage.commands.len());
    let mut before = None;
    for command in &stage.commands {
        let started = tokio::select! {
            biased;
            started = start_with_retry(command, before.as_ref(), context, (inputs, launcher), cancel) => started,
            // While the start waits, timeouts and quota of running processes still apply.
            finished = finish(&mut running, (context, launcher), (cancel, live_output), WaitFor::Failure) => {
                // The relay of the last task ends only if the pipe has no reader.
                drop(before);
                let excess = finished.excess.clone();
                let mut results =
                    results(stage, running, finished, (context, launcher, live_output), inputs).await;
                // The job fails even if none of its tasks runs.
                if let Some((task_number, text)) = excess && TaskResult::blamed(&results).is_none() {
                    results.push(excessive(command, task_number, &text));
                }
                return results;
            }
        };
        let (started, to_next) = match started {
            Ok(started) => started,
            Err(unstarted) => {
                // The processes use the resources of the job until they have ended.
                let ended = match unstarted {
                    Unstarted::Failed(_) => kill(&mut running).await,
                    Unstarted::Stopped | Unstarted::TimedOut(_) => {
                        end(&mut running, context.kill_grace).await
                    }
                };
                drop(before);
                let finished = Finished { ended, excess: None };
                let mut results =
                    results(stage, running, finished, (context, launcher, live_output), inputs).await;
                // The job fails because of the task that has not started.
                results.iter_mut().for_each(|result| result.ignored = true);
                results.push(not_started(command, &unstarted));
                return results;
            }
        };
        live_output.add(started.written(command));
        running.push(started);
        before = to_next;
    }
    let finished = finish(&mut running, (context, launcher), (cancel, live_output), WaitFor::End).await;
    results(stage, running, finished, (context, launcher, live_output), inputs).await
}

/// Results of the processes of a stage.
struct Finished {
    ended: Vec<io::Result<Ended>>,
    /// Blamed task and the reason, if the job exceeded the quota of its output or the limit of its
    /// processor time.
    excess: Option<(u32, String)>,
}

/// Condition that [`finish`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitFor {
    /// The end of all processes.
    End,
    /// A timeout or an excess, which end all processes.
    Failure,
}

/// Waits for the processes. Ends all processes on a timeout, a cancellation, or an exceeded limit.
async fn finish(
    running: &mut [StartedProcess],
    (context, launcher): (&ExecContext, Launcher<'_>),
    (cancel, live_output): (&CancelToken, &LiveOutput),
    wanted: WaitFor,
) -> Finished {
    let leaders = match launcher.processor {
        Some(_) => running.iter().filter_map(|running| running.process.leader()).collect(),
        None => Vec::new(),
    };
    let waited = async {
        let ended = wait(running, (context.kill_grace, launcher.processor), cancel).await;
        let timed_out = ended.iter().any(|ended| ended.as_ref().is_ok_and(|ended| ended.timed_out));
        if wanted == WaitFor::Failure && !timed_out {
            pending::<()>().await;
        }
        ended
    };
    tokio::select! {
        ended = waited => Finished { ended, excess: None },
        excess = exceeded(context, live_output, launcher.processor.map(|meter| (meter, &*leaders))) => {
            // The grace is zero, because the job writes and computes on during any grace.
            Finished { ended: end(running, Duration::ZERO).await, excess: Some(excess) }
        }
    }
}

async fn results(
    stage: &Stage,
    running: Vec<StartedProcess>,
    Finished { ended, excess }: Finished,
    (context, launcher, live_output): (&ExecContext, Launcher<'_>, &LiveOutput),
    inputs: &mut TaskInputs,
) -> Vec<TaskResult> {
    let mut results = Vec::with_capacity(running.len());
    for ((command, running), ended) in stage.commands.iter().zip(running).zip(ended) {
        let ignored = !stage.pipefail && command.stdout == Stdout::Pipe;
        let result = collect(command, running, ended, (context, launcher), inputs).await;
        results.push(TaskResult { ignored, ..result });
    }
    if let Some((task_number, text)) = excess {
        live_output.cut(context.kept_bytes as u64);
        let at = results.iter().position(|result| result.task_number == task_number).unwrap_or_default();
        if let Some(result) = results.get_mut(at) {
            result.ignored = false;
            // A task that ended with 0 at this moment must still count as failed.
            if result.exit_code == 0 {
                result.exit_code = 1;
            }
            append(&mut result.stderr, &of_excess(task_number, &text), context.kept_bytes);
        }
    }
    results
}

/// Waits until the job exceeds the quota of its output or the limit of its processor time. Returns
/// the task with the most output, and the reason.
async fn exceeded(
    context: &ExecContext,
    live_output: &LiveOutput,
    processor: Option<(&ProcessorMeter, &[LeaderProcess])>,
) -> (u32, String) {
    loop {
        // A disk without readable statistics counts as unlimited.
        let room = context.spool.room().unwrap_or(DiskSpace::UNLIMITED);
        let (used, task_number) = live_output.taken();
        let outputs = [context.quota.check(used, room), context.quota.check_budget(|| live_output.written())];
        let processor = processor.map(|(meter, leaders)| meter.check(leaders));
        let mut shortest = Duration::MAX;
        for check in outputs.into_iter().chain(processor) {
            match check {
                QuotaCheck::Fits(wait) => shortest = shortest.min(wait),
                QuotaCheck::Exceeds(text) => return (task_number, text),
            }
        }
        sleep(shortest).await;
    }
}

/// Ends all processes of the stage at the same time.
async fn end(running: &mut [StartedProcess], grace: Duration) -> Vec<io::Result<Ended>> {
    join_all(running.iter_mut().map(|running| running.end_now(grace))).await
}

/// Kills all processes of the stage at the same time. A killed process that hangs in a system call
/// is left to the subreaper.
async fn kill(running: &mut [StartedProcess]) -> Vec<io::Result<Ended>> {
    let killed = running.iter_mut().map(|running| async move {
        let ended = timeout(MAX_ABANDONED_WAIT, running.end_now(Duration::ZERO)).await;
        ended.unwrap_or_else(|_hangs| Err(io::Error::other("it hangs in a system call after SIGKILL")))
    });
    join_all(killed).await
}

/// Appends a line to the stderr of the last task for each process of the job that still runs.
pub(crate) fn name_unended<'u>(
    results: &mut [TaskResult],
    unended: impl Iterator<Item = &'u UnendedProcess>,
    most: usize,
) {
    if let Some(last) = results.last_mut() {
        for UnendedProcess { name, .. } in unended {
            let line = format!("agw: process {name} of this job could not be ended\n");
            append(&mut last.stderr, &line, most);
        }
    }
}

/// Appends `line` to the kept stderr of a task. Earlier text is cut, so that `line` is complete,
/// and the stream then counts as truncated.
fn append(kept: &mut CapturedOutput, line: &str, most: usize) {
    let (length, is_whole) = (kept.bytes.len(), !kept.is_truncated());
    kept.bytes.truncate(most.saturating_sub(line.len() + 1));
    if is_whole && kept.bytes.len() < length {
        kept.total += line.len() as u64 + 1;
    }
    if kept.bytes.last().is_some_and(|last| *last != b'\n') {
        kept.bytes.push(b'\n');
    }
    kept.bytes.extend(line.as_bytes());
    kept.total = kept.total.max(kept.bytes.len() as u64);
}

/// Waits for all processes. A timeout of one process ends all, because the processes wait for each
/// other.
async fn wait(
    running: &mut [StartedProcess],
    (grace, processor): (Duration, Option<&ProcessorMeter>),
    cancel: &CancelToken,
) -> Vec<io::Result<Ended>> {
    let (late, is_late) = tokio::sync::watch::channel(false);
    let late = &late;
    let outputs: Vec<_> = running.iter().map(|running| Arc::clone(&running.written)).collect();
    let outputs = &outputs;
    let waits = running.iter_mut().map(|running| {
        let mut others_late = is_late.clone();
        async move {
            let idle_timeout = running.idle_timeout;
            let ended = tokio::select! {
                ended = running.wait(grace) => ended,
                _ = others_late.changed() => running.end_now(grace).await,
                () = cancel.cancelled() => running.end_now(grace).await,
                () = idle(outputs, idle_timeout) => {
                    running.idle_timed_out = true;
                    running.end_now(grace).await
                }
            };
            if ended.as_ref().is_ok_and(|ended| ended.timed_out) {
                late.send_replace(true);
            }
            if let (Some(meter), Ok(ended)) = (processor, &ended) {
                meter.add(running.task_number, &ended.resources);
            }
            ended
        }
    });
    join_all(waits).await
}

async fn collect(
    command: &StageCommand,
    running: StartedProcess,
    ended: io::Result<Ended>,
    (context, launcher): (&ExecContext, Launcher<'_>),
    inputs: &mut TaskInputs,
) -> TaskResult {
    let StartedProcess { process, stdout, stderr, masks, record, .. } = running;
    let has_started = process.has_started();
    if let (true, Some(of_job), Some(record)) = (has_started, launcher.record, record) {
        of_job.add(command.task_number, record);
    }
    drop(process);
    let masked = join_all(masks.into_iter().map(|mask| mask.end(RELAY_TIMEOUT))).await;
    let unwritten = masked.into_iter().find_map(Result::err);
    let cap = context.kept_bytes;
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) if has_started => return end_unknown(command, &error),
        Err(error) => return not_started(command, &Unstarted::Failed(error)),
    };
    let kept_stdout = match stdout {
        Out::Pipe(counter) => CapturedOutput::inline(Vec::new(), counter.count(RELAY_TIMEOUT).await),
        Out::File(file) => {
            let is_users = matches!(command.stdout, Stdout::File(_));
            let kept = kept(&file, if is_users { 0 } else { cap }).unwrap_or_else(|error| unreadable(&error));
            // No task reads a file of the user as the output of another one. While the file is open
            // for writing, no task could execute it.
            if !is_users {
                inputs.outputs.insert(command.task_number, file);
            }
            kept
        }
    };
    let kept_stderr = stderr_with(&own_lines(command, &ended, unwritten.as_ref()), stderr.as_deref(), cap);
    TaskResult {
        task_number: command.task_number,
        command: command.program.clone(),
        // A task whose output is incomplete has failed.
        exit_code: if unwritten.is_some() { ended.exit_code().max(1) } else { ended.exit_code() },
        signal: ended.signal(),
        timed_out: ended.timed_out,
        idle_timed_out: ended.idle_timed_out,
        out_of_memory: ended.out_of_memory,
        ignored: false,
        stdout: kept_stdout,
        stderr: kept_stderr,
        duration_ms: ended.duration_ms(),
        resources: ended.resources,
        ..TaskResult::default()
    }
}

/// Returns the lines that agw adds to the stderr of a task, about the end of the task.
fn own_lines(command: &StageCommand, ended: &Ended, unwritten: Option<&io::Error>) -> String {
    let (number, mut lines) = (command.task_number, String::new());
    if ended.out_of_memory {
        lines += &out_of_memory::text(number, ended.resources.peak_memory_bytes);
    }
    if let (true, Some(limit)) = (ended.idle_timed_out, command.idle_timeout) {
        let seconds = limit.as_secs();
        lines +=
            &format!("agw: task {number} was ended: nothing was written for {seconds} s (idle timeout)\n");
    }
    if let Some(error) = unwritten {
        lines += &format!("agw: the output of task {number} cannot be kept: {error}\n");
    }
    lines
}

/// Returns the kept stderr of a task, with `lines` at its end. The file gets the lines as well,
/// because the whole of a long stderr comes from the file.
fn stderr_with(lines: &str, file: Option<&SpoolFile>, most: usize) -> CapturedOutput {
    let (mut stderr, has_lines) = match file {
        Some(file) => {
            let is_added = add_lines(file, lines).is_ok();
            let stderr = kept(file, most).unwrap_or_else(|error| unreadable(&error));
            let has_lines = is_added && !stderr.is_truncated();
            (stderr, has_lines)
        }
        None => (CapturedOutput::default(), false),
    };
    if !has_lines && !lines.is_empty() {
        append(&mut stderr, lines, most);
    }
    stderr
}

/// Writes `lines` at the end of a file, after a line feed if the last line of the file has none.
fn add_lines(file: &SpoolFile, lines: &str) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let (mut end, mut last) = (file.metadata()?.len(), [b'\n']);
    if end > 0 {
        file.read_exact_at(&mut last, end - 1)?;
    }
    if last != [b'\n'] {
        file.write_all_at(b"\n", end)?;
        end += 1;
    }
    file.write_all_at(lines.as_bytes(), end)
}

fn unreadable(error: &io::Error) -> CapturedOutput {
    CapturedOutput::inline(format!("agw: the output cannot be read: {error}").into_bytes(), 0)
}

#[cfg(test)]
mod tests;
