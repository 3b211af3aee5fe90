//! Commands of a script on documents, and on jobs with settings of their own.

use std::{error::Error, sync::Arc};

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    action::Action,
    capability::Needs,
    job::{self, Job, JobOverrides, JobParams, NewJob, Ojs, OnConflict, ReportedFailure, Reporter, Unique},
    limit::LimitTerms,
    rejection::Rejection,
};
use tokio::runtime::Handle;

use super::{
    budgets,
    commands::{Answer, Args, CommandLines, added, at, id, number, ok, show, show_ruled, words},
};
use crate::store::{AckLevel, DocumentChange, DocumentKind, DocumentRule, JobRule, NewAction, Store};

pub(super) fn run(store: &dyn Store, name: &str, args: &mut Args<'_>) -> CommandLines {
    Ok(Some(match name {
        "forget-unused" => {
            let unused = Handle::current().block_on(store.unused(at(args)?))?;
            let count = unused.limits.len();
            show(store.forget_unused(unused), move |()| vec![count.to_string()])
        }
        "note" => show(store.document(kind(args)?, &text(args)?), |note| {
            vec![note.unwrap_or_else(|| "none".into())]
        }),
        "notes" => show(store.documents(kind(args)?), |notes| {
            notes.into_iter().map(|(id, note)| format!("{id}={note}")).collect()
        }),
        "put-note" | "remove-note" | "refuse-note" => change_note(store, name, args)?,
        "counts" => show(store.queue_counts(), |counts| {
            counts.into_iter().map(|(queue, counts)| format!("{queue} {counts:?}")).collect()
        }),
        "submit" => submit(store, args)?,
        "ack" | "nack" => report(store, name, args)?,
        "forget" => {
            let job_id = id(args)?;
            let status = args.next_pos().and_then(Status::parse).ok_or("which status?")?;
            show(store.forget_job(&job_id, status), |was_there| vec![was_there.to_string()])
        }
        _ => return Ok(None),
    }))
}

fn text(args: &mut Args<'_>) -> Result<String, Box<dyn Error>> {
    Ok(args.next_pos().ok_or("a word is missing")?.to_owned())
}

fn kind(args: &mut Args<'_>) -> Result<DocumentKind, Box<dyn Error>> {
    Ok(DocumentKind::parse(&text(args)?).ok_or("no such kind")?)
}

fn change_note(store: &dyn Store, name: &str, args: &mut Args<'_>) -> Answer {
    let (kind, id) = (kind(args)?, text(args)?);
    let rule: DocumentRule = match name {
        "remove-note" => Box::new(|_| Ok(DocumentChange::Remove)),
        "refuse-note" => Box::new(|_| Err(Rejection::ScheduleNotFound("n".into()))),
        _ => {
            let json = text(args)?;
            // The new text is appended to the old one.
            Box::new(move |known| Ok(DocumentChange::Put(format!("{}{json}", known.unwrap_or_default()))))
        }
    };
    Ok(show_ruled(store.update_document(kind, &id, rule), ok))
}

/// Parses a submission such as `submit a jobs=2 queue=q unique=k states=active conflict=ignore
/// limit=l concurrency=1 rate=1 period=60000 expires=50 attempts=2 named=yes visibility=0 hash=h`,
/// with the options of [`budgets::budget`].
fn submit(store: &dyn Store, args: &mut Args<'_>) -> Answer {
    let action_id: ActionId = id(args)?;
    let (now, count) = (at(args)?, number::<u64>(args, "jobs")?.unwrap_or(1));
    let plan_id = PlanId::new(args.take_key("plan").unwrap_or("p"))?;
    let queue = args.take_key("queue").unwrap_or("default").to_owned();
    let on_conflict = match args.take_key("conflict") {
        Some("ignore") => OnConflict::Ignore,
        Some("replace") => OnConflict::Replace,
        _ => OnConflict::Reject,
    };
    let key = args.take_key("unique").map(str::to_owned);
    let limit = args.take_key("limit").map(str::to_owned);
    let terms = LimitTerms {
        concurrency: number(args, "concurrency")?,
        rate: number(args, "rate")?,
        period_ms: number(args, "period")?.unwrap_or(1000),
    };
    let states = words(Some(args.take_key("states").unwrap_or("available,active")));
    let unique = key.clone().map(|key| Unique { key, on_conflict, states, period_ms: None });
    let ojs = Ojs {
        queue: queue.clone(),
        visibility_ms: number(args, "visibility")?.unwrap_or(3000),
        limit: limit.clone(),
        unique: key,
        expires_at: number(args, "expires")?.map(Timestamp),
        ..Ojs::of("t")
    };
    let timeout_ms = number(args, "timeout")?.unwrap_or_default();
    let (charge, of_job) = budgets::budget(args, now, timeout_ms)?.unzip();
    let ojs = Ojs { budget: of_job.clone().map(Box::new), ..ojs };
    let max_retries = number::<u32>(args, "attempts")?.unwrap_or(1).saturating_sub(1);
    let own = Arc::new(JobOverrides {
        plan_id: plan_id.clone(),
        queue,
        needs: Needs { limit: limit.clone(), budget: of_job.map(|budget| budget.name), ..Needs::default() },
        terms: JobParams { max_retries, timeout_ms, ojs: Some(Box::new(ojs)), ..JobParams::default() },
        is_named: args.take_key("named").is_some(),
        unique,
        limit: limit.map(|_| terms),
    });
    let name = args.take_key("job").map(str::to_owned);
    let new_job = |n: u64| {
        let job_id = name.clone().unwrap_or_else(|| format!("{action_id}-{n}"));
        Ok::<_, Box<dyn Error>>(NewJob {
            job_id: JobId::new(job_id)?,
            input: "{}".into(),
            own: Some(Arc::clone(&own)),
        })
    };
    let jobs = (0..count).map(new_job).collect::<Result<_, _>>()?;
    let mut action = Action::new(action_id, plan_id, now);
    action.wishes.scheduling.inputs_hash = args.take_key("hash").map(str::to_owned);
    Ok(added(store, NewAction { charge, ..NewAction::new(action, jobs) }))
}

fn report(store: &dyn Store, name: &str, args: &mut Args<'_>) -> Answer {
    let job_id: JobId = id(args)?;
    let (now, is_ack) = (at(args)?, name == "ack");
    let missing = Rejection::JobNotFound(job_id.clone());
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        let job = job.ok_or_else(|| missing.clone())?;
        if is_ack {
            return job::acked(job, Reporter::default(), now);
        }
        let failure = ReportedFailure::noticed("broken", "it broke");
        job::nacked(job, Reporter::default(), &failure, false, now, 0.5)
    });
    Ok(show_ruled(store.decide(&job_id, AckLevel::Durable, None, rule), ok))
}
