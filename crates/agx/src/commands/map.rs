//! `agx map`

use std::{cell::RefCell, collections::BTreeSet};

use agenix_client::{Connection, Server};
use agenix_protocol::{
    documents::{ActionSubmission, Plan, Requires, Task, to_json},
    ids::{ActionId, PlanId},
};
use agenix_shell::{argv, compile};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot, watch};

use super::{new_id, refused};
use crate::{
    cli::{MapArgs, ServerArgs},
    documents::MapCommand,
    failure::Failure,
    local::Local,
    map::{
        BLOCK, Collected, Delivery, Done, Feed, Input, JobLog, Placeholder, Sources, blocks, collect, done,
        filled, split,
    },
    output::Output,
    patient::Patient,
    progress::Line,
    tools,
};

/// How many inputs are read ahead.
const READ_AHEAD: usize = 10_000;
/// A task may take as long as it likes: a plan's task has a bound, so this is a hundred years.
const NO_TIMEOUT_SECS: u64 = 100 * 365 * 86_400;

/// The pipeline, and what of the inputs it uses.
struct Pipeline {
    /// As it was given, for people.
    text: String,
    tasks: Vec<Task>,
    placeholders: BTreeSet<Placeholder>,
}

pub(super) async fn run(server: &ServerArgs, mut args: MapArgs, output: Output) -> Result<(), Failure> {
    let (words, behind) = split(std::mem::take(&mut args.words));
    if args.pipe && !behind.is_empty() {
        return Err(Failure::usage("--pipe takes stdin, and ::: gives inputs", "leave one of them out"));
    }
    let delimiter = if args.null { b'\0' } else { b'\n' };
    let sources = Sources::new(std::mem::take(&mut args.arg_file), behind, delimiter);
    let mut pipeline = read(&words, &args, sources.count())?;
    let skipped = match (&args.joblog, args.resume, args.resume_failed) {
        (Some(log), true, _) => done(log, Done::Ended)?,
        (Some(log), _, true) => done(log, Done::Well)?,
        _ => BTreeSet::new(),
    };
    if args.dry_run {
        return show(&pipeline, sources, &args, &skipped, output);
    }
    let given = if args.local { None } else { server.given()? };
    let cwd = cwd(&args, given.as_ref())?;
    pipeline.tasks.iter_mut().for_each(|task| task.cwd.clone_from(&cwd));
    let plan = plan(&pipeline, &args)?;
    let Some(server) = given else {
        look_for(&plan)?;
        let mut local = Local::start(args.jobs)?;
        let server = local.server()?;
        let inputs = feed_from(sources, &args, skipped);
        let mapped = tokio::select! {
            mapped = map(&server, plan, pipeline, inputs, &args, output, true) => mapped,
            () = asked_to_end() => Err(Failure::Interrupted),
            failure = local.until_trouble() => Err(failure),
        };
        // What agx saw is the consequence.
        return mapped.map_err(|failure| local.trouble().unwrap_or(failure));
    };
    if args.jobs.is_some() {
        output.note("agx: --jobs is for a worker of agx's own; here the workers of the cluster say how many run at once");
    }
    let inputs = feed_from(sources, &args, skipped);
    map(&server, plan, pipeline, inputs, &args, output, false).await
}

/// Where the tasks run: here, where the workers are on this machine for all we know.
fn cwd(args: &MapArgs, server: Option<&Server>) -> Result<Option<String>, Failure> {
    let is_here = server.is_some_and(|server| server.address().starts_with("unix:"));
    if args.cwd.is_some() || !is_here {
        return Ok(args.cwd.clone());
    }
    let here = std::env::current_dir().map_err(|error| {
        Failure::usage(format!("this directory cannot be named: {error}"), "say another with --cwd")
    })?;
    Ok(Some(here.to_string_lossy().into_owned()))
}

/// Looks for the programs on our own PATH, which is the worker's as well.
fn look_for(plan: &Plan) -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let here = tools::on(&path);
    let Some(task) = plan.tasks.iter().find(|task| !here.contains(&task.command)) else { return Ok(()) };
    let name = &task.command;
    let help = match tools::nearest(name, here.iter().map(String::as_str)) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => "install it, or put its directory into PATH".into(),
    };
    Err(Failure::usage(format!("there is no program '{name}' on PATH"), help))
}

/// Compiles the command.
fn read(words: &[String], args: &MapArgs, sources: usize) -> Result<Pipeline, Failure> {
    let used = RefCell::new(BTreeSet::new());
    let placeholder = |text: &str| {
        let placeholder = Placeholder::parse(text)?;
        used.borrow_mut().insert(placeholder);
        Some(format!("{{{{input.{}}}}}", placeholder.field()))
    };
    let mut tasks = match words {
        [] => {
            return Err(Failure::usage(
                "there is no command",
                "write it behind --, as agx map -- 'grep -c ERROR {}'",
            ));
        }
        [text] => compile(text, &placeholder).map_err(|refusal| refused(&refusal))?,
        words => vec![argv(words, &placeholder).map_err(|refusal| refused(&refusal))?],
    };
    let mut text = match words {
        [text] => text.clone(),
        words => words.split_first().map_or_else(String::new, |(command, args)| {
            let (command, args) = (command.clone(), args.to_vec());
            agenix_shell::render(&[Task { command, args, ..Task::default() }])
        }),
    };
    let mut placeholders = used.into_inner();
    if args.pipe {
        feed_block(&mut tasks)?;
    } else if placeholders.is_empty() {
        let [task] = &mut tasks[..] else {
            return Err(Failure::usage("the pipeline does not say where the input goes", "write {} there"));
        };
        task.args.push(format!("{{{{input.{}}}}}", Placeholder::WHOLE.field()));
        placeholders.insert(Placeholder::WHOLE);
        text += " {}";
    }
    if let Some(beyond) = placeholders.iter().map(|one| one.source()).find(|&source| source > sources) {
        let what = format!("{{{beyond}}} is of a source that is not given: there are {sources}");
        return Err(Failure::usage(what, "give another ::: with values"));
    }
    for task in &mut tasks {
        task.timeout_secs = Some(args.timeout.unwrap_or(NO_TIMEOUT_SECS));
    }
    Ok(Pipeline { text, tasks, placeholders })
}

/// The first command reads the block.
fn feed_block(tasks: &mut [Task]) -> Result<(), Failure> {
    let Some(first) = tasks.first_mut() else { return Ok(()) };
    if first.stdin_file.is_some() {
        return Err(Failure::usage(
            "--pipe gives the first command its stdin, and so does <",
            "leave one of them out",
        ));
    }
    first.stdin = Some(format!("{{{{input.{BLOCK}}}}}"));
    Ok(())
}

/// The plan of these tasks. Its id follows from what it says, so that the same command is the same plan.
fn plan(pipeline: &Pipeline, args: &MapArgs) -> Result<Plan, Failure> {
    let mut plan = Plan {
        plan_id: None,
        plan_description: Some(pipeline.text.clone()),
        tasks: pipeline.tasks.clone(),
        max_retries: args.retries,
        timeout_secs: Some(0),
        pipefail: args.pipefail,
        requires: Requires::default(),
    };
    let digest = Sha256::digest(to_json(&plan));
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let id = PlanId::new(format!("map-{hash}"));
    plan.plan_id = Some(id.map_err(|error| Failure::usage(error.to_string(), "this is a fault of agx"))?);
    Ok(plan)
}

/// Reads the inputs on a thread of its own, as they are asked for.
fn feed_from(
    sources: Sources,
    args: &MapArgs,
    skipped: BTreeSet<u64>,
) -> mpsc::Receiver<Result<Input, Failure>> {
    let (send, inputs) = mpsc::channel(READ_AHEAD);
    let (is_piped, block) = (args.pipe, args.block);
    // It ends with its source; a stdin that stays open ends with the process.
    std::thread::spawn(move || {
        let mut seq = 0;
        let mut take = |args: Vec<String>, block: Option<String>| {
            seq += 1;
            skipped.contains(&seq) || send.blocking_send(Ok(Input { seq, args, block })).is_ok()
        };
        let read = if is_piped {
            blocks(block, |block| take(Vec::new(), Some(block)))
        } else {
            sources.each(|args| take(args, None))
        };
        if let Err(failure) = read {
            let _nobody = send.blocking_send(Err(failure));
        }
    });
    inputs
}

/// Prints what would be run.
fn show(
    pipeline: &Pipeline,
    sources: Sources,
    args: &MapArgs,
    skipped: &BTreeSet<u64>,
    output: Output,
) -> Result<(), Failure> {
    let (mut seq, mut shown) = (0, Ok(()));
    let mut line = |args: &[String]| {
        seq += 1;
        if skipped.contains(&seq) {
            return true;
        }
        let value = |one: &Placeholder| (one.field(), one.value(args, seq));
        let fields: std::collections::BTreeMap<_, _> = pipeline.placeholders.iter().map(value).collect();
        let command = agenix_shell::render(&filled(&pipeline.tasks, &json!(fields).to_string()));
        shown = output.show("map.command", &MapCommand { seq, command }, |shown| shown.command.clone());
        shown.is_ok()
    };
    if args.pipe {
        blocks(args.block, |_| line(&[]))?;
    } else {
        sources.each(|args| line(&args))?;
    }
    shown
}

/// Runs the pipeline on the inputs, and brings the results.
async fn map(
    server: &Server,
    plan: Plan,
    pipeline: Pipeline,
    inputs: mpsc::Receiver<Result<Input, Failure>>,
    args: &MapArgs,
    output: Output,
    is_local: bool,
) -> Result<(), Failure> {
    let patient = async || {
        Ok::<_, Failure>(Patient::new(server.clone(), Connection::open_patiently(server).await?, output))
    };
    let (mut agq, mut feeding) = (patient().await?, patient().await?);
    feeding.have_plan(&plan).await?;
    let plan_id =
        plan.plan_id.ok_or_else(|| Failure::usage("the plan has no id", "this is a fault of agx"))?;
    let action_id = new_id()?;
    let action = ActionSubmission {
        action_id: Some(action_id.clone()),
        queue: args.queue.clone(),
        priority: args.priority,
        ..ActionSubmission::new(plan_id, Vec::new())
    };
    let joblog = args
        .joblog
        .as_deref()
        .map(|path| JobLog::open(path, args.resume || args.resume_failed))
        .transpose()?;
    let mut delivery = Delivery {
        output,
        tags: args.tag,
        joblog,
        results: args.results.clone(),
        tasks: pipeline.tasks,
        is_local,
        told: 0,
    };
    let (sent, taken) = mpsc::unbounded_channel();
    let (begun, has_begun) = oneshot::channel();
    let (stop, stopped) = watch::channel(false);
    let feed = Feed { agq: feeding, action, placeholders: pipeline.placeholders, sent, begun, stop: stopped };
    let mut line = Line::for_a_filter(output);
    let collecting = async {
        // Without any input nothing begins.
        if has_begun.await.is_err() {
            return Ok(Collected::default());
        }
        let how = (args.keep_order, args.halt);
        collect(&mut agq, &action_id, taken, how, &stop, (&mut delivery, &mut line)).await
    };
    let both = async { tokio::try_join!(feed.run(inputs), collecting) };
    let mapped = tokio::select! {
        mapped = both => mapped.map(|((), collected)| collected),
        () = asked_to_end(), if !is_local => Err(Failure::Detached(action_id.clone())),
    };
    line.clear();
    match mapped {
        Ok(collected) => verdict(collected, &action_id, is_local),
        Err(failure @ Failure::Detached(_)) => Err(failure),
        Err(failure) => {
            // Nobody would take the results any more.
            let _may_be_gone = agq.cancel_action(&action_id).await;
            Err(failure)
        }
    }
}

/// Ctrl-C, or SIGTERM.
async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

fn verdict(collected: Collected, action_id: &ActionId, is_local: bool) -> Result<(), Failure> {
    let Collected { completed, failed, cancelled, is_halted } = collected;
    if failed == 0 && (cancelled == 0 || is_halted) {
        return Ok(());
    }
    let total = completed + failed + cancelled;
    let halted =
        if is_halted { format!("; --halt ended it, {cancelled} were cancelled") } else { String::new() };
    let lost =
        if is_halted || cancelled == 0 { String::new() } else { format!(", {cancelled} were cancelled") };
    let see =
        if is_local { String::new() } else { format!("; see them with `agx action results {action_id}`") };
    Err(Failure::Jobs(format!("{failed} of {total} jobs failed{lost}{halted}{see}")))
}
