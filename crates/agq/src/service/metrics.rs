//! Metrics of the queue, for Prometheus or as JSON (AGQ API spec §7).

use std::{collections::BTreeMap, fmt::Write, sync::Arc, time::Duration};

use agenix_protocol::{
    documents::{BudgetStatus, Status, to_json},
    time::Timestamp,
};
use agenix_rules::{
    audit_chain::ChainHead,
    worker::{Liveness, Worker},
};
use serde::Serialize;
use serde_json::Value;

use super::{budgets, queue_stats, resource_sums};
use crate::{
    app::AppState,
    error::Result,
    registry::{last_figures::StoreFigures, resource_figures::ResourceFigures},
    store::StoreError,
};

/// Maximum time for which the metrics wait for the store.
const STORE_TIMEOUT: Duration = Duration::from_millis(500);

const STATUSES: [Status; 6] =
    [Status::Pending, Status::Running, Status::Completed, Status::Failed, Status::Dead, Status::Cancelled];

/// Fields of the statistics in a heartbeat, with the names of their metrics.
const WORKER_FIGURES: [(&str, &str); 7] = [
    ("completed_jobs_total", "agq_worker_completed_jobs_total"),
    ("failed_jobs_total", "agq_worker_failed_jobs_total"),
    ("avg_job_duration_ms", "agq_worker_avg_job_duration_ms"),
    ("cpu_usage_percent", "agq_worker_cpu_usage_percent"),
    ("memory_mb", "agq_worker_memory_mb"),
    ("disk_available_gb", "agq_worker_disk_available_gb"),
    ("uptime_seconds", "agq_worker_uptime_seconds"),
];

pub(crate) async fn json(app: &AppState) -> Result<String> {
    Ok(to_json(&figures(app, read_store(app)).await?))
}

/// `has_budgets` is false for a key that may not see budgets.
pub(crate) async fn prometheus(app: &AppState, has_budgets: bool) -> Result<String> {
    let mut figures = figures(app, read_store(app)).await?;
    if !has_budgets {
        figures.budgets.clear();
    }
    let mut text = figures.text();
    app.job_times.write(&mut text);
    Ok(text)
}

#[derive(Debug, Serialize)]
struct Figures {
    /// Transitions into each status since the store was created; `pending` counts submissions.
    jobs_total: BTreeMap<&'static str, u64>,
    jobs: BTreeMap<&'static str, u64>,
    workers_active: u64,
    workers_idle: u64,
    workers_total: u64,
    queue_length: BTreeMap<String, u64>,
    connections: u64,
    connections_total: u64,
    commands_total: u64,
    uptime_seconds: u64,
    /// Age of the oldest transaction that keeps a snapshot of the database; PostgreSQL only.
    #[serde(skip_serializing_if = "Option::is_none")]
    store_oldest_snapshot_seconds: Option<u64>,
    /// True if the store answered in time. Otherwise the metrics of the store are the last known
    /// ones.
    store_up: bool,
    store_figures_age_seconds: u64,
    /// 0 for a queue without a job that is ready.
    queue_oldest_job_age_seconds: BTreeMap<String, u64>,
    /// Stored blobs, as of the last sweep; on the node that sweeps only.
    #[serde(skip_serializing_if = "Option::is_none")]
    blobs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blob_bytes: Option<u64>,
    workers: BTreeMap<String, BTreeMap<&'static str, f64>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    budgets: Vec<BudgetStatus>,
    #[serde(skip_serializing_if = "ResourceFigures::is_empty")]
    resources: ResourceFigures,
    /// Head of the hash chain of the audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_log_head: Option<ChainHead>,
    /// Jobs of a queue that could run but for their limits and budgets.
    queue_held_back: BTreeMap<String, u64>,
}

/// Returns the last known metrics of a store that does not answer within `STORE_TIMEOUT`, because a
/// monitor needs the metrics of agq most while the store is down.
async fn figures(app: &AppState, read: impl Future<Output = Result<StoreFigures>>) -> Result<Figures> {
    let read = app.clock.within(STORE_TIMEOUT, Box::pin(read)).await;
    let late = || StoreError(format!("it has not answered for {} milliseconds", STORE_TIMEOUT.as_millis()));
    match read.unwrap_or_else(|| Err(late().into())) {
        Ok(current) => {
            let current = Arc::new(current);
            app.last_figures.keep(app.clock.now(), &current);
            Ok(combined(app, &current, None))
        }
        Err(error) => {
            let (at, last) = app.last_figures.last().ok_or(error)?;
            Ok(combined(app, &last, Some(at)))
        }
    }
}

async fn read_store(app: &AppState) -> Result<StoreFigures> {
    let (totals, queues) = (app.store.totals().await?, queue_stats::all(app).await?);
    let oldest_snapshot_secs = app.store.oldest_snapshot().await?.map(|oldest| oldest.secs);
    let (workers, budgets) = (app.store.workers().await?, budgets::statuses(app).await?);
    let resources = resource_sums::read(app, &queues, &workers).await?;
    Ok(StoreFigures { totals, queues, workers, budgets, resources, oldest_snapshot_secs })
}

/// `as_of` is the time of the store's metrics if they are old.
fn combined(app: &AppState, store: &StoreFigures, as_of: Option<Timestamp>) -> Figures {
    let StoreFigures { totals, queues, workers, budgets, resources, oldest_snapshot_secs } = store;
    let by_status = |counts: [u64; 6]| STATUSES.map(Status::as_str).into_iter().zip(counts).collect();
    let name = |key: &str| key.trim_start_matches("queue:").to_owned();
    let mut queue_length: BTreeMap<String, u64> =
        queues.others.iter().map(|(key, stats)| (name(key), stats.length)).collect();
    queue_length.insert("ready".into(), queues.ready.length);
    queue_length.insert("scheduled".into(), queues.scheduled.length);
    let ages = queues.others.iter().map(|(key, stats)| (name(key), stats.oldest_job_age_seconds));
    let ready = ("ready".to_owned(), queues.ready.oldest_job_age_seconds);
    let ages = ages.chain([ready]).map(|(name, age)| (name, age.unwrap_or_default()));
    let held_back = queues.others.iter().map(|(key, stats)| (name(key), stats.held_back));
    let held_back = held_back.chain([("ready".to_owned(), queues.ready.held_back)]);
    let (connections, connections_total, commands_total) = app.connections.counts();
    let (now, blobs) = (app.clock.now(), app.last_figures.blobs());
    Figures {
        jobs_total: by_status(totals.ever),
        jobs: by_status(totals.now),
        workers_active: queues.workers.active,
        workers_idle: queues.workers.idle,
        workers_total: queues.workers.total,
        queue_length,
        connections: connections as u64,
        connections_total,
        commands_total,
        uptime_seconds: now.ms_since(app.started_at) / 1000,
        store_oldest_snapshot_seconds: *oldest_snapshot_secs,
        store_up: as_of.is_none(),
        store_figures_age_seconds: as_of.map_or(0, |at| now.ms_since(at) / 1000),
        queue_oldest_job_age_seconds: ages.collect(),
        blobs: blobs.map(|blobs| blobs.count),
        blob_bytes: blobs.map(|blobs| blobs.bytes),
        workers: workers
            .iter()
            .filter(|(worker, _)| worker.liveness == Liveness::Active)
            .map(|(worker, _)| (worker.worker_id.to_string(), worker_stats(worker)))
            .collect(),
        budgets: budgets.clone(),
        resources: resources.clone(),
        audit_log_head: app.audit.head(),
        queue_held_back: held_back.collect(),
    }
}

fn worker_stats(worker: &Worker) -> BTreeMap<&'static str, f64> {
    let stats: Value =
        worker.stats.as_deref().and_then(|stats| serde_json::from_str(stats).ok()).unwrap_or_default();
    WORKER_FIGURES.iter().filter_map(|(field, _)| Some((*field, stats.get(field)?.as_f64()?))).collect()
}

impl Figures {
    fn text(&self) -> String {
        let mut text = String::new();
        let labelled = |label: &'static str| {
            move |(name, value): (&str, u64)| (format!("{{{label}=\"{name}\"}}"), value)
        };
        let one = |value: u64| vec![(String::new(), value)];
        let of = |counts: &BTreeMap<&'static str, u64>| -> Vec<(String, u64)> {
            counts.iter().map(|(name, value)| (*name, *value)).map(labelled("status")).collect()
        };
        let help = "Transitions of jobs into a status since the store was created.";
        family(&mut text, "agq_jobs_total", "counter", help, of(&self.jobs_total));
        family(&mut text, "agq_jobs", "gauge", "Stored jobs, by status.", of(&self.jobs));
        let idle = "Live workers that may take jobs and hold none.";
        for (name, help, value) in [
            ("agq_workers_active", "Live workers.", self.workers_active),
            ("agq_workers_idle", idle, self.workers_idle),
            ("agq_workers", "Known workers, including dead ones.", self.workers_total),
        ] {
            family(&mut text, name, "gauge", help, one(value));
        }
        let held_back = "Jobs in a queue that limits and budgets hold back.";
        let oldest = "Age of the oldest job of a queue that is ready, and 0 without one.";
        for (name, help, values) in [
            ("agq_queue_length", "Jobs in a queue.", &self.queue_length),
            ("agq_queue_oldest_job_age_seconds", oldest, &self.queue_oldest_job_age_seconds),
            ("agq_queue_held_back", held_back, &self.queue_held_back),
        ] {
            let values = values.iter().map(|(name, value)| (name.as_str(), *value));
            family(&mut text, name, "gauge", help, values.map(labelled("queue")).collect());
        }
        let accepted = "Accepted connections since agq started.";
        let snapshot = "Age of the oldest transaction that keeps a snapshot of the database.";
        let age =
            "Age of the figures of jobs, queues and workers: more than 0 while the store does not answer.";
        for (name, kind, help, value) in [
            ("agq_connections", "gauge", "Open connections.", Some(self.connections)),
            ("agq_connections_total", "counter", accepted, Some(self.connections_total)),
            (
                "agq_commands_total",
                "counter",
                "Commands received since agq started.",
                Some(self.commands_total),
            ),
            ("agq_uptime_seconds", "gauge", "Seconds since agq started.", Some(self.uptime_seconds)),
            ("agq_store_oldest_snapshot_seconds", "gauge", snapshot, self.store_oldest_snapshot_seconds),
            ("agq_store_up", "gauge", "Whether the store answered in time.", Some(self.store_up.into())),
            ("agq_store_figures_age_seconds", "gauge", age, Some(self.store_figures_age_seconds)),
            ("agq_blobs", "gauge", "Stored blobs, which are large outputs of jobs.", self.blobs),
            ("agq_blob_bytes", "gauge", "Bytes of the stored blobs.", self.blob_bytes),
        ] {
            value.into_iter().for_each(|value| family(&mut text, name, kind, help, one(value)));
        }
        if let Some(head) = self.audit_log_head {
            let value = (format!("{{head=\"{head}\"}}"), 1_u64);
            let help = "Head of the hash chain of the audit log, as a label.";
            family(&mut text, "agq_audit_log_info", "gauge", help, vec![value]);
        }
        for (field, metric) in WORKER_FIGURES {
            let own = self.workers.iter().filter_map(|(id, stats)| Some((id, *stats.get(field)?)));
            let own: Vec<_> = own.map(|(id, value)| (format!("{{worker=\"{id}\"}}"), value)).collect();
            let kind = if metric.ends_with("_total") { "counter" } else { "gauge" };
            if !own.is_empty() {
                family(&mut text, metric, kind, "Value in the worker's last heartbeat.", own);
            }
        }
        self.write_budgets(&mut text);
        self.write_resources(&mut text);
        text
    }

    fn write_budgets(&self, text: &mut String) {
        let all = || self.budgets.iter().flat_map(|budget| budget.amounts().map(|amount| (budget, amount)));
        let labels = |budget: &BudgetStatus, name| format!("{{name=\"{}\",what=\"{name}\"}}", budget.name);
        let used = all().map(|(budget, (name, amount))| (labels(budget, name), amount.used)).collect();
        let limits = all().filter_map(|(budget, (name, amount))| Some((labels(budget, name), amount.limit?)));
        if !self.budgets.is_empty() {
            let help = "Used part of a budget in its window, reservations of running jobs included.";
            family(text, "agq_budget_used", "gauge", help, used);
            family(text, "agq_budget_limit", "gauge", "Maximum of a budget.", limits.collect());
        }
    }

    fn write_resources(&self, text: &mut String) {
        if !self.resources.is_empty() {
            for (name, help, samples) in self.resources.families() {
                family(text, name, "gauge", help, samples);
            }
        }
    }
}

fn family<T: std::fmt::Display>(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    samples: Vec<(String, T)>,
) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let _infallible = writeln!(text, "{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::{figures, read_store};
    use crate::{
        error::Result,
        registry::last_figures::{BlobTotals, StoreFigures},
        startup::services::without_tasks,
        store::StoreError,
    };

    async fn unavailable() -> Result<StoreFigures> {
        Err(StoreError("it is unavailable".into()).into())
    }

    #[tokio::test]
    async fn metrics_show_the_last_known_state_of_a_store_that_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        assert!(figures(&app, unavailable()).await.is_err(), "nothing is known yet");
        let known = figures(&app, read_store(&app)).await.unwrap().text();
        assert!(
            known.contains("\nagq_store_up 1\n") && known.contains("\nagq_store_figures_age_seconds 0\n")
        );
        assert!(!known.contains("agq_blobs"), "another node may count the blobs");
        app.last_figures.keep_blobs(Some(BlobTotals { count: 2, bytes: 300_000 }));
        let known = figures(&app, read_store(&app)).await.unwrap().text();
        assert!(known.contains("\nagq_blobs 2\n") && known.contains("\nagq_blob_bytes 300000\n"), "{known}");
        for last in [figures(&app, unavailable()).await, figures(&app, pending()).await] {
            let text = last.unwrap().text();
            assert!(text.contains("\nagq_store_up 0\n"), "{text}");
            assert!(text.contains("\nagq_jobs{status=\"pending\"} 0\n"), "{text}");
        }
    }
}
