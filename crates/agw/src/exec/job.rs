//! Runs one job: its stages one after the other, until a stage fails.

use std::{
    collections::BTreeSet,
    future::ready,
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use agenix_order::OrderLimits;
use agenix_protocol::{
    blob::BlobHash,
    byte_escape::encode_os,
    documents::{JobDocument, JobUpdate, MemoryLimit, Plan, TaskResult},
    template::Values,
};
use agenix_sandbox::profile::Profile;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use crate::exec::{
    admission::{AdmittedJob, JobAdmission, Unadmitted, WorkerPrograms},
    cancel::CancelToken,
    job_mark::JobMark,
    job_report::{finished, reason},
    job_resources::{JobResources, TaskResources},
    launch::Launcher,
    live_output::LiveOutput,
    memory_bound::MemoryBound,
    open_file_limit,
    output_quota::Quota,
    processor_time::{LimitSource, ProcessorLimit, ProcessorMeter},
    programs::OfferedPrograms,
    provenance::JobRecord,
    resource_wait::{RESOURCE_TIMEOUT, Unstarted, retry_on_shortage},
    result_size::make_room,
    sandbox::{job::JobSandbox, sandboxes::Sandboxes},
    secrets::{JobSecrets, Patterns},
    spool::SpoolFile,
    stage,
    stages::{self, JobProgress, Stage, TRACE_VARIABLE},
    start::{ExecContext, TaskInputs},
    stray_sweep,
};

/// Reason for the end of a job that was stopped.
const STOPPED: &str = "the job was stopped";
/// Open files of a supervisor: its connection, and one more while it starts or ends.
const FILES_OF_SANDBOX: u32 = 2;
/// Open files of the control group of a job: its events, and its entrance during a start.
const FILES_OF_CONTROL_GROUP: u32 = 2;

/// Runs the job in slot `slot`, from 1, and returns the report of its end. After `cancel` was
/// cancelled, the caller ignores the report. `fetch` returns a blob that the input names, or the
/// reason for which the job fails. `progress` is called before each stage, and `live_output`
/// receives the output files of each started task. When the function returns, the processes of the
/// job have ended, also those that have left their process group.
pub(crate) async fn run<'f>(
    (job, slot): (&JobDocument, u32),
    context: &ExecContext,
    (cancel, live_output): (&CancelToken, &LiveOutput),
    fetch: impl Fn(BlobHash) -> BoxFuture<'f, Result<Arc<SpoolFile>, String>>,
    progress: impl Fn(JobProgress),
) -> JobUpdate {
    let read = match read(job, slot, context) {
        Ok(read) => read,
        Err(unadmitted) => {
            let (reason, results) = not_admitted(unadmitted);
            return finished(job, reason, results);
        }
    };
    let mark = JobMark::new();
    let run = mark.run();
    let lowered = lowered(context, read.limits);
    let context = lowered.as_ref().unwrap_or(context);
    let (reason, mut results) = match read.limits.wall_secs {
        None => run_stages((job, &read), context, (cancel, live_output), (fetch, progress), &mark).await,
        Some(secs) => {
            let of_attempt = CancelToken::default();
            let running =
                run_stages((job, &read), context, (&of_attempt, live_output), (fetch, progress), &mark);
            ended_after(secs, running, cancel, &of_attempt).await
        }
    };
    // From here on, processes with the mark are stray processes.
    drop(mark);
    let unended = stray_sweep::end().await;
    let unended = unended.iter().filter(|process| process.run.is_none_or(|its| its == run));
    stage::name_unended(&mut results, unended, context.kept_bytes);
    let Some(admission) = read.admission.get() else {
        // No policy and no order let the job run, and no task ran.
        return finished(job, reason, results);
    };
    admission.mark(&mut results);
    if let Some(record) = &read.record {
        make_room(&mut results);
        let large = live_output.larger_than(context.kept_bytes as u64, &results);
        record.sign(job, context.admission.worker_id(), large, &mut results).await;
    }
    finished(job, reason, results)
}

/// Waits for an attempt, and cancels `of_attempt` after `secs` seconds or with `cancel`. The
/// results so far are those of the attempt.
async fn ended_after(
    secs: u64,
    attempt: impl Future<Output = (Option<String>, Vec<TaskResult>)>,
    cancel: &CancelToken,
    of_attempt: &CancelToken,
) -> (Option<String>, Vec<TaskResult>) {
    let mut attempt = pin!(attempt);
    let is_late = tokio::select! {
        ended = &mut attempt => return ended,
        () = cancel.cancelled() => false,
        () = sleep(Duration::from_secs(secs)) => true,
    };
    of_attempt.cancel();
    let (reason, results) = attempt.await;
    let late = || format!("the attempt took longer than limits.wall_secs = {secs} of its order");
    (if is_late { Some(late()) } else { reason }, results)
}

/// Returns the context with the lower limits of an order, if it has some.
fn lowered(context: &ExecContext, limits: OrderLimits) -> Option<ExecContext> {
    let OrderLimits { output_bytes, cpu_secs, .. } = limits;
    if output_bytes.is_none() && cpu_secs.is_none() {
        return None;
    }
    let of_job = output_bytes.unwrap_or(u64::MAX).min(context.quota.of_job);
    let limit = |secs| ProcessorLimit { time: Duration::from_secs(secs), source: LimitSource::Order };
    let processor_limit = ProcessorLimit::lower(context.processor_limit, cpu_secs.map(limit));
    Some(ExecContext { quota: Quota { of_job, ..context.quota }, processor_limit, ..context.clone() })
}

/// Stages of a job, and the sandbox in which they run.
struct ReadJob<'c> {
    stages: Vec<Stage>,
    sandbox: Option<WantedSandbox<'c>>,
    /// Secrets of the job. `None` for a job without secrets, whose output goes directly to files.
    patterns: Option<Arc<Patterns>>,
    /// Limits of the signed order of the job.
    limits: OrderLimits,
    /// Record for the provenance, if this worker signs it.
    record: Option<JobRecord>,
    /// Policy and order of the attempt. Set once no check can refuse the attempt.
    admission: OnceLock<JobAdmission>,
}

/// Sandbox that a job has to run in.
struct WantedSandbox<'c> {
    sandboxes: &'c Sandboxes,
    profile: &'c Profile,
    /// Programs that the job may execute.
    programs: Vec<String>,
}

/// Runs the stages. Returns the reason of a failure, and the results so far.
async fn run_stages<'f>(
    (job, read): (&JobDocument, &ReadJob<'_>),
    context: &ExecContext,
    (cancel, live_output): (&CancelToken, &LiveOutput),
    (fetch, progress): (
        impl Fn(BlobHash) -> BoxFuture<'f, Result<Arc<SpoolFile>, String>>,
        impl Fn(JobProgress),
    ),
    mark: &JobMark,
) -> (Option<String>, Vec<TaskResult>) {
    let ReadJob { stages, sandbox: wanted, patterns, admission, record, .. } = read;
    let needed = open_files(read, context);
    // A job that waits for open files counts as waiting, too: otherwise a lasting shortage of the
    // jobs that have them would not be noticed.
    let waits = context.shortage.wait();
    let _files = tokio::select! {
        // Acquiring cannot fail, because nothing closes the semaphore.
        files = context.files.acquire_many(needed) => files,
        () = cancel.cancelled() => return stopped(Vec::new()),
    };
    drop(waits);
    let mut inputs = match fetch_blobs(stages, fetch, cancel).await {
        Ok(inputs) => inputs,
        Err(reason) => return (Some(reason), Vec::new()),
    };
    let mut sandbox = match begin(wanted.as_ref(), context, cancel).await {
        Ok(sandbox) => sandbox,
        Err(reason) => return (Some(reason), Vec::new()),
    };
    let (memory, memory_limit) = match bound_memory(context, sandbox.as_mut(), cancel).await {
        Ok(bound) => bound,
        Err(reason) => return (Some(reason), Vec::new()),
    };
    let resources = context.resources.as_ref();
    let resources = resources.map(|resources| {
        let JobResources { environment, withheld, .. } = &**resources;
        TaskResources { environment, withheld, memory: memory.as_ref() }
    });
    let (patterns, record) = (patterns.as_ref(), record.as_ref());
    let supervisor = sandbox.as_ref().and_then(JobSandbox::supervisor);
    let meter = context.processor_limit.map(|limit| ProcessorMeter::new(limit, mark.run(), supervisor));
    let processor = match &meter {
        Some(Err(reason)) => return (Some((*reason).into()), Vec::new()),
        Some(Ok(meter)) => Some(meter),
        None => None,
    };
    let launcher = Launcher { mark, sandbox: sandbox.as_ref(), patterns, processor, record, resources };
    let prepared = wanted.as_ref().map(|wanted| wanted.profile);
    match start((job, prepared), context, cancel).await {
        // No check refuses the attempt from here on.
        Ok(started) => drop(admission.set(started)),
        Err(unadmitted) => {
            if let Some(sandbox) = sandbox {
                // No task ran in the sandbox, so no result has a report of the sandbox.
                sandbox.end(&mut []).await;
            }
            return not_admitted(unadmitted);
        }
    }
    let (reason, mut results) =
        run_each(stages, context, (&mut inputs, launcher), (cancel, live_output), progress).await;
    if let Some(meter) = processor {
        meter.add_unreported(&mut results);
    }
    results.iter_mut().for_each(|result| result.memory_limit = memory_limit);
    if let Some(sandbox) = sandbox {
        sandbox.end(&mut results).await;
    }
    (reason, results)
}

/// Returns the maximum number of files that the job has open in the worker.
fn open_files(read: &ReadJob<'_>, context: &ExecContext) -> u32 {
    let of_sandbox = if read.sandbox.is_some() { FILES_OF_SANDBOX } else { 0 };
    let of_masks = if read.patterns.is_some() { stages::open_files_of_masks(&read.stages) } else { 0 };
    let is_bounded = context.resources.as_ref().is_some_and(|resources| resources.memory.is_some());
    let of_memory = if is_bounded { FILES_OF_CONTROL_GROUP } else { 0 };
    let others = of_sandbox.saturating_add(of_masks).saturating_add(of_memory);
    stages::open_files(&read.stages).saturating_add(others)
}

/// Fetches the blobs that the stages read. The error is the reason why the job fails.
async fn fetch_blobs<'f>(
    stages: &[Stage],
    fetch: impl Fn(BlobHash) -> BoxFuture<'f, Result<Arc<SpoolFile>, String>>,
    cancel: &CancelToken,
) -> Result<TaskInputs, String> {
    let mut inputs = TaskInputs::default();
    for hash in stages::input_blobs(stages) {
        let file = tokio::select! {
            fetched = fetch(hash) => fetched?,
            () = cancel.cancelled() => return Err(STOPPED.into()),
        };
        inputs.blobs.insert(hash, file);
    }
    Ok(inputs)
}

/// Bounds the memory of the job, if it wants a quantity of memory. Returns the bound of a job
/// without a sandbox, and the text about any bound in the report. Waits out a shortage of
/// resources.
async fn bound_memory(
    context: &ExecContext,
    mut sandbox: Option<&mut JobSandbox>,
    cancel: &CancelToken,
) -> Result<(Option<Arc<MemoryBound>>, Option<MemoryLimit>), String> {
    let bytes = context.resources.as_ref().and_then(|resources| resources.memory);
    let Some(bytes) = bytes else { return Ok((None, None)) };
    let bound = || {
        ready(match &mut sandbox {
            Some(sandbox) => sandbox.bound_memory(bytes).map(|report| (None, Some(report))),
            None => context.memory_bounds.begin(bytes).map(|bound| {
                let report = bound.report();
                (Some(Arc::new(bound)), Some(report))
            }),
        })
    };
    let bound = retry_on_shortage(bound, RESOURCE_TIMEOUT, &context.shortage, cancel).await;
    bound.map_err(|unstarted| why(unstarted, "the memory of the job could not be bounded"))
}

/// Returns the reason why a job fails before its first task.
fn why(unstarted: Unstarted, failed: &str) -> String {
    match unstarted {
        Unstarted::Stopped => STOPPED.into(),
        Unstarted::Failed(error) | Unstarted::TimedOut(error) => format!("{failed}: {error}"),
    }
}

/// Begins the job in its sandbox, if it has one. Waits out a shortage of resources. The error is
/// the reason why the job fails: a job never runs without its sandbox.
async fn begin(
    wanted: Option<&WantedSandbox<'_>>,
    context: &ExecContext,
    cancel: &CancelToken,
) -> Result<Option<JobSandbox>, String> {
    let Some(WantedSandbox { sandboxes, profile, programs }) = wanted else { return Ok(None) };
    let hold = context.resources.as_ref().and_then(|resources| resources.hold.clone());
    let begin = || sandboxes.begin(profile, programs.clone(), hold.clone());
    let begun = retry_on_shortage(begin, RESOURCE_TIMEOUT, &context.shortage, cancel).await;
    let failed = || format!("the sandbox '{}' could not be set up", profile.name);
    begun.map(Some).map_err(|unstarted| why(unstarted, &failed()))
}

/// Decides again about the job, and waits while the use of its order cannot be recorded.
async fn start(
    (job, prepared): (&JobDocument, Option<&Profile>),
    context: &ExecContext,
    cancel: &CancelToken,
) -> Result<JobAdmission, Unadmitted> {
    let start = || ready(context.admission.start(job, worker_programs(context), prepared));
    let started = retry_on_shortage(start, RESOURCE_TIMEOUT, &context.shortage, cancel).await;
    started.unwrap_or_else(|unstarted| Err(why(unstarted, "the use of the order cannot be recorded").into()))
}

/// Runs the stages one after the other, until one fails.
async fn run_each(
    stages: &[Stage],
    context: &ExecContext,
    (inputs, launcher): (&mut TaskInputs, Launcher<'_>),
    (cancel, live_output): (&CancelToken, &LiveOutput),
    progress: impl Fn(JobProgress),
) -> (Option<String>, Vec<TaskResult>) {
    let mut results = Vec::new();
    for (at, stage) in stages.iter().enumerate() {
        if cancel.is_cancelled() {
            return stopped(results);
        }
        if let Some(now) = JobProgress::at(stages, at) {
            progress(now);
        }
        results.extend(stage::run(stage, context, (&mut *inputs, launcher), (cancel, live_output)).await);
        if let Some(failed) = TaskResult::blamed(&results) {
            return (Some(reason(failed)), results);
        }
    }
    (None, results)
}

fn read<'c>(job: &JobDocument, slot: u32, context: &'c ExecContext) -> Result<ReadJob<'c>, Unadmitted> {
    if let Some(reason) = context.resources.as_ref().and_then(|resources| resources.missing.clone()) {
        return Err(Unadmitted::Failed(reason));
    }
    let AdmittedJob { plan, admission, profile } =
        context.admission.admit_job(job, worker_programs(context))?;
    let values = Values { input: &job.inputs, slot: &slot.to_string() };
    let mut secrets = JobSecrets::new(context.secrets.as_deref());
    let stages = stages::stages(&plan, values, |name, tool| secrets.get(name, tool));
    let mut stages = stages.map_err(|error| error.to_string())?;
    if let Some(trace) = &job.traceparent {
        let is_permitted = |profile: &Profile| profile.env.iter().any(|name| name == TRACE_VARIABLE);
        if profile.is_none_or(is_permitted) {
            stages::set_trace_variable(&mut stages, trace);
        }
    }
    let sandbox = context.sandboxes.as_ref().zip(profile).map(|(sandboxes, profile)| {
        let programs = programs(&plan, &stages, &context.programs);
        WantedSandbox { sandboxes, profile, programs }
    });
    let (patterns, limits) = (secrets.patterns(), admission.rights().limits());
    let record = context.provenance.as_ref();
    let record =
        record.map(|provenance| JobRecord::new(Arc::clone(provenance), plan.tasks.len(), patterns.clone()));
    let read = ReadJob { stages, sandbox, patterns, limits, record, admission: OnceLock::new() };
    let never_fits = open_file_limit::never_fits(open_files(&read, context), context.most_files);
    never_fits.map_or(Ok(read), |reason| Err(Unadmitted::Failed(reason)))
}

fn worker_programs(context: &ExecContext) -> WorkerPrograms<'_> {
    let ExecContext { programs, plans, sandboxes, .. } = context;
    WorkerPrograms { programs, plans, sandboxes: sandboxes.as_deref() }
}

/// Returns the paths of the programs that the plan names, sorted, as byte escapes. A missing
/// program fails its task.
fn programs(plan: &Plan, stages: &[Stage], offered: &OfferedPrograms) -> Vec<String> {
    let commands = stages.iter().flat_map(|stage| &stage.commands);
    let of_commands = commands.filter_map(|command| offered.absolute(command).ok());
    let tools = plan.requires.tools.iter().filter_map(|tool| offered.path(tool));
    let paths: BTreeSet<String> = of_commands
        .map(|path| encode_os(path.as_os_str()))
        .chain(tools.map(|path| encode_os(path.as_os_str())))
        .collect();
    paths.into_iter().collect()
}

fn not_admitted(unadmitted: Unadmitted) -> (Option<String>, Vec<TaskResult>) {
    match unadmitted {
        Unadmitted::Failed(reason) => (Some(reason), Vec::new()),
        Unadmitted::Refused(refusal) => {
            let (reason, results) = refusal.into_results();
            (Some(reason), results)
        }
    }
}

fn stopped(results: Vec<TaskResult>) -> (Option<String>, Vec<TaskResult>) {
    (Some(STOPPED.into()), results)
}

#[cfg(test)]
mod tests;
