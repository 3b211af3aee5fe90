//! Queues: what is in them, whether they give jobs, and how many they take.

use std::collections::{BTreeSet, HashMap};

use agenix_protocol::{documents::to_json, ids::QueueName, names::SCHEDULED};
use agenix_rules::{job::JobState, limit::Limit, rejection::Rejection};

use crate::{
    app::AppState,
    error::CommandError,
    registry::queue_limits::{Backpressure, QueueSettings},
    store::{DocumentChange, DocumentKind, QueueCounts, StoreError},
};

/// How full a queue is that has a bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct QueueRoom {
    pub(crate) depth: u64,
    pub(crate) bound: u64,
    /// Whether whoever submits is to be warned.
    pub(crate) is_tight: bool,
}

/// A queue's name, as any door takes it.
pub(crate) fn check(queue: &str) -> Result<(), Rejection> {
    QueueName::new(queue).map(drop).map_err(|error| Rejection::InvalidJob(error.to_string()))
}

/// The bound of a queue.
async fn bound(app: &AppState, queue: &str) -> Result<Option<Backpressure>, CommandError> {
    let now = app.clock.now();
    if let Some(known) = app.bounds.known(queue, now) {
        return Ok(known);
    }
    let notes = app.store.documents(DocumentKind::Queue).await?;
    let bounds: HashMap<String, Backpressure> = notes
        .iter()
        .filter_map(|(queue, json)| {
            Some((queue.clone(), serde_json::from_str::<QueueSettings>(json).ok()?.backpressure?))
        })
        .collect();
    let found = bounds.get(queue).cloned();
    app.bounds.set(Some((now, bounds)));
    Ok(found)
}

/// What is set for a queue.
pub(crate) async fn queue_settings(app: &AppState, queue: &str) -> Result<QueueSettings, CommandError> {
    let note = app.store.document(DocumentKind::Queue, queue).await?;
    let broken = |error: serde_json::Error| {
        StoreError(format!("the settings of queue {queue} cannot be read: {error}"))
    };
    Ok(note.map(|note| serde_json::from_str(&note)).transpose().map_err(broken)?.unwrap_or_default())
}

/// Sets what is set for a queue: what is not said stays as it was.
pub(crate) async fn configure(
    app: &AppState,
    queue: &str,
    settings: QueueSettings,
) -> Result<QueueSettings, CommandError> {
    check(queue)?;
    if let Some(bound) = &settings.backpressure {
        if bound.strategy != "reject" {
            let text = format!("backpressure.strategy is '{}': agq knows reject alone", bound.strategy);
            return Err(Rejection::InvalidJob(text).into());
        }
        if !(0.0..=1.0).contains(&bound.warning_threshold) {
            let text = "backpressure.warning_threshold is to be a number from 0 to 1";
            return Err(Rejection::InvalidJob(text.into()).into());
        }
    }
    let rule = move |known: Option<&str>| {
        let known = known.and_then(|known| serde_json::from_str::<QueueSettings>(known).ok());
        let mut next = known.unwrap_or_default();
        next.backpressure = settings.backpressure.clone().or(next.backpressure);
        next.others.extend(settings.others.clone());
        Ok(DocumentChange::Put(to_json(&next)))
    };
    app.store.update_document(DocumentKind::Queue, queue, Box::new(rule)).await??;
    app.bounds.set(None);
    queue_settings(app, queue).await
}

/// How full a queue is; `None` where it has no bound.
pub(crate) async fn room(app: &AppState, queue: &str) -> Result<Option<QueueRoom>, CommandError> {
    let Some(bound) = bound(app, queue).await? else { return Ok(None) };
    let counts = app.store.queue_counts().await?.remove(queue).unwrap_or_default();
    let depth = counts[JobState::Available as usize];
    #[expect(clippy::cast_precision_loss, reason = "a queue of 2^52 jobs is full anyway")]
    let is_tight = depth as f64 >= bound.max_depth as f64 * bound.warning_threshold;
    Ok(Some(QueueRoom { depth, bound: bound.max_depth, is_tight }))
}

/// Whether queues take so many more jobs. Those who submit at the same moment may pass the bound together.
pub(crate) async fn check_room(app: &AppState, coming: &HashMap<String, u64>) -> Result<(), CommandError> {
    for (queue, count) in coming {
        if let Some(QueueRoom { depth, bound, .. }) = room(app, queue).await?
            && depth.saturating_add(*count) > bound
        {
            return Err(Rejection::QueueFull { queue: queue.clone(), depth, bound }.into());
        }
    }
    Ok(())
}

/// Lets a queue give no jobs, or give them again.
pub(crate) async fn pause(app: &AppState, queue: &str, paused: bool) -> Result<(), CommandError> {
    check(queue)?;
    let queue = QueueName::new(queue).map_err(|error| Rejection::InvalidJob(error.to_string()))?;
    set_paused(app, &queue, paused).await
}

/// Pauses or resumes a queue.
pub(crate) async fn set_paused(app: &AppState, queue: &QueueName, paused: bool) -> Result<(), CommandError> {
    check_name(queue)?;
    Ok(app.store.set_paused(queue.as_str(), paused).await?)
}

/// `scheduled` counts jobs that wait for a time; it is no queue that could be paused.
pub(crate) fn check_name(queue: &QueueName) -> Result<(), Rejection> {
    match queue.as_str() {
        SCHEDULED => Err(Rejection::UnknownQueue(SCHEDULED.into())),
        _ => Ok(()),
    }
}

/// Every queue that has jobs, settings, or gives none, with its counts and whether it gives none.
pub(crate) async fn queue_states(app: &AppState) -> Result<Vec<(String, [u64; 8], bool)>, CommandError> {
    let counts: QueueCounts = app.store.queue_counts().await?;
    let paused = app.store.paused().await?;
    let settled = app.store.documents(DocumentKind::Queue).await?;
    let settled = settled.iter().map(|(queue, _)| queue);
    let names: BTreeSet<&String> = counts.keys().chain(&paused).chain(settled).collect();
    let state =
        |name: &String| (name.clone(), counts.get(name).copied().unwrap_or_default(), paused.contains(name));
    Ok(names.into_iter().map(state).collect())
}

/// The counts of a queue, and whether it gives no jobs.
pub(crate) async fn queue_counts(app: &AppState, queue: &str) -> Result<([u64; 8], bool), CommandError> {
    check(queue)?;
    let counts = app.store.queue_counts().await?.remove(queue).unwrap_or_default();
    Ok((counts, app.store.paused().await?.iter().any(|paused| paused == queue)))
}

/// A limit and how far it is used up.
pub(crate) async fn limit(app: &AppState, key: &str) -> Result<Option<Limit>, CommandError> {
    if key.contains('\0') {
        return Ok(None);
    }
    let note = app.store.document(DocumentKind::Limit, key).await?;
    let broken = |error: serde_json::Error| StoreError(format!("the limit {key} cannot be read: {error}"));
    Ok(note.map(|note| serde_json::from_str(&note)).transpose().map_err(broken)?)
}
