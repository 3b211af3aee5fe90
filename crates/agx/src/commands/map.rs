//! `agx map`

use std::collections::BTreeMap;

use agenix_client::Server;
use agenix_protocol::{
    documents::{ActionSubmission, Plan, Requires},
    ids::{ActionId, WorkerId},
};
use tokio::sync::watch;

use super::{
    command_plan::{cwd, identified, ignore_queue, permitted_programs, server_for_jobs, set_cwd},
    labels::labels,
    map_args::MapArgs,
    map_joblog,
    map_pipeline::{Pipeline, read},
    map_placement::able_workers,
    map_verdict::{end_interrupted, verdict},
    new_id,
    programs::{check_programs, check_sandbox, check_workers, required_tags},
    quantity_args::{check_own_worker, note_workers},
};
use crate::{
    background::embedded::EmbeddedCluster,
    connection_args::ConnectionArgs,
    documents::MapCommand,
    error::{CliError, Result},
    map::{
        self, Columns, CommandTemplate, Delivery, Engine, JobLog, MapOutcome, OptionCheck, Printer,
        ReadAhead, Resumed, Sources, StopLevel, SubmissionPace, blocks, end, is_decided_by_agq, needs_total,
        split,
    },
    output::{OutputFormat, counted},
    util::signals::{self, FirstSignal},
};

/// Number of ended jobs that a private agq keeps per job ahead. While an output waits at agq, agx
/// takes as many results as jobs may be ahead. As many jobs end each time before agx notes the
/// wait, while agx takes results, and before agx takes the results of these jobs.
const KEPT_FOR_EACH_AHEAD: u64 = 5;

pub(crate) async fn run(server: &ConnectionArgs, mut args: MapArgs, output: OutputFormat) -> Result<()> {
    let output = args.raw.apply(output).outliving_terminal();
    if output.is_json && args.grouping().is_live() {
        let help = "leave it out: with --json, each job is a document when it ends";
        return Err(CliError::usage("--line-buffer and --ungroup print text", help));
    }
    let (words, sources, columns) = sources(&mut args)?;
    let given = server_for_jobs(server, args.local, args.queue.is_some(), output);
    let mut pipeline = read(&words, &args, (sources.count(), &columns), permitted_programs(&given))?;
    check_sandbox(&pipeline.tasks, &args.sandbox.profile)?;
    if let Ok(Some(_)) = &given {
        args.sandbox.check_for_server()?;
    }
    pipeline.notes.iter().for_each(|note| output.note(note));
    let check = OptionCheck::new(std::mem::take(&mut pipeline.leading), pipeline.fields.clone(), output);
    let command = CommandTemplate::new(pipeline.tasks.clone(), pipeline.fields.clone());
    let resumed = Resumed::new(map_joblog::completed(&args)?, command, output);
    if args.dry_run {
        if let Some(profile) = args.sandbox.profile.name() {
            output.note(&format!("agx: the jobs would run in a sandbox with the profile {profile}"));
        }
        let workers = able_workers(given, &plan(&pipeline, &args)?, output).await;
        return show(sources, &args, (resumed, check, workers), output);
    }
    let given = given?;
    let cwd = cwd(args.cwd.as_ref(), given.as_ref(), args.sandbox.profile.name().is_some())?;
    set_cwd(&mut pipeline.tasks, cwd.as_deref());
    let plan = plan(&pipeline, &args)?;
    let (stop_level, action_id) = (watch::Sender::new(StopLevel::All), new_id()?);
    let (block, is_counted) = (args.pipe.then_some(args.block), args.halt.is_some_and(needs_total));
    // A signal that comes while agq and agw start is not lost.
    let mut signal = signals::listen();
    let Some(server) = given else {
        check_programs(&plan, args.cwd.as_deref())?;
        ignore_queue(&mut args.queue, "--queue", output);
        let sandbox = args.sandbox.worker_options(cwd.as_deref())?;
        let slots = slots(&args);
        // agq may remove ended jobs early, because agx takes each result soon.
        let most_ahead = ReadAhead::most_jobs(slots, block.unwrap_or(1));
        let kept = KEPT_FOR_EACH_AHEAD * most_ahead;
        let mut local = EmbeddedCluster::start(args.jobs, kept, sandbox.as_deref())?;
        let server = local.server()?;
        tokio::select! {
            checked = check_own_worker(&mut local, &plan) => checked?,
            () = signal.arrived() => return Err(CliError::Interrupted),
        }
        let joblog = map_joblog::open(&args, &sources)?;
        let inputs = map::read(sources, block, resumed, check, is_counted)?;
        let engine =
            engine(server, (plan, pipeline, joblog), &args, output, (&action_id, Some((slots, most_ahead))))?;
        let mapped = engine.run(inputs, &stop_level);
        return run_here(mapped, &mut local, &mut signal, (&stop_level, &action_id)).await;
    };
    if args.jobs.is_some() {
        output
            .note("agx: --jobs is for a worker of agx's own; on a cluster, each worker sets its own number");
    }
    check_workers(&server, &plan).await?;
    note_workers(&server, &plan, output).await?;
    let joblog = map_joblog::open(&args, &sources)?;
    let inputs = map::read(sources, block, resumed, check, is_counted)?;
    let engine = engine(server, (plan, pipeline, joblog), &args, output, (&action_id, None))?;
    let mapped = engine.run(inputs, &stop_level);
    tokio::pin!(mapped);
    tokio::select! {
        mapped = &mut mapped => mapped.and_then(|mapped| verdict(mapped, &action_id, false)),
        () = signal.arrived() => {
            let has_joblog = args.joblog.is_some();
            end_interrupted(mapped, has_joblog, (&stop_level, &action_id), output).await
        }
    }
}

/// Runs a map on the private agq and agw `local`, to its end or to a signal.
async fn run_here(
    mapped: impl Future<Output = Result<MapOutcome>>,
    local: &mut EmbeddedCluster,
    signal: &mut FirstSignal,
    (stop_level, action_id): (&watch::Sender<StopLevel>, &ActionId),
) -> Result<()> {
    tokio::pin!(mapped);
    let mapped = tokio::select! {
        mapped = &mut mapped => mapped.and_then(|mapped| verdict(mapped, action_id, true)),
        () = signal.arrived() => {
            end(mapped, stop_level, StopLevel::EndWithServer).await;
            Err(CliError::Interrupted)
        }
        failure = local.until_exit() => {
            end(mapped, stop_level, StopLevel::Leave).await;
            Err(failure)
        }
    };
    // The failure of agx follows from the exit of agq or agw, so the exit is reported.
    mapped.map_err(|failure| local.exited().unwrap_or(failure))
}

/// Returns the words of the command, its sources, and the columns of their inputs. The sources lose
/// their headers.
fn sources(args: &mut MapArgs) -> Result<(Vec<String>, Sources, Columns)> {
    let (words, behind) = split(std::mem::take(&mut args.words))?;
    if args.pipe && !behind.is_empty() {
        return Err(CliError::usage("--pipe takes stdin, and ::: gives inputs", "leave one of them out"));
    }
    let delimiter = if args.null { b'\0' } else { b'\n' };
    let mut sources = Sources::new(std::mem::take(&mut args.arg_file), behind, delimiter);
    let mut columns = Columns::new(args.colsep.clone());
    if args.header.is_some() {
        columns = columns.named_by(&sources.take_headers()?);
    }
    if let Some(per_job) = args.per_job {
        if sources.count() != 1 {
            return Err(CliError::usage(
                format!("-N takes the inputs of one source, and {} are given", sources.count()),
                "leave -N out: each job has one input of each source",
            ));
        }
        sources.group(per_job);
    }
    if args.shuf {
        sources.shuffle();
    }
    Ok((words, sources, columns))
}

/// Returns the number of jobs that the worker of this command runs at once.
fn slots(args: &MapArgs) -> u64 {
    let processors = || std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    args.jobs.map_or_else(processors, u64::from)
}

fn plan(pipeline: &Pipeline, args: &MapArgs) -> Result<Plan> {
    let plan = Plan {
        plan_id: None,
        plan_description: Some(pipeline.text.clone()),
        tasks: pipeline.tasks.clone(),
        max_retries: args.retries,
        timeout_secs: Some(0),
        pipefail: args.pipefail,
        requires: Requires {
            tags: required_tags(&pipeline.tasks),
            resources: args.quantities.of_single_use(args.retries)?,
            ..Requires::default()
        },
        sandbox: None,
        inputs: BTreeMap::new(),
        max_running: None,
        rate: None,
        retry_memory_factor: args.quantities.retry_memory_factor(),
    };
    identified(args.sandbox.profile.apply(plan), "map")
}

/// Prints the commands that would run (`--dry-run`).
fn show(
    sources: Sources,
    args: &MapArgs,
    (mut resumed, mut check, workers): (Resumed, OptionCheck, Option<Vec<WorkerId>>),
    output: OutputFormat,
) -> Result<()> {
    let (mut seq, mut refused, mut shown) = (0, 0, Ok(()));
    let mut line = |inputs: &[String]| {
        seq += 1;
        if resumed.skips(Some(inputs), seq) {
            return true;
        }
        if let Some(why) = check.why_not(inputs, seq) {
            output.note(&format!("agx: job {seq}: {why}"));
            refused += 1;
            return true;
        }
        let command = resumed.command(inputs, seq);
        let sandbox = args.sandbox.profile.of_plan();
        let document = MapCommand { seq, command, workers: workers.clone(), sandbox };
        shown = output.show_command("map.command", &document, |shown| shown.command.clone());
        shown.is_ok()
    };
    let mut unfit = None;
    let mut row = |row: Result<Vec<String>, String>| match row {
        Ok(inputs) => line(&inputs),
        Err(why) => {
            unfit = Some(why);
            false
        }
    };
    if args.pipe {
        blocks(args.block, |block| row(block.map(|_| Vec::new())))?;
    } else {
        sources.each(&mut row)?;
    }
    shown?;
    if let Some(why) = unfit {
        return Err(CliError::usage(why, "leave it out, or convert it; a run would continue without it"));
    }
    if refused > 0 {
        return Err(CliError::Jobs(counted(refused, "job would not run", "jobs would not run")));
    }
    Ok(())
}

/// Returns the engine of a map. `own` has the number of slots of a private worker, and the maximum
/// number of jobs ahead; `None` stands for a cluster.
fn engine(
    server: Server,
    (plan, pipeline, joblog): (Plan, Pipeline, Option<JobLog>),
    args: &MapArgs,
    output: OutputFormat,
    (action_id, own): (&ActionId, Option<(u64, u64)>),
) -> Result<Engine> {
    let plan_id = plan.plan_id.clone();
    let plan_id = plan_id.ok_or_else(|| CliError::usage("the plan has no id", "this is a bug in agx"))?;
    let action = ActionSubmission {
        action_id: Some(action_id.clone()),
        queue: args.queue.clone(),
        priority: args.priority,
        max_running: args.max_running,
        rate: args.rate,
        share: args.share.clone(),
        concurrency: pipeline.concurrency,
        labels: labels(args.labels.clone())?,
        halt: args.halt.filter(|halt| is_decided_by_agq(*halt, &pipeline.tasks, args.results.is_some())),
        ..ActionSubmission::new(plan_id, Vec::new())
    };
    let delivery = Delivery {
        output,
        printer: Printer::new(output, args.grouping(), joblog),
        tags: args.tag,
        results: args.results.clone(),
        columns: pipeline.fields.columns.clone(),
        tasks: pipeline.tasks,
        is_local: own.is_some(),
        latest_large: None,
        reported: 0,
    };
    let (fields, action_id) = (pipeline.fields, action_id.clone());
    Ok(Engine {
        server,
        plan,
        action,
        action_id,
        fields,
        delivery,
        grouping: args.grouping(),
        halt: args.halt,
        pace: SubmissionPace::new(args.delay),
        slots: own.map(|(slots, _)| slots),
        // The agq of a cluster keeps ended jobs according to its own settings.
        most_waited: own.map_or(u64::MAX, |(_, most_ahead)| most_ahead),
    })
}
