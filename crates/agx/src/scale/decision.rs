//! Decision of `agx scale`: whether to start workers, to end an idle one, or to do nothing.

use std::time::Duration;

use agenix_protocol::{documents::WorkerStatus, time::Timestamp};

use super::{
    history::ScaleHistory,
    shortage::{has_only_room, shortage},
    terms::ScaleTerms,
    view::View,
};
use crate::output::counted;

/// Decision with its reason, for people.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ScaleDecision {
    /// Start `count` workers.
    Up { count: u64, reason: String },
    /// End the idle `worker`.
    Down { worker: Box<WorkerStatus>, reason: String },
    /// Let the drained `worker` take jobs again.
    Resume { worker: Box<WorkerStatus>, reason: String },
    /// Leave the workers as they are.
    Nothing { reason: String },
}

/// Decides at `now`, the time of agx. `history` includes what `view` shows.
pub(crate) fn decide(
    terms: &ScaleTerms,
    history: &ScaleHistory,
    view: &View,
    now: Timestamp,
) -> ScaleDecision {
    if let Some(decision) = abandoned(terms, history, view) {
        return decision;
    }
    let (active, starting) = (view.active().count() as u64, history.starting());
    let shortage = shortage(view, history.model(), terms.max);
    let below_min = terms.min.saturating_sub(active + starting);
    let is_due = history.short_since().is_some_and(|since| is_over(since, terms.up_after, now));
    let for_jobs = if is_due { shortage.workers.saturating_sub(starting) } else { 0 };
    let count = below_min.max(for_jobs);
    let most = if terms.can_start { terms.max.saturating_sub(view.live() + starting) } else { 0 };
    let permitted = count.min(most);
    if permitted > 0 {
        let reason = if permitted <= for_jobs {
            lack(shortage.jobs)
        } else {
            format!("{} fewer than --min {}", are(active + starting), terms.min)
        };
        return ScaleDecision::Up { count: permitted, reason };
    }
    if shortage.jobs > 0 {
        let because = match count {
            _ if !terms.can_start => "there is no --up".to_owned(),
            0 if shortage.workers > starting => "less than --up-after ago".to_owned(),
            0 => format!("{} starting", are(starting)),
            _ => format!("there are --max {} workers already", terms.max),
        };
        return ScaleDecision::Nothing { reason: format!("{}, and {because}", lack(shortage.jobs)) };
    }
    down(terms, history, view, now)
}

/// Returns the decision about a worker that an earlier scaler has drained, and has not ended: to
/// let the worker take jobs again if it has a job, or if workers are missing, and otherwise to end
/// it.
fn abandoned(terms: &ScaleTerms, history: &ScaleHistory, view: &View) -> Option<ScaleDecision> {
    if !terms.can_end {
        return None;
    }
    let is_below_min = view.active().count() as u64 + history.starting() < terms.min;
    let worker = view.abandoned(terms.abandoned_after()).min_by_key(|worker| &worker.worker_id)?;
    let why = match () {
        () if worker.active_jobs > 0 => Some("it has a job"),
        () if has_only_room(worker, view) => Some("jobs wait for a worker with room"),
        () if is_below_min => Some("there are fewer workers than --min"),
        () => None,
    };
    let worker = Box::new(worker.clone());
    let was = "an agx scale that has ended left it drained";
    Some(match why {
        Some(why) => ScaleDecision::Resume { worker, reason: format!("{was}, and {why}") },
        None => ScaleDecision::Down { worker, reason: was.to_owned() },
    })
}

/// Returns the decision without a shortage: to end the worker that has been idle for the longest
/// time, if it may end.
fn down(terms: &ScaleTerms, history: &ScaleHistory, view: &View, now: Timestamp) -> ScaleDecision {
    let nothing = |reason: &str| ScaleDecision::Nothing { reason: reason.to_owned() };
    if !terms.can_end || view.active().count() as u64 <= terms.min {
        return nothing("no job lacks a worker");
    }
    let idle = view.active().filter_map(|worker| Some((history.idle_since(&worker.worker_id)?, worker)));
    let due = idle.filter(|(since, _)| is_over(*since, terms.down_after, now));
    let free = due.filter(|(_, worker)| !has_only_room(worker, view));
    match free.min_by_key(|(since, worker)| (*since, worker.worker_id.clone())) {
        Some((since, worker)) => ScaleDecision::Down {
            worker: Box::new(worker.clone()),
            reason: format!("it has been idle for {} s", now.ms_since(since) / 1000),
        },
        None => nothing("no job lacks a worker, and no worker has been idle for --down-after"),
    }
}

fn is_over(since: Timestamp, wait: Duration, now: Timestamp) -> bool {
    u128::from(now.ms_since(since)) >= wait.as_millis()
}

fn lack(count: u64) -> String {
    format!("{} for a worker with room", counted(count, "job waits", "jobs wait"))
}

fn are(workers: u64) -> String {
    counted(workers, "worker is", "workers are")
}
