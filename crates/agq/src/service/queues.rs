//! Queues: counts, pauses, settings, and bounds. A bound is the backpressure of a queue.

use std::collections::{BTreeSet, HashMap};

use agenix_protocol::{documents::to_json, ids::QueueName, reserved_keys::SCHEDULED};
use agenix_rules::{job::JobState, limit::Limit, rejection::Rejection};

use super::lookup;
use crate::{
    app::AppState,
    error::Result,
    registry::queue_limits::{Backpressure, QueueChanges, QueueSettings},
    store::{DocumentChange, DocumentKind, QueueCounts},
};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct QueueFillLevel {
    pub(crate) depth: u64,
    pub(crate) bound: u64,
    /// True if the queue is so full that submissions get a warning.
    pub(crate) is_nearly_full: bool,
}

pub(crate) fn check(queue: &str) -> Result<QueueName, Rejection> {
    QueueName::new(queue).map_err(|error| Rejection::InvalidJob(error.to_string()))
}

/// The bounds of all queues are cached.
async fn bound(app: &AppState, queue: &str) -> Result<Option<Backpressure>> {
    let now = app.clock.now();
    if let Some(known) = app.queue_limits.known(queue, now) {
        return Ok(known);
    }
    let documents = app.store.documents(DocumentKind::Queue).await?;
    let bound = |(queue, json): (String, String)| {
        Some((queue, serde_json::from_str::<QueueSettings>(&json).ok()?.backpressure?))
    };
    let bounds: HashMap<String, Backpressure> = documents.into_iter().filter_map(bound).collect();
    let found = bounds.get(queue).cloned();
    app.queue_limits.set(Some((now, bounds)));
    Ok(found)
}

pub(crate) async fn queue_settings(app: &AppState, queue: &str) -> Result<QueueSettings> {
    let document = app.store.document(DocumentKind::Queue, queue).await?;
    let settings = document.map(|json| lookup::parse("settings of queue", queue, &json)).transpose()?;
    Ok(settings.unwrap_or_default())
}

/// Returns all settings. Settings that are missing in `changes` do not change. A null removes the
/// bound of the queue.
pub(crate) async fn configure(app: &AppState, queue: &str, changes: QueueChanges) -> Result<QueueSettings> {
    check(queue)?;
    if let Some(Some(bound)) = &changes.backpressure {
        if bound.strategy != "reject" {
            let text = format!("backpressure.strategy is '{}': agq supports only 'reject'", bound.strategy);
            return Err(Rejection::InvalidJob(text).into());
        }
        if !(0.0..=1.0).contains(&bound.warning_threshold) {
            let text = "backpressure.warning_threshold has to be a number from 0 to 1";
            return Err(Rejection::InvalidJob(text.into()).into());
        }
    }
    let rule = move |known: Option<&str>| {
        let known = known.and_then(|known| serde_json::from_str::<QueueSettings>(known).ok());
        let mut next = known.unwrap_or_default();
        next.backpressure = changes.backpressure.clone().unwrap_or(next.backpressure);
        next.others.extend(changes.others.clone());
        Ok(DocumentChange::Put(to_json(&next)))
    };
    app.store.update_document(DocumentKind::Queue, queue, Box::new(rule)).await??;
    app.queue_limits.set(None);
    queue_settings(app, queue).await
}

/// Returns `None` if the queue has no bound.
pub(crate) async fn fill_level(app: &AppState, queue: &str) -> Result<Option<QueueFillLevel>> {
    let Some(bound) = bound(app, queue).await? else { return Ok(None) };
    let counts = app.store.queue_counts().await?.remove(queue).unwrap_or_default();
    let depth = counts[JobState::Available as usize];
    #[expect(clippy::cast_precision_loss, reason = "a queue of 2^52 jobs is full anyway")]
    let is_nearly_full = depth as f64 >= bound.max_depth as f64 * bound.warning_threshold;
    Ok(Some(QueueFillLevel { depth, bound: bound.max_depth, is_nearly_full }))
}

/// `added` is the number of new jobs by queue. Concurrent submissions may exceed a bound together.
pub(crate) async fn check_capacity(app: &AppState, added: &HashMap<String, u64>) -> Result<()> {
    // An open action begins without inputs, and needs no room.
    for (queue, count) in added.iter().filter(|(_, count)| **count > 0) {
        if let Some(QueueFillLevel { depth, bound, .. }) = fill_level(app, queue).await?
            && depth.saturating_add(*count) > bound
        {
            return Err(Rejection::QueueFull { queue: queue.clone(), depth, bound }.into());
        }
    }
    Ok(())
}

pub(crate) async fn pause(app: &AppState, queue: &str, paused: bool) -> Result<()> {
    set_paused(app, &check(queue)?, paused).await
}

pub(crate) async fn set_paused(app: &AppState, queue: &QueueName, paused: bool) -> Result<()> {
    check_name(queue)?;
    Ok(app.store.set_paused(queue.as_str(), paused).await?)
}

/// Rejects `scheduled`, which is not a queue but counts the jobs that wait for a time.
pub(crate) fn check_name(queue: &QueueName) -> Result<(), Rejection> {
    match queue.as_str() {
        SCHEDULED => Err(Rejection::UnknownQueue(SCHEDULED.into())),
        _ => Ok(()),
    }
}

/// Returns queues with jobs, settings or a pause, their counts by state, and true for a pause.
pub(crate) async fn queue_states(app: &AppState) -> Result<Vec<(String, [u64; 8], bool)>> {
    let counts: QueueCounts = app.store.queue_counts().await?;
    let paused = app.store.paused().await?;
    let configured = app.store.documents(DocumentKind::Queue).await?;
    let configured = configured.iter().map(|(queue, _)| queue);
    let names: BTreeSet<&String> = counts.keys().chain(&paused).chain(configured).collect();
    let state =
        |name: &String| (name.clone(), counts.get(name).copied().unwrap_or_default(), paused.contains(name));
    Ok(names.into_iter().map(state).collect())
}

pub(crate) async fn length(app: &AppState, queue: &QueueName) -> Result<u64> {
    let lanes = app.store.lanes().await?;
    Ok(lanes.iter().filter(|lane| lane.queue == queue.as_str()).map(|lane| lane.length).sum())
}

/// The boolean is true if the queue is paused.
pub(crate) async fn queue_counts(app: &AppState, queue: &str) -> Result<([u64; 8], bool)> {
    check(queue)?;
    let counts = app.store.queue_counts().await?.remove(queue).unwrap_or_default();
    Ok((counts, app.store.paused().await?.iter().any(|paused| paused == queue)))
}

pub(crate) async fn limit(app: &AppState, key: &str) -> Result<Option<Limit>> {
    if key.contains('\0') {
        return Ok(None);
    }
    let document = app.store.document(DocumentKind::Limit, key).await?;
    Ok(document.map(|json| lookup::parse("limit", key, &json)).transpose()?)
}
