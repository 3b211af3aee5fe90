//! Sums of the quantities that workers offer, and that claimed and ready jobs use and want.

use agenix_protocol::documents::QueueStats;
use agenix_rules::{
    resources::{add, add_times},
    worker::{Liveness, Worker},
};

use crate::{app::AppState, error::Result, registry::resource_figures::ResourceFigures};

pub(crate) async fn read(
    app: &AppState,
    queues: &QueueStats,
    workers: &[(Worker, u64)],
) -> Result<ResourceFigures> {
    let mut figures = ResourceFigures::default();
    for (worker, _) in workers.iter().filter(|(worker, _)| worker.liveness == Liveness::Active) {
        if let Some(offered) = app.capabilities.of(&*app.store, worker).await?.offered() {
            add(&mut figures.offered, offered);
        }
    }
    app.store.used_resources(None).await?.values().for_each(|used| add(&mut figures.used, used));
    let unpaused = queues.others.values().chain([&queues.ready]).filter(|stats| !stats.paused);
    for demand in unpaused.flat_map(|stats| &stats.needs) {
        add_times(&mut figures.wanted, &demand.resources, demand.length - demand.held_back);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::parse;

    use super::read;
    use crate::{
        app::{Caller, Submitter},
        registry::resource_figures::Samples,
        service::{action_submission, claims::claim, plans, queue_stats, queues, workers},
        startup::services::without_tasks,
    };

    #[tokio::test]
    async fn figures_sum_what_workers_offer_and_jobs_use_and_want() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let plan = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}],"requires":{"resources":{"cpus":1.5}}}"#;
        plans::submit(&app, Submitter::NOBODY, plan).await.unwrap();
        let action = br#"{"plan_id":"p","inputs":[{},{},{}],"resources":{"memory":"1K"}}"#;
        action_submission::submit(&app, Submitter::NOBODY, parse(action).unwrap()).await.unwrap();
        let caller = Caller::new("connection:1".into(), 1, "test", None);
        let worker = br#"{"worker_id":"w","capabilities":["sort"],"resources":{"cpus":2,"memory":"1M"}}"#;
        workers::register(&app, &caller, parse(worker).unwrap()).await.unwrap();
        let caller = Caller { registered: Some("w".parse().unwrap()), ..caller };
        let claimed = claim(&app, &caller, &["ready".parse().unwrap()], None, 3).await.unwrap();
        let claimed: Vec<_> = claimed.into_iter().map(|job| job.take().resources.unwrap()).collect();
        assert_eq!(claimed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["cpus 1.5, memory 1K"]);
        let (queues, workers) = (queue_stats::all(&app).await.unwrap(), app.store.workers().await.unwrap());
        let families = read(&app, &queues, &workers).await.unwrap().families();
        let values =
            |samples: Samples| -> Vec<String> { samples.into_iter().map(|(_, value)| value).collect() };
        let samples = families.map(|(_, _, samples)| values(samples));
        let expected: [Vec<String>; 3] =
            [["2", "1048576"], ["1.5", "1024"], ["3", "2048"]].map(|values| values.map(String::from).into());
        assert_eq!(samples, expected);
        queues::set_paused(&app, &"ready".parse().unwrap(), true).await.unwrap();
        let paused = queue_stats::all(&app).await.unwrap();
        let figures = read(&app, &paused, &app.store.workers().await.unwrap()).await.unwrap();
        assert!(figures.wanted.is_empty(), "a paused queue gives out no jobs: {}", figures.wanted);
        assert!(!figures.used.is_empty(), "the claimed job runs on");
    }
}
