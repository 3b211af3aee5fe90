//! `agx run`: runs one command as a job, with live output, and ends with the command's exit code.

use std::{cell::Cell, collections::BTreeMap, time::Duration};

use agenix_client::{ClientError, Connection, Server};
use agenix_protocol::{
    documents::{ActionSubmission, JobStatus, Plan, Requires, Status, Task},
    errors::ErrorKind,
    ids::{ActionId, JobId, QueueName},
};
use agenix_shell::{Braces, Meaning, Placeholders, Programs, argv, compile, render};
use clap::Args;
use serde_json::{json, value::RawValue};
use tokio::time::{sleep, timeout};

use super::{
    command_plan::{
        NO_TIMEOUT_SECS, cwd, identified, ignore_queue, permitted_programs, server_for_jobs, set_cwd,
    },
    labels::{Label, labels, parse_label},
    new_id,
    programs::{check_programs, check_sandbox, check_workers, required_tags},
    quantity_args::{QuantityArgs, check_own_worker, note_workers},
    raw_arg::RawArg,
    refused,
    run_end::{UNKNOWN, ended},
};
use crate::{
    background::embedded::EmbeddedCluster,
    connection_args::ConnectionArgs,
    error::{CliError, Result},
    logs::{self, LogOptions, WAIT_NOTED_AFTER},
    output::OutputFormat,
    remote::{command_input::CommandInput, retrying_client::RetryingClient},
    sandbox::SandboxArgs,
    util::{
        duration::parse_secs,
        signals::{self, stop_requested},
        text::any_bytes,
    },
};

/// Placeholder for stdin in the plan.
const STDIN: &str = "{{input.stdin}}";
/// Number of ended jobs that an agq of this command keeps.
const KEPT_JOBS: u64 = 8;
/// Pause before a job is cancelled again that agq did not know yet.
const CANCEL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time for the request to cancel a job whose output cannot be printed.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Exit code if there is no such program, as of a shell.
const NOT_FOUND: u8 = 127;
/// Exit code after Ctrl-C, as of a shell.
const INTERRUPTED: u8 = 130;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    /// Pipeline in quotes, as 'sort big.txt | uniq -c', or a program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_parser = any_bytes())]
    words: Vec<String>,
    /// Queue of the job on a cluster [default: ready]
    #[arg(long, visible_alias = "queue", value_name = "QUEUE")]
    on: Option<QueueName>,
    /// Run only on a worker with this tag; can be repeated
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Time limit of the command: seconds, or a number with s, m, h or d [default: none]
    #[arg(long, value_name = "TIME", value_parser = parse_secs)]
    timeout: Option<u64>,
    /// End the command when it has written nothing for TIME [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_secs)]
    idle_timeout: Option<u64>,
    /// Label of the action; can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    label: Vec<Label>,
    /// Number of retries of a failed job
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    retries: u32,
    /// Fail a pipeline if any of its commands fails; otherwise only the last command counts, as in
    /// a shell
    #[arg(long)]
    pipefail: bool,
    /// Working directory of the command [default: the current directory if agq is private to this
    /// command or reached by a Unix socket, as with `agx up`; otherwise the worker's directory]
    #[arg(long, value_name = "DIR", value_parser = any_bytes())]
    cwd: Option<String>,
    /// Start agq and a worker for this command, even if a profile is in use
    #[arg(long)]
    local: bool,
    #[command(flatten)]
    sandbox: SandboxArgs,
    #[command(flatten)]
    raw: RawArg,
    /// -100 to 100: jobs with a higher priority run first, on a cluster
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    #[command(flatten)]
    quantities: QuantityArgs,
}

const AFTER_HELP: &str = "Examples:\n  agx run -- make -j8\n  agx run --on gpu --timeout 2h -- train --epochs 10\n  \
agx run 'zcat big.gz | sort | uniq -c'\n  agx run -- sort -u < words.txt\n\n\
Stdout and stderr appear while the command runs. It gets stdin, which agx reads to its end before; a terminal is left alone. Ctrl-C cancels the job; a second Ctrl-C stops waiting for its end.\n\
Without --agq, AGQ_ADDR, AGQ_URL or a profile, agx starts an agq and a worker for this command, and stops them at its end.\n\
No shell runs the pipeline: variables, globs, $(…) and && are refused, with an alternative.\n\n\
Exit codes: that of the command; 128+N if signal N ended it, 124 if it exceeded --timeout, 127 if there is no such program, \
125 if agx itself failed, 2 wrong usage, 130 Ctrl-C";

/// Runs the command. Errors of agx itself get their own exit code, because the other exit codes are
/// those of the command.
pub(crate) async fn run(server: &ConnectionArgs, args: RunArgs, output: OutputFormat) -> Result<()> {
    let output = args.raw.apply(output);
    run_job(server, args, output).await.map_err(|failure| failure.of_run(UNKNOWN))
}

async fn run_job(server: &ConnectionArgs, mut args: RunArgs, output: OutputFormat) -> Result<()> {
    let names_workers = args.on.is_some() || !args.tag.is_empty();
    let given = server_for_jobs(server, args.local, names_workers, output);
    let programs = permitted_programs(&given);
    let given = given?;
    if given.is_some() {
        args.sandbox.check_for_server()?;
    }
    if given.is_none() {
        ignore_queue(&mut args.on, "--on", output);
        check_own_tags(&args.tag)?;
    }
    let mut tasks = tasks(&args, programs)?;
    let cwd = cwd(args.cwd.as_ref(), given.as_ref(), args.sandbox.profile.name().is_some())?;
    set_cwd(&mut tasks, cwd.as_deref());
    let mut signal = signals::listen();
    let stdin = tokio::select! {
        stdin = stdin(&mut tasks, output) => stdin?,
        () = signal.arrived() => return Err(CliError::Command { exit_code: INTERRUPTED, why: None }),
    };
    let plan = plan(tasks, &args)?;
    let (mut local, is_local) = (None, given.is_none());
    let server = match given {
        Some(server) => {
            check_workers(&server, &plan).await.map_err(not_found)?;
            note_workers(&server, &plan, output).await?;
            server
        }
        None => {
            check_programs(&plan, cwd.as_deref()).map_err(not_found)?;
            let sandbox = args.sandbox.worker_options(cwd.as_deref())?;
            let local = local.insert(EmbeddedCluster::start(Some(1), KEPT_JOBS, sandbox.as_deref())?);
            tokio::select! {
                checked = check_own_worker(local, &plan) => checked?,
                () = signal.arrived() => return Err(CliError::Command { exit_code: INTERRUPTED, why: None }),
            }
            local.server()?
        }
    };
    let action_id = new_id()?;
    let is_sent = Cell::new(false);
    let followed = submit_and_follow(&server, (plan, stdin), (&action_id, &is_sent), &args, output);
    tokio::pin!(followed);
    let exited = async {
        match &mut local {
            Some(local) => local.until_exit().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(exited);
    tokio::select! {
        job = &mut followed => return ended(&job?, output),
        failure = &mut exited => return Err(failure),
        () = signal.arrived() => {}
    }
    if !is_sent.get() {
        return Err(CliError::Command { exit_code: INTERRUPTED, why: None });
    }
    // The job gives its last output when it has ended.
    tokio::select! {
        job = followed => after_cancel(&job?, output),
        failure = cancel(&server, &action_id, output) => Err(failure),
        failure = exited => Err(failure),
        () = stop_requested() => Err(left(is_local, action_id.clone())),
    }
}

/// Refuses tags, because a worker that agx starts has none, and the job would wait forever.
fn check_own_tags(tags: &[String]) -> Result<()> {
    let Some(tag) = tags.first() else { return Ok(()) };
    Err(CliError::usage(
        format!("the worker that agx starts has no tags, and --tag {tag} asks for one"),
        "leave --tag out, or name an agq whose workers have this tag with --agq or --profile",
    ))
}

/// Returns the error of a program that does not exist. Other errors stay as they are.
fn not_found(failure: CliError) -> CliError {
    match failure {
        CliError::Usage { .. } => failure.of_run(NOT_FOUND),
        failure => failure,
    }
}

/// Returns the error of a second signal. The job of a private agq ends with that agq.
fn left(is_local: bool, action_id: ActionId) -> CliError {
    if is_local {
        CliError::Command { exit_code: INTERRUPTED, why: None }
    } else {
        CliError::Detached(action_id)
    }
}

/// Returns the error of a job that ended after its cancellation was wanted. The job may have ended
/// with its command, if the request came too late.
fn after_cancel(job: &JobStatus, output: OutputFormat) -> Result<()> {
    if job.status != Status::Cancelled {
        return ended(job, output);
    }
    let why = Some(format!("job {} was cancelled", job.job_id));
    Err(CliError::Command { exit_code: INTERRUPTED, why })
}

/// Cancels the job, also if agq is away or has not read the submission yet. Returns only if agq
/// refuses.
async fn cancel(server: &Server, action_id: &ActionId, output: OutputFormat) -> CliError {
    let mut agq = RetryingClient::unconnected(server.clone(), output);
    loop {
        match agq.cancel_action(action_id).await {
            Ok(_) => std::future::pending().await,
            Err(ClientError::Rejected(reason)) if ErrorKind::of(&reason) == ErrorKind::ActionNotFound => {
                sleep(CANCEL_INTERVAL).await;
            }
            Err(error) => return error.into(),
        }
    }
}

fn tasks(args: &RunArgs, programs: Programs) -> Result<Vec<Task>> {
    let meaning = |_: &Braces<'_>| Meaning::Text;
    let placeholders = Placeholders { only: None, meaning: &meaning };
    let tasks = match args.words.as_slice() {
        [text] => compile(text, placeholders, programs),
        words => argv(words, placeholders, programs).map(|task| vec![task]),
    };
    let mut tasks: Vec<Task> = tasks.map_err(|refusal| refused(&refusal))?;
    check_sandbox(&tasks, &args.sandbox.profile)?;
    for task in &mut tasks {
        task.timeout_secs = Some(args.timeout.unwrap_or(NO_TIMEOUT_SECS));
        task.idle_timeout_secs = args.idle_timeout;
    }
    Ok(tasks)
}

/// Reads stdin for the first task, unless a file is its stdin.
async fn stdin(tasks: &mut [Task], output: OutputFormat) -> Result<CommandInput> {
    let Some(first) = tasks.first_mut().filter(|first| first.stdin_file.is_none()) else {
        return Ok(CommandInput::Empty);
    };
    let stdin = CommandInput::read(output).await?;
    match stdin {
        CommandInput::Empty => {}
        CommandInput::Text(_) => first.stdin = Some(STDIN.into()),
        CommandInput::File(_) => first.stdin_blob = Some(STDIN.into()),
    }
    Ok(stdin)
}

fn plan(tasks: Vec<Task>, args: &RunArgs) -> Result<Plan> {
    let tags = [required_tags(&tasks), args.tag.clone()].concat();
    let plan = Plan {
        plan_id: None,
        plan_description: Some(render(&tasks)),
        tasks,
        max_retries: args.retries,
        timeout_secs: Some(0),
        pipefail: args.pipefail,
        requires: Requires {
            tags,
            resources: args.quantities.of_single_use(args.retries)?,
            ..Requires::default()
        },
        sandbox: None,
        inputs: BTreeMap::new(),
        max_running: None,
        rate: None,
        retry_memory_factor: args.quantities.retry_memory_factor(),
    };
    identified(args.sandbox.profile.apply(plan), "run")
}

/// Submits the job, and prints its output until it has ended. Cancels a job that asks for a later
/// attempt and has no retries left, so that agx ends with the exit code of its command, and one
/// whose output cannot be printed. `is_sent` becomes true when agq may have the job.
async fn submit_and_follow(
    server: &Server,
    (plan, stdin): (Plan, CommandInput),
    (action_id, is_sent): (&ActionId, &Cell<bool>),
    args: &RunArgs,
    output: OutputFormat,
) -> Result<JobStatus> {
    // A pager may suspend agx for an unlimited time, so replies have no timeout.
    let connection = Connection::open_without_timeout(server).await?;
    let mut agq = RetryingClient::new(server.clone(), connection, output);
    agq.ensure_plan(&plan).await?;
    let inputs = match stdin {
        CommandInput::Empty => json!({}),
        CommandInput::Text(text) => json!({ "stdin": text }),
        CommandInput::File(file) => json!({ "stdin": file.upload(&mut agq, action_id).await? }),
    };
    let plan_id =
        plan.plan_id.ok_or_else(|| CliError::usage("the plan has no id", "this is a bug in agx"))?;
    let action = ActionSubmission {
        action_id: Some(action_id.clone()),
        queue: args.on.clone(),
        priority: args.priority,
        labels: labels(args.label.clone())?,
        ..ActionSubmission::new(plan_id, vec![raw(&inputs)])
    };
    is_sent.set(true);
    agq.submit(&action).await?;
    let followed = follow(&mut agq, action_id, args, output).await;
    if followed.as_ref().is_err_and(|failure| !failure.is_outage()) {
        // Nobody would see the further output, and nobody would end the job.
        let _may_be_gone = timeout(CANCEL_TIMEOUT, agq.cancel_action(action_id)).await;
    }
    followed
}

/// Prints the output of the only job of the action until the job has ended.
async fn follow(
    agq: &mut RetryingClient,
    action_id: &ActionId,
    args: &RunArgs,
    output: OutputFormat,
) -> Result<JobStatus> {
    let wanted = LogOptions {
        follow: true,
        wait_noted_after: WAIT_NOTED_AFTER,
        max_attempts: Some(args.retries + 1),
        ..LogOptions::default()
    };
    let job = only_job(agq, action_id).await?;
    let job = logs::of_job(agq, job, &wanted, output).await?;
    if job.status.is_ended() {
        return Ok(job);
    }
    // The follower has cancelled the action. Another attempt may have begun before the request.
    let cancelled = only_job(agq, action_id).await?;
    let is_same = cancelled.attempt == job.attempt && cancelled.exit_code.is_some();
    Ok(if is_same { cancelled } else { job })
}

fn raw(input: &serde_json::Value) -> Box<RawValue> {
    RawValue::from_string(input.to_string()).expect("serde_json writes valid JSON")
}

/// Returns the only job of the action.
async fn only_job(agq: &mut RetryingClient, action_id: &ActionId) -> Result<JobStatus> {
    let ids: Vec<JobId> = agq.with_retry(async |agq| agq.jobs_from(action_id, 0, 1).await).await?;
    let job = agq.jobs(&ids).await?.pop().flatten();
    job.ok_or_else(|| CliError::not_found("job of action", action_id, "it was removed in the meantime"))
}
