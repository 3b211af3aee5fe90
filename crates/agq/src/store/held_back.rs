//! Ready jobs that limits and budgets hold back, calculated by lanes.

use std::collections::HashMap;

use agenix_protocol::time::Timestamp;
use agenix_rules::{budget::Usage, limit::Limit};
use serde::de::DeserializeOwned;

use super::{DocumentKind, LaneSummary, Store, StoreError};

/// Numbers of jobs that may still start, by the limit or the budget.
type FreeStarts = HashMap<String, u64>;

/// Returns for each lane the number of its jobs that would not start at `now` even if all workers
/// were free, because of their limit or budget. Lanes with one limit or budget share what that
/// permits, those with the oldest jobs first, and those of `paused` queues last.
pub(crate) async fn of_lanes(
    store: &dyn Store,
    lanes: &[LaneSummary],
    paused: &[String],
    now: Timestamp,
) -> Result<Vec<u64>, StoreError> {
    let mut limits = free_starts_of_limits(store, lanes, now).await?;
    let mut budgets = free_starts_of_budgets(store, lanes, now).await?;
    let mut ordered: Vec<(usize, &LaneSummary)> = lanes.iter().enumerate().collect();
    ordered.sort_by_key(|(_, lane)| (paused.contains(&lane.queue), lane.span.0, &lane.queue));
    let mut all = vec![0; lanes.len()];
    for (place, lane) in ordered {
        let mut limit = lane.needs.limit.as_ref().and_then(|key| limits.get_mut(key));
        let mut budget = lane.needs.budget.as_ref().and_then(|name| budgets.get_mut(name));
        let free = [&limit, &budget].into_iter().flatten().map(|free| **free).min().unwrap_or(u64::MAX);
        let starts = lane.length.min(free);
        for free in [&mut limit, &mut budget].into_iter().flatten() {
            **free -= starts;
        }
        all[place] = lane.length - starts;
    }
    Ok(all)
}

async fn free_starts_of_limits(
    store: &dyn Store,
    lanes: &[LaneSummary],
    now: Timestamp,
) -> Result<FreeStarts, StoreError> {
    if lanes.iter().all(|lane| lane.needs.limit.is_none()) {
        return Ok(FreeStarts::new());
    }
    let documents = store.documents(DocumentKind::Limit).await?;
    let free = |(key, json): (String, String)| {
        let limit: Limit = parse(DocumentKind::Limit, &key, &json)?;
        Ok((key, limit.free_starts(now)))
    };
    documents.into_iter().map(free).collect()
}

async fn free_starts_of_budgets(
    store: &dyn Store,
    lanes: &[LaneSummary],
    now: Timestamp,
) -> Result<FreeStarts, StoreError> {
    let mut free = FreeStarts::new();
    for name in lanes.iter().filter_map(|lane| lane.needs.budget.as_ref()) {
        if free.contains_key(name) {
            continue;
        }
        let Some(json) = store.document(DocumentKind::Budget, name).await? else { continue };
        let usage: Usage = parse(DocumentKind::Budget, name, &json)?;
        free.insert(name.clone(), usage.free_starts(now));
    }
    Ok(free)
}

fn parse<T: DeserializeOwned>(kind: DocumentKind, id: &str, json: &str) -> Result<T, StoreError> {
    let unreadable = |error| StoreError(format!("the {} {id} cannot be read: {error}", kind.as_str()));
    serde_json::from_str(json).map_err(unreadable)
}
