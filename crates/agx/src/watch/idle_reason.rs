//! Reason why no job of an action runs.

use agenix_client::{ClientError, Connection};
use agenix_protocol::documents::{
    ActionStatus, Demand, JobStatus, QueueStats, StartRate, Status, WaitsFor, WorkerStatus,
};

use crate::{
    output::jobs,
    remote::{overview::permitted, retrying_client::RetryingClient},
    watch::unmet_needs,
};

/// Maximum number of waiting jobs that agx asks about to explain why no job runs.
const MAX_EXPLAINED: usize = 64;
/// Exit code of a task that asks for another try later (EX_TEMPFAIL of sysexits.h).
pub(crate) const TRY_LATER: i32 = 75;

/// Explains why the jobs of an action do not run. `needs` are the needs of the first waiting job,
/// because the needs of other jobs in its queue do not matter.
fn why_stuck(
    stats: &QueueStats,
    workers: &[WorkerStatus],
    queue: &str,
    needs: Option<&WaitsFor>,
) -> Option<String> {
    if stats.workers.active == 0 {
        return Some("there is no worker: start one with `agw`, or on this machine with `agx up`".into());
    }
    let own = stats.ready_of(queue)?;
    if own.paused {
        return Some(format!("the queue {queue} is paused; `agx queue resume {queue}` resumes it"));
    }
    let is_own = |demand: &&Demand| {
        needs.is_some_and(|needs| {
            (&demand.tools, &demand.tags, &demand.labels, &demand.sandbox, &demand.resources)
                == (&needs.tools, &needs.tags, &needs.labels, &needs.sandbox, &needs.resources)
        })
    };
    let unmet = own.needs.iter().filter(is_own).find(|demand| demand.workers == 0)?;
    Some(unmet_needs::describe(unmet, workers))
}

/// Explains, if possible, why no job of an action runs. If the key may not see workers and queues,
/// `sees_workers` becomes false, and only what agq explains about a job counts.
pub(super) async fn explain(
    agq: &mut RetryingClient,
    action: &ActionStatus,
    sees_workers: &mut bool,
) -> Option<String> {
    let cluster = if *sees_workers { cluster(agq).await.ok()? } else { None };
    *sees_workers = cluster.is_some();
    let (action_id, most) = (&action.action_id, MAX_EXPLAINED);
    let pending = async |agq: &mut Connection| agq.first_jobs(action_id, Status::Pending, most).await;
    let waiting = agq.with_retry(pending).await.ok()?;
    let first = match waiting.first() {
        Some(job_id) => Some(agq.with_retry(async |agq| agq.explain_job(job_id).await).await.ok()?),
        None => None,
    };
    let needs = first.as_ref().and_then(|first| first.waits_for.as_ref());
    let why = cluster.and_then(|(stats, workers)| why_stuck(&stats, &workers, &action.queue, needs));
    if why.is_some() {
        return why;
    }
    let waiting: Vec<JobStatus> = agq.jobs(&waiting).await.ok()?.into_iter().flatten().collect();
    why_later(&waiting).or_else(|| why_ready(&first?.reason, &action.queue, action.rate))
}

/// Returns the queues and the workers, or `None` if the key may not see them.
async fn cluster(agq: &mut RetryingClient) -> Result<Option<(QueueStats, Vec<WorkerStatus>)>, ClientError> {
    let stats = permitted(agq.with_retry(async |agq| agq.queue_stats().await).await)?;
    let workers = permitted(agq.with_retry(async |agq| agq.workers().await).await)?;
    Ok(stats.zip(workers))
}

/// Returns what agq explains about a waiting job, if waiting alone will not help or takes long.
/// Jobs with a rate start a moment after the rate permits them.
fn why_ready(reason: &str, queue: &str, rate: Option<StartRate>) -> Option<String> {
    let begins = |texts: &[&str]| texts.iter().any(|text| reason.starts_with(text));
    if let Some(rate) = rate.filter(|_| begins(&["Its limit"])) {
        return Some(format!("agx: nothing runs: the rate of this action is {rate}. {reason}"));
    }
    if begins(&["It waits because", "Its limit 'plan:", "Its queue '", "The budget of '"])
        || reason.contains("for the approval of")
    {
        return Some(format!("agx: no job of this action runs. The first one: {reason}"));
    }
    let in_queue = || format!("agx: nothing runs in the queue '{queue}'. {reason}");
    if begins(&["There is no worker"]) {
        return Some(in_queue());
    }
    if rate.is_some() {
        return None;
    }
    if reason.contains("a worker must ask for jobs") {
        return Some(format!(
            "agx: nothing runs: no worker asks for jobs of the queue '{queue}'; start one with `agw --queues {queue}`"
        ));
    }
    (begins(&["No worker"]) || reason.contains("for a larger job")).then(in_queue)
}

/// Returns the time until which all `waiting` jobs wait.
fn why_later(waiting: &[JobStatus]) -> Option<String> {
    let first = waiting.iter().min_by_key(|job| job.run_at)?;
    let (run_at, jobs) = (first.run_at?, jobs(waiting.len() as u64));
    let more = if waiting.len() == MAX_EXPLAINED { " or more" } else { "" };
    let why = match (first.state.as_str(), first.exit_code) {
        ("scheduled", Some(code @ TRY_LATER)) => {
            format!("input {} exited with code {code}, which asks for a later retry", first.index)
        }
        ("retryable", _) => format!("input {} failed and will be retried", first.index),
        _ => format!("input {} is not to run before", first.index),
    };
    Some(format!("agx: nothing runs: {jobs}{more} of this action wait for a time. {why}: at {run_at}"))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{JobStatus, QueueStats, WaitsFor, parse};

    use super::{why_later, why_ready, why_stuck};

    fn waiting(index: u64, state: &str, run_at: Option<&str>, exit_code: Option<i32>) -> JobStatus {
        let json = serde_json::json!({
            "job_id": "j", "action_id": "a", "plan_id": "p", "status": "pending", "state": state, "index": index,
            "attempt": 1, "queue": "ready", "priority": 0, "created_at": "2026-01-31T08:00:00.000Z",
            "run_at": run_at, "started_at": null, "completed_at": null, "worker_id": "w", "inputs": {},
            "exit_code": exit_code, "task_results": null,
        });
        parse(json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn progress_names_the_time_if_all_jobs_wait_for_one() {
        let (soon, later) = (Some("2026-01-31T08:00:30.000Z"), Some("2026-01-31T08:01:00.000Z"));
        let snoozed = [waiting(0, "scheduled", later, Some(75)), waiting(1, "scheduled", soon, Some(75))];
        let text = why_later(&snoozed).unwrap();
        assert!(text.contains("2 jobs") && text.contains("input 1 exited with code 75"), "{text}");
        assert!(text.ends_with("at 2026-01-31T08:00:30.000Z"), "{text}");
        let text = why_later(&[waiting(4, "retryable", soon, Some(1))]).unwrap();
        assert!(text.contains("input 4 failed and will be retried"), "{text}");
        assert_eq!(why_later(&[waiting(0, "available", None, None), snoozed[0].clone()]), None);
        assert_eq!(why_later(&[]), None);
    }

    #[test]
    fn progress_names_a_queue_without_workers() {
        let ready =
            "It is ready; 7 jobs like it are before it, and a worker must ask for jobs of the queue 'q'.";
        assert!(why_ready(ready, "q", None).unwrap().contains("`agw --queues q`"));
        let held_back = "It is ready; 0 jobs like it are before it; a worker keeps what is free for a larger job, or no worker asks for jobs of the queue 'q'.";
        assert!(why_ready(held_back, "q", None).unwrap().ends_with(held_back));
        let of_key = "It waits because 1 of at most 1 jobs with the concurrency key 'u' are running.";
        assert!(why_ready(of_key, "q", None).unwrap().ends_with(of_key));
        assert!(why_ready("Its limit 'plan:p' permits the next start in 9 s.", "q", None).is_some());
        assert!(
            why_ready("No worker that could run it accepts jobs now; w comes closest.", "q", None).is_some()
        );
        assert_eq!(
            why_ready("Every worker that could run it is busy; 3 jobs like it are before it.", "q", None),
            None
        );
    }

    #[test]
    fn progress_names_the_rate_that_delays_jobs() {
        let (rate, ready) =
            ("3/d".parse().ok(), "It is ready, and a worker must ask for jobs of the queue 'q'.");
        assert_eq!(why_ready(ready, "q", rate), None, "its worker gets it in a moment");
        assert!(why_ready("There is no worker.", "q", rate).is_some());
        let limited = why_ready("Its limit 'action:a' permits the next start in 9 s.", "q", rate);
        assert!(limited.unwrap().starts_with("agx: nothing runs: the rate of this action is 3/d. Its limit"));
    }

    #[test]
    fn progress_names_what_a_person_has_to_decide() {
        let rate = "3/d".parse().ok();
        for reason in [
            "It waits until 2026-01-31T08:00:30.000Z for the approval of an admin: `agx approve p` shows its plan.",
            "It waits for the approval of an admin: `agx approve p` shows its plan.",
            "The budget of 'client:robot' is used up: jobs 9 of 9, next when a job ends.",
            "Its queue 'q' is paused: QUEUE.RESUME q resumes it.",
        ] {
            for rate in [None, rate] {
                let why = why_ready(reason, "q", rate).unwrap();
                assert_eq!(why, format!("agx: no job of this action runs. The first one: {reason}"));
            }
        }
        let alone = why_ready("There is no worker.", "q", None);
        assert_eq!(alone.unwrap(), "agx: nothing runs in the queue 'q'. There is no worker.");
    }

    #[test]
    fn progress_ignores_unmet_needs_of_other_actions() {
        let stats: QueueStats = parse(
            br#"{"queue:ready":{"length":2,"oldest_job_age_seconds":0,"newest_job_age_seconds":0,"paused":false,
                "needs":[{"tools":["jq"],"length":1,"workers":0},{"tools":["sort"],"length":1,"workers":1},
                         {"tools":["sort"],"resources":{"cpus":64},"length":1,"workers":0}]},
                "queue:scheduled":{"length":0,"next_job_due_in_seconds":null},"workers":{"total":1,"active":1,"idle":0}}"#,
        )
        .unwrap();
        let needs = |tool: &str| {
            let json = format!(
                r#"{{"queue":"ready","priority":0,"tools":["{tool}"],"tags":[],"labels":{{}},"due_at":null,"paused":false}}"#
            );
            parse::<WaitsFor>(json.as_bytes()).unwrap()
        };
        assert_eq!(why_stuck(&stats, &[], "ready", Some(&needs("sort"))), None);
        assert!(why_stuck(&stats, &[], "ready", Some(&needs("jq"))).is_some());
        let large = WaitsFor { resources: parse(br#"{"cpus":64}"#).unwrap(), ..needs("sort") };
        assert!(why_stuck(&stats, &[], "ready", Some(&large)).unwrap().contains("cpus 64"));
        assert_eq!(why_stuck(&stats, &[], "ready", None), None, "none of its jobs waits");
    }
}
