//! Commands of a script on records.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
};

use agenix_protocol::{
    blob::BlobHash,
    documents::{JobUpdate, Status, WorkerRegistration, parse, sandbox_tag},
    ids::{ActionId, JobId, PlanId, WorkerId},
    request::{Page, Search, Slice},
    time::Timestamp,
};
use agenix_rules::{
    action::{self, Action, ActionOptions, JobCounts, halt},
    capability::Needs,
    job::{self, Job, JobParams, NewJob, RuleOutcome},
    owner::Owner,
    rejection::Rejection,
    worker::{self, Worker},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use goldenscript::ArgumentConsumer;

use super::{budgets, claims, shown};
use crate::store::{
    AckLevel, ActionRule, AppendJobs, DocumentChange, DocumentKind, JobRule, LaneSummary, NewAction, NewPlan,
    ReportedResults, Retention, RuleResult, Store, StoreFuture, StoredPlan, WorkerRule,
};

pub(super) type Args<'a> = ArgumentConsumer<'a>;
pub(super) type ScriptResult<T> = Result<T, Box<dyn Error>>;
pub(super) type LinesFuture = BoxFuture<'static, ScriptResult<Vec<String>>>;
pub(super) type Answer = ScriptResult<LinesFuture>;
pub(super) type CommandLines = ScriptResult<Option<LinesFuture>>;

pub(super) fn show<T: Send + 'static>(
    answer: StoreFuture<T>,
    lines: impl FnOnce(T) -> Vec<String> + Send + 'static,
) -> LinesFuture {
    Box::pin(async move { Ok(lines(answer.await?)) })
}

pub(super) fn show_ruled<T: Send + 'static>(
    answer: StoreFuture<RuleResult<T>>,
    lines: impl FnOnce(T) -> Vec<String> + Send + 'static,
) -> LinesFuture {
    show(answer, |answer| match answer {
        Ok(value) => lines(value),
        Err(rejection) => vec![format!("rejected: {rejection}")],
    })
}

pub(super) fn ok<T>(_done: T) -> Vec<String> {
    vec!["ok".into()]
}

fn ids<T: ToString>(ids: impl IntoIterator<Item = T>) -> Vec<String> {
    ids.into_iter().map(|id| id.to_string()).collect()
}

pub(super) fn words(list: Option<&str>) -> Vec<String> {
    list.map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default()
}

pub(super) fn run(store: &dyn Store, name: &str, args: &mut Args<'_>) -> CommandLines {
    Ok(Some(match name {
        "add-plan" | "plan" | "plans" | "delete-plan" => plan(store, name, args)?,
        "add-action" => add_action(store, args)?,
        "add-jobs" => add_jobs(store, args)?,
        "close" => close(store, &id(args)?),
        "complete-halt" => show(store.complete_halt(&id(args)?, at(args)?), ok),
        "actions" => {
            let (labels, owner) = (labels(args)?, owner(args));
            show(store.actions(page(args)?, labels, owner), ids)
        }
        "search" => search(store, args)?,
        "peek" => {
            show(store.peek(args.next_pos().unwrap_or("ready"), number(args, "count")?.unwrap_or(10)), ids)
        }
        "pause" => show(store.set_paused(args.next_pos().unwrap_or("ready"), true), ok),
        "resume" => show(store.set_paused(args.next_pos().unwrap_or("ready"), false), ok),
        "paused" => show(store.paused(), ids),
        "prune" => prune(store, args)?,
        "totals" => show(store.totals(), |totals| {
            vec![format!("now {:?}", totals.now), format!("ever {:?}", totals.ever)]
        }),
        "action" => show(store.action(&id(args)?), shown_action),
        "jobs" => {
            let (action_id, status) = (id::<ActionId>(args)?, args.next_pos().map(str::to_owned));
            let statuses = status.and_then(|word| Status::parse(&word)).into_iter().collect();
            let limit = number(args, "limit")?.unwrap_or(usize::MAX);
            let slice = Slice { limit, offset: number(args, "offset")?.unwrap_or(0) };
            show(store.jobs_of(&action_id, statuses, slice), ids)
        }
        "job" => show(store.job(&id(args)?), |found| {
            found.map_or(vec!["none".into()], |found| {
                let results = found.results.map(|results| format!("results {results}"));
                [shown::job(&found.job), format!("input {}", found.input)]
                    .into_iter()
                    .chain(results)
                    .collect()
            })
        }),
        "claim" | "used" => claims::run(store, name, args)?,
        "update" | "abandon" | "give-back" | "wake" | "cancel" | "retry" => decide(store, name, args)?,
        "held" => show(store.held_by(args.next_pos().ok_or("who?")?), ids),
        "holders" => show(store.holders(), ids),
        "due" => {
            let (at, limit) = (at(args)?, number(args, "limit")?.unwrap_or(100));
            show(store.due(at, limit), ids)
        }
        "scheduled" => show(store.scheduled(), |(count, first)| {
            vec![format!("{count}{}", first.map(|at| format!(" first={}", at.0)).unwrap_or_default())]
        }),
        "lanes" => show(store.lanes(), |lanes| {
            let line = |lane: &LaneSummary| {
                format!("{} needs={} length={}", lane.queue, lane.needs.tools.join(","), lane.length)
            };
            // Sorted, because the order is unspecified.
            let mut lines: Vec<_> = lanes.iter().map(line).collect();
            lines.sort();
            lines
        }),
        "register" | "beat" | "kill" | "remove" | "workers" | "worker-records" => {
            worker_command(store, name, args)?
        }
        _ => return Ok(None),
    }))
}

pub(super) fn id<T: std::str::FromStr>(args: &mut Args<'_>) -> ScriptResult<T>
where
    T::Err: Error + 'static,
{
    Ok(args.next_pos().ok_or("an id is missing")?.parse()?)
}

pub(super) fn number<T: std::str::FromStr>(args: &mut Args<'_>, key: &str) -> ScriptResult<Option<T>>
where
    T::Err: Error + 'static,
{
    Ok(args.take_key(key).map(str::parse).transpose()?)
}

pub(super) fn at(args: &mut Args<'_>) -> ScriptResult<Timestamp> {
    Ok(Timestamp(number(args, "at")?.unwrap_or_default()))
}

fn plan(store: &dyn Store, name: &str, args: &mut Args<'_>) -> Answer {
    Ok(match name {
        "add-plan" => {
            let plan_id: PlanId = id(args)?;
            let order = args.take_key("order").map(str::to_owned);
            let (json, owner) = (format!(r#"{{"plan_id":"{plan_id}"}}"#), owner(args));
            let plan = StoredPlan { json, plan_id, created_at: at(args)?, owner, order };
            let approval = args.take_key("approval").map(|json| DocumentChange::Put(json.to_owned()));
            let plan = NewPlan { approval: approval.unwrap_or(DocumentChange::Keep), ..plan.into() };
            show_ruled(store.add_plan(plan), added_plan)
        }
        "plan" => show(store.plan(&id(args)?), |found| match found {
            Some(plan) => {
                let shown = format!("{}{}", plan.json, shown::owner(plan.owner.as_ref()));
                [shown].into_iter().chain(plan.order.map(|order| format!("order={order}"))).collect()
            }
            None => vec!["none".into()],
        }),
        "delete-plan" => {
            let (plan_id, only_of) = (id(args)?, owner(args));
            show_ruled(store.delete_plan(&plan_id, only_of), |deleted| vec![deleted.to_string()])
        }
        _ => {
            let owner = owner(args);
            show(store.plans(page(args)?, owner), ids)
        }
    })
}

pub(super) fn added_plan(is_new: bool) -> Vec<String> {
    vec![if is_new { "added" } else { "there already" }.into()]
}

fn shown_action(found: Option<(Action, JobCounts)>) -> Vec<String> {
    let Some((action, counts)) = found else { return vec!["none".into()] };
    let halted = action
        .halt
        .zip(action.halted)
        .map(|(halt, halted)| format!("halted at={} by {}", halted.at.0, halt::status(halt, &halted).reason));
    let labels: String = action.labels.iter().map(|(name, value)| format!(" {name}:{value}")).collect();
    let owner = shown::owner(action.owner.as_ref());
    let head =
        format!("{} plan={} jobs={}{labels}{owner}", action.action_id, action.plan_id, action.total_jobs);
    [head, shown::counts(&counts)].into_iter().chain(halted).collect()
}

fn owner(args: &mut Args<'_>) -> Option<Owner> {
    args.take_key("owner").map(|name| Owner::from(name.to_owned()))
}

/// Parses `labels=team:x,night:` as two labels.
fn labels(args: &mut Args<'_>) -> ScriptResult<BTreeMap<String, String>> {
    let pair = |word: String| {
        let (name, value) = word.split_once(':').ok_or("a label is name:value")?;
        Ok((name.to_owned(), value.to_owned()))
    };
    words(args.take_key("labels")).into_iter().map(pair).collect()
}

fn page(args: &mut Args<'_>) -> ScriptResult<Page> {
    let pattern = args.next_pos().map(|pattern| Bytes::from(pattern.to_owned()));
    let (limit, offset) = (number(args, "limit")?.unwrap_or(100), number(args, "offset")?.unwrap_or(0));
    Ok(Page { pattern, limit, offset })
}

fn search(store: &dyn Store, args: &mut Args<'_>) -> Answer {
    let search = Search {
        status: args.take_key("status").and_then(Status::parse),
        plan_id: args.take_key("plan").map(str::parse).transpose()?,
        action_id: args.take_key("action").map(str::parse).transpose()?,
        worker: args.take_key("worker").map(str::to_owned),
        since: number(args, "since")?.map(Timestamp),
        until: number(args, "until")?.map(Timestamp),
        limit: number(args, "limit")?.unwrap_or(100),
    };
    let owner = owner(args);
    Ok(show(store.search(search, owner), ids))
}

fn prune(store: &dyn Store, args: &mut Args<'_>) -> Answer {
    let keep = Retention {
        ended_since: Timestamp(number(args, "ended")?.unwrap_or(0)),
        dead_since: Timestamp(number(args, "dead")?.unwrap_or(0)),
        count: number(args, "count")?.unwrap_or(0),
    };
    let limit = number(args, "limit")?.unwrap_or(100);
    Ok(show(store.prune(keep, limit), |count| vec![count.to_string()]))
}

fn close(store: &dyn Store, action_id: &ActionId) -> LinesFuture {
    let missing = Rejection::ActionNotFound(action_id.clone());
    let rule: ActionRule =
        Box::new(move |action: Option<&Action>| Ok(action::closed(action.ok_or_else(|| missing.clone())?)));
    show_ruled(store.decide_action(action_id, rule), ok)
}

/// Creates jobs, named after their action: a-0, a-1, …
fn add_action(store: &dyn Store, args: &mut Args<'_>) -> Answer {
    let action_id: ActionId = id(args)?;
    let plan_id = PlanId::new(args.take_key("plan").unwrap_or("p"))?;
    let count: u64 = number(args, "jobs")?.unwrap_or(1);
    let first: u64 = number(args, "first")?.unwrap_or(0);
    let now = at(args)?;
    let (run_at, open) = (number(args, "run-at")?.map(Timestamp), args.take_key("open").is_some());
    let action = Action {
        queue: args.take_key("queue").unwrap_or("ready").into(),
        priority: number(args, "priority")?.unwrap_or(0),
        run_at,
        is_open: open,
        wishes: ActionOptions { run_at, open, ..ActionOptions::default() },
        halt: args.take_key("halt").map(str::parse).transpose()?,
        labels: labels(args)?,
        owner: owner(args),
        ..Action::new(action_id.clone(), plan_id, now)
    };
    let terms = JobParams {
        max_retries: number(args, "retries")?.unwrap_or(0),
        timeout_ms: number(args, "timeout")?.unwrap_or(0),
        priority: action.priority,
        run_at: action.run_at,
        ..JobParams::default()
    };
    let jobs = new_jobs(&action_id, 0, first, count)?;
    let note =
        args.take_key("note").map(|json| (DocumentKind::Arriving, action_id.to_string(), json.to_owned()));
    let documents = note.into_iter().collect();
    let reads = blobs(args.take_key("reads"))?;
    let names = |job: &NewJob| Some((job.job_id.clone(), reads.clone())).filter(|_| !reads.is_empty());
    let input_blobs = jobs.iter().filter_map(names).collect();
    let charge = budgets::budget(args, now, 0)?.map(|(charge, _)| charge);
    let new = NewAction { action, needs: needs(args)?, terms, jobs, documents, input_blobs, charge };
    Ok(added(store, new))
}

pub(super) fn added(store: &dyn Store, new: NewAction) -> LinesFuture {
    show_ruled(store.add_action(new), |added| vec![format!("{added:?}").to_lowercase()])
}

/// Parses a list of blobs.
fn blobs(list: Option<&str>) -> ScriptResult<BTreeSet<BlobHash>> {
    let hashes = list.map(|list| list.split(',').map(|hash| Ok(hash.parse()?)).collect());
    hashes.unwrap_or_else(|| Ok(BTreeSet::new()))
}

/// Parses `needs=sort sandbox=reader resources='{"cpus":2}'`.
fn needs(args: &mut Args<'_>) -> ScriptResult<Needs> {
    let tags = args.take_key("sandbox").map(sandbox_tag).into_iter().collect();
    let resources = args.take_key("resources").map(|json| parse(json.as_bytes())).transpose()?;
    let resources = resources.map(Box::new);
    Ok(Needs { tools: words(args.take_key("needs")), tags, resources, ..Needs::default() })
}

/// Creates jobs with the inputs `first`, `first` + 1, …
fn new_jobs(action_id: &ActionId, place: u64, first: u64, count: u64) -> ScriptResult<Vec<NewJob>> {
    let new_job = |n: u64| {
        let job_id = JobId::new(format!("{action_id}-{}", n + place))?;
        Ok::<_, Box<dyn Error>>(NewJob {
            job_id,
            input: format!(r#"{{"n":{}}}"#, n + first).into(),
            own: None,
        })
    };
    (0..count).map(new_job).collect()
}

/// Parses `add-jobs a place=2 first=7 jobs=2`: the jobs a-2 and a-3 with the inputs 7 and 8. An
/// optional `from=2` is the index that the submitter sends.
fn add_jobs(store: &dyn Store, args: &mut Args<'_>) -> Answer {
    let action_id: ActionId = id(args)?;
    let (place, first) = (number(args, "place")?.unwrap_or(0), number(args, "first")?.unwrap_or(0));
    let jobs = new_jobs(&action_id, place, first, number(args, "jobs")?.unwrap_or(1))?;
    let (at, now) = (number(args, "from")?, at(args)?);
    let charge = budgets::budget(args, now, 0)?.map(|(charge, _)| charge);
    let terms = JobParams::default();
    let more = AppendJobs { action_id, at, needs: needs(args)?, terms, jobs, now, charge };
    Ok(show_ruled(store.add_jobs(more), |total| vec![format!("total {total}")]))
}

fn decide(store: &dyn Store, name: &str, args: &mut Args<'_>) -> Answer {
    let job_id: JobId = id(args)?;
    let now = at(args)?;
    let blobs = blobs(args.take_key("blobs"))?;
    let json = args.take_key("results").map(str::to_owned);
    let next_needs = Some(needs(args)?).filter(|needs| needs.resources.is_some()).map(Box::new);
    let results = json.map(|json| ReportedResults { json, blobs, next_needs });
    let reporter = args.next_pos().map(str::to_owned).unwrap_or_default();
    let missing = Rejection::JobNotFound(job_id.clone());
    let rule: JobRule = match name {
        "update" => {
            let json = args.next_pos().ok_or("an update is missing")?.to_owned();
            let update: JobUpdate = parse(json.as_bytes())?;
            Box::new(move |job: Option<&Job>| {
                job::updated(job.ok_or_else(|| missing.clone())?, &update, &reporter, None, now, 0.5)
            })
        }
        "abandon" => Box::new(move |job: Option<&Job>| {
            Ok(job.map_or(RuleOutcome::Unchanged, |job| job::abandoned(job, &reporter, now)))
        }),
        "cancel" => {
            Box::new(move |job: Option<&Job>| job::cancelled(job.ok_or_else(|| missing.clone())?, now))
        }
        "retry" => {
            Box::new(move |job: Option<&Job>| job::retried(job.ok_or_else(|| missing.clone())?, true, now))
        }
        "give-back" => Box::new(move |job: Option<&Job>| {
            Ok(job.map_or(RuleOutcome::Unchanged, |job| job::given_back(job, &reporter, None, now)))
        }),
        _ => Box::new(move |job: Option<&Job>| {
            Ok(job.map_or(RuleOutcome::Unchanged, |job| job::due(job, now, 0.5)))
        }),
    };
    Ok(show_ruled(store.decide(&job_id, AckLevel::Durable, results, rule), ok))
}

fn worker_command(store: &dyn Store, name: &str, args: &mut Args<'_>) -> Answer {
    let shown = |worker: &Worker| format!("{} {:?}", worker.worker_id, worker.liveness);
    if name == "worker-records" {
        return Ok(show(store.worker_records(), move |workers| workers.iter().map(shown).collect()));
    }
    if name == "workers" {
        return Ok(show(store.workers(), move |workers| {
            let line = |(worker, jobs): &(Worker, u64)| {
                format!("{} seen={} jobs={jobs}", shown(worker), worker.last_seen_at.0)
            };
            workers.iter().map(line).collect()
        }));
    }
    let worker_id: WorkerId = id(args)?;
    let now = at(args)?;
    if name == "remove" {
        return Ok(show(store.remove_worker(&worker_id), |was_there| vec![was_there.to_string()]));
    }
    let unknown = Rejection::WorkerUnknown(worker_id.clone());
    let rule: WorkerRule = match name {
        "register" => {
            let json = format!(r#"{{"worker_id":"{worker_id}","capabilities":["sort"]}}"#);
            let registration: WorkerRegistration = parse(json.as_bytes())?;
            let connection = args.take_key("on").unwrap_or("c1").to_owned();
            Box::new(move |known: Option<&Worker>| {
                worker::registered(known, &registration, &connection, now).map(Some)
            })
        }
        "beat" => Box::new(move |known: Option<&Worker>| {
            worker::heartbeat(known.ok_or_else(|| unknown.clone())?, None, false, now).map(Some)
        }),
        _ => Box::new(|known: Option<&Worker>| Ok(known.map(worker::dead))),
    };
    Ok(show_ruled(store.decide_worker(&worker_id, AckLevel::Durable, None, rule), ok))
}
