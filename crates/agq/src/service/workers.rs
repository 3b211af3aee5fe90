//! Operations on workers: register, heartbeat, directives, unregister (the worker spec).

use agenix_protocol::{
    documents::{self, Directives, DrainMark, WorkerRegistration, WorkerStatus},
    ids::{JobId, WorkerId},
    limits::MAX_ACTIVE_JOBS,
};
use agenix_rules::{
    job,
    rejection::Rejection,
    worker::{self, Directive, Worker},
};
use serde_json::{Map, Value};

use super::{
    identity,
    job_changes::{if_exists, release_all},
    jobs::reclaim,
    worker_messages::{notify_worker, publish_worker_event},
};
use crate::{
    app::{AppState, Caller, is_connection},
    error::Result,
    store::{AckLevel, RuleResult, StoreError},
};

/// [`MAX_ACTIVE_JOBS`] as the length of a list.
pub(crate) const MAX_ACTIVE: usize = MAX_ACTIVE_JOBS as usize;

/// Jobs that an earlier run held go to other workers, but for those that the registration names.
pub(crate) async fn register(
    app: &AppState,
    caller: &Caller,
    mut registration: WorkerRegistration,
) -> Result<WorkerId> {
    worker::shorten_descriptions(&mut registration);
    let worker_id = registration.worker_id.clone();
    identity::check_own(caller, &worker_id)?;
    if registration.active_job_ids.as_ref().is_some_and(|jobs| jobs.len() > MAX_ACTIVE) {
        let text = format!("active_job_ids: more than {MAX_ACTIVE} ids");
        return Err(Rejection::InvalidRegistration(text).into());
    }
    let known = app.store.worker(&worker_id).await?;
    let is_new_run = known.as_ref().is_some_and(|known| worker::is_new_run(known, &registration));
    let listed = registration.active_job_ids.take();
    // Without a list, the record names the new run only after the jobs of the earlier one are taken
    // back. Otherwise a registration that is repeated after a crash would not take them back.
    let earlier = known.and_then(|known| known.instance).filter(|_| is_new_run && listed.is_none());
    let (run, is_named_later) = (registration.instance.clone(), earlier.is_some());
    let has = listed.or(is_new_run.then(Vec::new));
    worker::check_connection(caller.registered.as_ref(), &worker_id)?;
    let (connection, now, text) =
        (caller.connection.clone(), app.clock.now(), documents::to_json(&registration));
    // The record has the maximum silence, because the agq that detects silent workers may have
    // other settings.
    let silence_ms = Some(app.settings.silence_ms());
    let rule = move |known: Option<&Worker>| {
        let mut registered = worker::registered(known, &registration, &connection, now)?;
        if earlier.is_some() {
            registered.instance.clone_from(&earlier);
        }
        Ok(Some(Worker { silence_ms, ..registered }))
    };
    app.store.decide_worker(&worker_id, AckLevel::Durable, Some(text), Box::new(rule)).await??;
    if is_new_run {
        app.outcomes.forget(&worker_id);
    }
    // The waiting claims belong to the earlier run or use the earlier record.
    app.waiters.evict(worker_id.as_str());
    reclaim(app, &worker_id, has).await?;
    if is_named_later {
        name_run(app, caller, &worker_id, run).await?;
    }
    publish_worker_event(app, &worker_id, "registered");
    Ok(worker_id)
}

/// Names the run of a worker in its record. A crash that loses the name loses every later claim of
/// the worker, too.
async fn name_run(
    app: &AppState,
    caller: &Caller,
    worker_id: &WorkerId,
    instance: Option<String>,
) -> Result<()> {
    let connection = caller.connection.clone();
    let rule = move |known: Option<&Worker>| {
        Ok(known.and_then(|known| worker::run_named(known, &connection, instance.as_deref())))
    };
    Ok(app.store.decide_worker(worker_id, AckLevel::Applied, None, Box::new(rule)).await??)
}

pub(crate) async fn heartbeat(
    app: &AppState,
    caller: &Caller,
    worker_id: &WorkerId,
    stats: Option<Map<String, Value>>,
) -> Result<Directives> {
    identity::check_own(caller, worker_id)?;
    if let Some(stats) = &stats {
        worker::check_stats(stats)?;
    }
    let active = stats.as_ref().map(active_job_ids).transpose()?.unwrap_or_default();
    let is_quiet = stats.as_ref().and_then(|stats| stats.get("quiet")?.as_bool()).unwrap_or_default();
    let text = stats.as_ref().map(documents::to_json);
    let (now, id) = (app.clock.now(), worker_id.clone());
    let rule = move |known: Option<&Worker>| {
        let known = known.ok_or_else(|| Rejection::WorkerUnknown(id.clone()))?;
        worker::heartbeat(known, text.as_deref(), is_quiet, now).map(Some)
    };
    app.store.decide_worker(worker_id, AckLevel::Applied, None, Box::new(rule)).await??;
    directives(app, caller, worker_id, &active).await
}

/// A number in `active_jobs` names no job.
fn active_job_ids(stats: &Map<String, Value>) -> Result<Vec<JobId>, Rejection> {
    let listed = worker::listed_jobs(stats).map(|(_, ids)| ids).unwrap_or_default();
    let ids = listed.iter().map(|id| {
        let text = id.as_str().ok_or("an id is not a string".to_owned());
        text.and_then(|text| JobId::new(text).map_err(|error| error.to_string()))
    });
    let ids = ids.take(MAX_ACTIVE + 1).collect::<Result<Vec<_>, _>>();
    let ids = ids.and_then(|ids| {
        let too_many = || format!("more than {MAX_ACTIVE} ids");
        if ids.len() > MAX_ACTIVE { Err(too_many()) } else { Ok(ids) }
    });
    ids.map_err(|error| Rejection::InvalidStats(format!("active_job_ids: {error}")))
}

/// Renews the claims. Jobs that the worker does not hold are to be cancelled.
async fn directives(
    app: &AppState,
    caller: &Caller,
    worker_id: &WorkerId,
    active: &[JobId],
) -> Result<Directives> {
    let mut cancel = Vec::new();
    for job_id in active {
        let job = app.store.job_record(job_id).await?;
        // A connection that claimed the job in its own name may belong to the worker.
        let is_possible = |holder: &&str| *holder == worker_id.as_str() || WorkerId::new(*holder).is_err();
        let Some((job, holder)) = job.as_ref().and_then(|job| {
            let holder = job.active_holder().filter(is_possible)?;
            Some((job, holder.to_owned()))
        }) else {
            cancel.push(job_id.clone());
            continue;
        };
        let is_own = holder == worker_id.as_str() || holder == *caller.connection;
        if is_own && !job.is_confirmed {
            let rule = if_exists(move |job| job::renewed(job, &holder));
            app.store.decide(job_id, AckLevel::Applied, None, rule).await??;
        }
    }
    let directive = app.store.worker(worker_id).await?.and_then(|worker| worker.directive);
    Ok(Directives {
        drain: directive == Some(Directive::Drain),
        terminate: directive == Some(Directive::Terminate),
        cancel,
        verify: app.challenges.of(worker_id),
    })
}

/// The jobs return to their queues.
pub(crate) async fn unregister(app: &AppState, caller: &Caller, worker_id: &WorkerId) -> Result<()> {
    identity::check_own(caller, worker_id)?;
    if remove(app, worker_id).await? { Ok(()) } else { Err(Rejection::NotRegistered.into()) }
}

/// Returns false if there is no such worker.
pub(crate) async fn remove(app: &AppState, worker_id: &WorkerId) -> Result<bool> {
    // The worker is removed first, so that it claims no further job. The reaper finds the jobs
    // after a crash.
    if !app.store.remove_worker(worker_id).await? {
        return Ok(false);
    }
    app.waiters.evict(worker_id.as_str());
    app.capabilities.forget(worker_id);
    app.outcomes.forget(worker_id);
    release_all(app, worker_id.as_str()).await?;
    publish_worker_event(app, worker_id, "unregistered");
    Ok(true)
}

pub(crate) async fn registration(
    app: &AppState,
    worker_id: &WorkerId,
) -> Result<Option<WorkerRegistration>, StoreError> {
    let text = app.store.registration(worker_id).await?;
    Ok(text.and_then(|text| documents::parse(text.as_bytes()).ok()))
}

/// `None` removes the directive.
pub(crate) async fn set_directive(
    app: &AppState,
    worker_id: &WorkerId,
    directive: Option<Directive>,
) -> Result<()> {
    direct(app, worker_id, directive, move |known| worker::directed(known, directive)).await
}

/// Drains a worker for the program `by`.
pub(crate) async fn drain_by(app: &AppState, worker_id: &WorkerId, by: String) -> Result<()> {
    let mark = DrainMark { by, at: app.clock.now() };
    let rule = move |known: &Worker| worker::drained(known, mark.clone());
    direct(app, worker_id, Some(Directive::Drain), rule).await
}

/// Changes the record of a worker by `rule`, and sends `directive` to the worker.
async fn direct(
    app: &AppState,
    worker_id: &WorkerId,
    directive: Option<Directive>,
    rule: impl Fn(&Worker) -> RuleResult<Worker> + Send + Sync + 'static,
) -> Result<()> {
    let id = worker_id.clone();
    let rule = move |known: Option<&Worker>| {
        rule(known.ok_or_else(|| Rejection::WorkerUnknown(id.clone()))?).map(Some)
    };
    app.store.decide_worker(worker_id, AckLevel::Durable, None, Box::new(rule)).await??;
    if directive.is_none() {
        app.outcomes.forget(worker_id);
    }
    // Evicts the waiting claims of the worker, because they use its earlier record.
    app.waiters.evict(worker_id.as_str());
    let event = match directive {
        None => "resumed",
        Some(Directive::Drain) => "draining",
        Some(Directive::Terminate) => "terminating",
    };
    publish_worker_event(app, worker_id, event);
    notify_worker(app, worker_id.as_str());
    Ok(())
}

/// Records that the connection on which a worker registered is closed.
pub(crate) async fn detach(app: &AppState, worker_id: &WorkerId, connection: &str) -> Result<()> {
    let connection = connection.to_owned();
    let rule =
        move |known: Option<&Worker>| Ok(known.and_then(|worker| worker::detached(worker, &connection)));
    Ok(app.store.decide_worker(worker_id, AckLevel::Applied, None, Box::new(rule)).await??)
}

/// Lets workers register again, and returns jobs of connections, because none is open any more.
pub(crate) async fn recover_after_restart(app: &AppState) -> Result<()> {
    if app.store.node().is_some() {
        // Nodes share the store, and the reaper of the leader finds the closed connections.
        return Ok(());
    }
    for worker in app.store.worker_records().await? {
        if let Some(connection) = &worker.connection {
            detach(app, &worker.worker_id, connection).await?;
        }
    }
    for holder in app.store.holders().await? {
        if is_connection(&holder) {
            release_all(app, &holder).await?;
        }
    }
    Ok(())
}

pub(crate) async fn list(app: &AppState) -> Result<Vec<WorkerStatus>> {
    let mut used = app.store.used_resources(None).await?;
    let mut statuses = Vec::new();
    for (worker, jobs) in app.store.workers().await? {
        let used = used.remove(worker.worker_id.as_str()).unwrap_or_default();
        statuses.push(worker.status(registration(app, &worker.worker_id).await?, jobs, used));
    }
    Ok(statuses)
}

pub(crate) async fn status(app: &AppState, worker_id: &WorkerId) -> Result<Option<WorkerStatus>> {
    let Some(worker) = app.store.worker(worker_id).await? else { return Ok(None) };
    let jobs = app.store.held_by(worker_id.as_str()).await?.len() as u64;
    let mut used = app.store.used_resources(Some(worker_id.as_str())).await?;
    let used = used.remove(worker_id.as_str()).unwrap_or_default();
    Ok(Some(worker.status(registration(app, worker_id).await?, jobs, used)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agenix_protocol::{
        documents::{WorkerRegistration, parse},
        ids::WorkerId,
    };
    use agenix_rules::{capability::ClaimantCapabilities, job};
    use futures_util::FutureExt;

    use super::{MAX_ACTIVE, active_job_ids, detach, register};
    use crate::{
        app::{AppState, Caller, Submitter},
        service::{action_submission, job_changes::if_exists, plans},
        startup::services::without_tasks,
        store::{AckLevel, Claimant},
    };

    /// Registers run `instance` of a worker that does not list its jobs.
    async fn register_run(app: &AppState, connection: &str, instance: &str) {
        let caller = Caller::new(connection.into(), 1, "test", None);
        let json = format!(r#"{{"worker_id":"w","capabilities":["true"],"instance":"{instance}"}}"#);
        register(app, &caller, parse(json.as_bytes()).unwrap()).await.unwrap();
    }

    #[tokio::test]
    async fn interrupted_registration_of_a_new_run_takes_the_jobs_of_the_earlier_run_back_when_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let plan = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#;
        plans::submit(&app, Submitter::NOBODY, plan).await.unwrap();
        let action = parse(br#"{"plan_id":"p","inputs":[{}]}"#).unwrap();
        action_submission::submit(&app, Submitter::NOBODY, action).await.unwrap();
        register_run(&app, "connection:1", "first").await;
        let claimant = Claimant {
            holder: "w".into(),
            capabilities: Arc::new(ClaimantCapabilities::Anything),
            queues: Arc::new(["ready".to_owned()]),
            share_terms: Arc::default(),
            visibility_ms: None,
        };
        let claim = app.waiters.jobs_now(&claimant, 1).await.unwrap().pop().expect("a job is ready").take();
        let job_id = claim.job.job_id;
        let confirmed = if_exists(|job| job::renewed(job, "w"));
        app.store.decide(&job_id, AckLevel::Durable, None, confirmed).await.unwrap().unwrap();
        let worker_id: WorkerId = "w".parse().unwrap();
        detach(&app, &worker_id, "connection:1").await.unwrap();
        // The first write of the second run is carried out, and nothing after it.
        assert!(register_run(&app, "connection:2", "second").now_or_never().is_none());
        app.store.wait_until_applied().await.unwrap();
        let holder = async || {
            let job = app.store.job_record(&job_id).await.unwrap().unwrap();
            job.active_holder().map(str::to_owned)
        };
        assert_eq!(holder().await.as_deref(), Some("w"));
        register_run(&app, "connection:2", "second").await;
        assert_eq!(holder().await, None);
        let known = app.store.worker(&worker_id).await.unwrap().unwrap();
        assert_eq!(known.instance.as_deref(), Some("second"));
    }

    #[tokio::test]
    async fn registration_lists_a_bounded_number_of_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let caller = Caller::new("connection:1".into(), 1, "test", None);
        let with = |count: usize| {
            let jobs = (0..count).map(|number| format!("j{number}").parse().unwrap()).collect();
            let registration = WorkerRegistration::of("w".parse().unwrap());
            WorkerRegistration { active_job_ids: Some(jobs), ..registration }
        };
        register(&app, &caller, with(MAX_ACTIVE)).await.unwrap();
        let refused = register(&app, &caller, with(MAX_ACTIVE + 1)).await.unwrap_err().line();
        assert_eq!(refused, "ERR Invalid worker registration: active_job_ids: more than 10000 ids");
    }

    #[test]
    fn heartbeat_accepts_active_jobs_as_a_number_or_a_list() {
        let ids = |json: &str| active_job_ids(&serde_json::from_str(json).unwrap()).map(|ids| ids.len());
        assert_eq!(ids(r#"{"active_jobs":2}"#), Ok(0));
        assert_eq!(ids(r#"{"active_jobs":["j1","j2"]}"#), Ok(2));
        assert_eq!(ids(r#"{"active_jobs":2,"active_job_ids":["j1"]}"#), Ok(1));
        assert!(ids(r#"{"active_job_ids":[7]}"#).is_err() && ids(r#"{"active_job_ids":["a b"]}"#).is_err());
    }
}
