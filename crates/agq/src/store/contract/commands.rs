//! The records in a script.

use std::{error::Error, sync::Arc};

use agenix_protocol::{
    documents::{JobUpdate, Status, WorkerRegistration, parse},
    ids::{ActionId, JobId, PlanId, WorkerId},
    time::Timestamp,
};
use agenix_rules::{
    action::Action,
    capability::Abilities,
    job::{self, Job, NewJob, Outcome},
    rejection::Rejection,
    worker::{self, Worker},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use goldenscript::ArgumentConsumer;

use super::shown;
use crate::store::{Answer, Claimant, JobRule, NewAction, Promise, Ruled, Store, StoredPlan, WorkerRule};

pub(super) type Lines = BoxFuture<'static, Result<Vec<String>, Box<dyn Error>>>;
type Known = Result<Option<Lines>, Box<dyn Error>>;

/// An answer, and how it is shown.
pub(super) fn show<T: Send + 'static>(
    answer: Answer<T>,
    lines: impl FnOnce(T) -> Vec<String> + Send + 'static,
) -> Lines {
    Box::pin(async move { Ok(lines(answer.await?)) })
}

/// What a rule allowed or refused.
pub(super) fn ruled<T>(answer: Ruled<T>, lines: impl FnOnce(T) -> Vec<String>) -> Vec<String> {
    match answer {
        Ok(value) => lines(value),
        Err(rejection) => vec![format!("rejected: {rejection}")],
    }
}

fn ids<T: ToString>(ids: impl IntoIterator<Item = T>) -> Vec<String> {
    ids.into_iter().map(|id| id.to_string()).collect()
}

fn words(list: Option<&str>) -> Vec<String> {
    list.map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default()
}

pub(super) fn run(store: &dyn Store, name: &str, args: &mut ArgumentConsumer<'_>) -> Known {
    Ok(Some(match name {
        "add-plan" | "plan" | "plans" => plan(store, name, args)?,
        "add-action" => add_action(store, args)?,
        "action" => show(store.action(&id(args)?), |found| {
            found.map_or(vec!["none".into()], |(action, tally)| {
                vec![
                    format!("{} plan={} jobs={}", action.action_id, action.plan_id, action.total_jobs),
                    shown::tally(&tally),
                ]
            })
        }),
        "jobs" => {
            let (action_id, status) = (id::<ActionId>(args)?, args.next_pos().map(str::to_owned));
            show(store.jobs_of(&action_id, status.and_then(|word| Status::parse(&word))), ids)
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
        "claim" => claim(store, args)?,
        "update" | "abandon" | "give-back" | "wake" => decide(store, name, args)?,
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
            lanes
                .iter()
                .map(|lane| format!("{} needs={} length={}", lane.queue, lane.needs.join(","), lane.length))
                .collect()
        }),
        "register" | "beat" | "bury" | "remove" | "workers" => worker_command(store, name, args)?,
        _ => return Ok(None),
    }))
}

fn id<T: std::str::FromStr>(args: &mut ArgumentConsumer<'_>) -> Result<T, Box<dyn Error>>
where
    T::Err: Error + 'static,
{
    Ok(args.next_pos().ok_or("an id is missing")?.parse()?)
}

fn number<T: std::str::FromStr>(
    args: &mut ArgumentConsumer<'_>,
    key: &str,
) -> Result<Option<T>, Box<dyn Error>>
where
    T::Err: Error + 'static,
{
    Ok(args.take_key(key).map(str::parse).transpose()?)
}

fn at(args: &mut ArgumentConsumer<'_>) -> Result<Timestamp, Box<dyn Error>> {
    Ok(Timestamp(number(args, "at")?.unwrap_or_default()))
}

fn plan(store: &dyn Store, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<Lines, Box<dyn Error>> {
    Ok(match name {
        "add-plan" => {
            let plan_id: PlanId = id(args)?;
            let plan =
                StoredPlan { json: format!(r#"{{"plan_id":"{plan_id}"}}"#), plan_id, created_at: at(args)? };
            show(store.add_plan(plan), |added| vec![if added { "added" } else { "there already" }.into()])
        }
        "plan" => show(store.plan(&id(args)?), |found| vec![found.map_or("none".into(), |plan| plan.json)]),
        _ => show(store.plans(), ids),
    })
}

/// Jobs are named after their action: a-0, a-1, …
fn add_action(store: &dyn Store, args: &mut ArgumentConsumer<'_>) -> Result<Lines, Box<dyn Error>> {
    let action_id: ActionId = id(args)?;
    let plan_id = PlanId::new(args.take_key("plan").unwrap_or("p"))?;
    let count: u64 = number(args, "jobs")?.unwrap_or(1);
    let first: u64 = number(args, "first")?.unwrap_or(0);
    let new_job = |n: u64| {
        let job_id = JobId::new(format!("{action_id}-{n}"))?;
        Ok::<_, Box<dyn Error>>(NewJob { job_id, input: format!(r#"{{"n":{}}}"#, n + first).into() })
    };
    let jobs = (0..count).map(new_job).collect::<Result<_, _>>()?;
    let new = NewAction {
        action: Action { action_id, plan_id, total_jobs: count, created_at: at(args)? },
        queue: "queue:ready".into(),
        needs: words(args.take_key("needs")),
        max_retries: number(args, "retries")?.unwrap_or(0),
        timeout_ms: number(args, "timeout")?.unwrap_or(0),
        jobs,
    };
    Ok(show(store.add_action(new), |added| vec![format!("{added:?}").to_lowercase()]))
}

/// `claim w1 w2 can=sort,uniq`: both wait, w1 longer.
fn claim(store: &dyn Store, args: &mut ArgumentConsumer<'_>) -> Result<Lines, Box<dyn Error>> {
    let now = at(args)?;
    let can = args.take_key("can");
    let abilities = match can {
        Some(can) => Abilities::Commands(words(Some(can)).into_iter().collect()),
        None => Abilities::Anything,
    };
    let abilities = Arc::new(abilities);
    let holders: Vec<String> = std::iter::from_fn(|| args.next_pos()).map(str::to_owned).collect();
    let claimant =
        |holder: &String| Claimant { holder: holder.as_str().into(), abilities: Arc::clone(&abilities) };
    let claims = store.claim(holders.iter().map(claimant).collect(), now);
    Ok(show(claims, move |claims| {
        let line = |(holder, claim): (&String, &Option<crate::store::Claim>)| match claim {
            None => format!("{holder}: nothing"),
            Some(claim) => {
                format!("{holder}: {} input={} plan={}", shown::job(&claim.job), claim.input, claim.plan)
            }
        };
        holders.iter().zip(&claims).map(line).collect()
    }))
}

fn decide(store: &dyn Store, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<Lines, Box<dyn Error>> {
    let job_id: JobId = id(args)?;
    let now = at(args)?;
    let results = args.take_key("results").map(|json| Bytes::from(json.to_owned()));
    let who = args.next_pos().map(str::to_owned).unwrap_or_default();
    let missing = Rejection::JobNotFound(job_id.clone());
    let rule: JobRule = match name {
        "update" => {
            let json = args.next_pos().ok_or("an update is missing")?.to_owned();
            let update: JobUpdate = parse(json.as_bytes())?;
            Box::new(move |job: Option<&Job>| {
                job::advanced(job.ok_or_else(|| missing.clone())?, &update, &who, now, 0.5)
            })
        }
        "abandon" => Box::new(move |job: Option<&Job>| {
            Ok(job.map_or(Outcome::Unchanged, |job| job::abandoned(job, &who, now)))
        }),
        "give-back" => Box::new(move |job: Option<&Job>| {
            Ok(job.map_or(Outcome::Unchanged, |job| job::given_back(job, &who, None)))
        }),
        _ => Box::new(move |job: Option<&Job>| {
            Ok(job.map_or(Outcome::Unchanged, |job| job::due(job, now, 0.5)))
        }),
    };
    let answer = store.decide(&job_id, Promise::Durable, results, rule);
    Ok(show(answer, |answer| ruled(answer, |()| vec!["ok".into()])))
}

fn worker_command(
    store: &dyn Store,
    name: &str,
    args: &mut ArgumentConsumer<'_>,
) -> Result<Lines, Box<dyn Error>> {
    if name == "workers" {
        return Ok(show(store.workers(), |workers| {
            let line = |(worker, jobs): &(Worker, u64)| {
                format!(
                    "{} {:?} seen={} jobs={jobs}",
                    worker.worker_id, worker.standing, worker.last_seen_at.0
                )
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
            worker::seen(known.ok_or_else(|| unknown.clone())?, None, now).map(Some)
        }),
        _ => Box::new(|known: Option<&Worker>| Ok(known.map(worker::dead))),
    };
    let answer = store.decide_worker(&worker_id, Promise::Durable, rule);
    Ok(show(answer, |answer| ruled(answer, |()| vec!["ok".into()])))
}
