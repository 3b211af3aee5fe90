//! Test of two nodes that work on one PostgreSQL at the same time.
//!
//! A limit must never be exceeded, a unique kind has at most one job, a job is claimed once, and
//! there are no deadlocks.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agenix_protocol::{
    documents::{OjsAck, OjsDocument},
    request::Request,
    resp::Reply,
};
use bytes::Bytes;
use fastrand::Rng;
use tokio::{runtime::Runtime, task::JoinSet};

use super::{actors::Actor, ojs_jobs};
use crate::{
    app::{AppState, Caller, PlanPolicy, connection_name},
    auth::audit_log::AuditLog,
    clock::Clock,
    config,
    resp::dispatch,
    service::{ojs_reports, ojs_submission},
    startup::services,
    store::{DocumentKind, DocumentStore, Store, postgres::PostgresStore},
};

const ROUNDS: usize = 30;
/// Number of clients of each node.
const CLIENTS: usize = 3;
/// Number of jobs of a limit that may run at once.
const AT_ONCE: i64 = 2;
const LIMITS: usize = 6;
const KINDS: usize = 24;
/// Heartbeat interval in milliseconds. The reaper runs four times as often.
const HEARTBEAT_MS: u64 = 200;

/// Jobs as the clients have seen them, and violations of the invariants.
#[derive(Default)]
struct ClientView {
    running: HashMap<String, i64>,
    waiting: HashMap<String, i64>,
    attempts: HashMap<(String, u32), u64>,
    wrong: Vec<String>,
    done: usize,
}

/// Client of a node. All clients share one [`ClientView`].
struct Client {
    app: Arc<AppState>,
    known: Arc<Mutex<ClientView>>,
    rng: Rng,
    name: String,
}

/// Runs a seed at `url`, whose content is deleted. Returns the number of ended jobs.
pub(super) fn play(seed: u64, url: &str) -> Result<usize, String> {
    let shown = |error: anyhow::Error| format!("{error:#}");
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let known = Arc::new(Mutex::new(ClientView::default()));
    let before = runtime.block_on(PostgresStore::deadlocks(url)).map_err(shown)?;
    let stores = runtime.block_on(async {
        let first = PostgresStore::open_empty(url).await?;
        anyhow::Ok([Arc::new(first), Arc::new(PostgresStore::open_beside(url).await?)])
    });
    let stores = stores.map_err(shown)?;
    let played = runtime.block_on(work(seed, &stores, &known));
    drop(stores);
    played?;
    let deadlocks = runtime.block_on(PostgresStore::deadlocks(url)).map_err(shown)? - before;
    let known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(wrong) = known.wrong.first() {
        return Err(wrong.clone());
    }
    if deadlocks > 0 {
        return Err(format!("PostgreSQL counted {deadlocks} deadlocks"));
    }
    Ok(known.done)
}

/// Runs the clients, while a connection holds a job and a crash empties the table of nodes.
async fn work(
    seed: u64,
    stores: &[Arc<PostgresStore>; 2],
    known: &Arc<Mutex<ClientView>>,
) -> Result<(), String> {
    let (mut aside, mut clients) = (JoinSet::new(), JoinSet::new());
    let outcome = work_beside(seed, stores, known, (&mut aside, &mut clients)).await;
    // A store ends its writers when it is dropped, and needs the runtime for that.
    clients.shutdown().await;
    aside.shutdown().await;
    outcome
}

async fn work_beside(
    seed: u64,
    stores: &[Arc<PostgresStore>; 2],
    known: &Arc<Mutex<ClientView>>,
    (aside, clients): (&mut JoinSet<()>, &mut JoinSet<Result<(), String>>),
) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let mut apps = Vec::new();
    for (at, store) in stores.iter().enumerate() {
        let mut settings = config::default_settings().map_err(|error| error.to_string())?;
        settings.heartbeat_interval_ms = HEARTBEAT_MS;
        let audit = AuditLog::open(None).map_err(|error| error.to_string())?;
        let store = Arc::clone(store) as Arc<dyn Store>;
        let (app, works) =
            services::build(store, None, None, Clock::default(), audit, PlanPolicy::default(), settings);
        works.into_iter().for_each(|work| drop(aside.spawn(work)));
        for client in 0..CLIENTS {
            let client = Client {
                app: Arc::clone(&app),
                known: Arc::clone(known),
                rng: rng.fork(),
                name: format!("{at}-{client}"),
            };
            clients.spawn(client.run());
        }
        apps.push(app);
    }
    let holder = caller(&apps[1]);
    let held = hold_a_job(&apps[1], &holder).await?;
    stores[0].forget_nodes().await.map_err(|error| error.to_string())?;
    while let Some(ended) = clients.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    let limits = stores[0].documents(DocumentKind::Limit).await.map_err(|error| error.to_string())?;
    if let Some((key, note)) = limits.iter().find(|(_, note)| !note.contains(r#""active":0"#)) {
        return Err(format!("no job runs, and the limit {key} is {note}"));
    }
    let report = ["JOB.UPDATE", &held, r#"{"status":"completed","attempt":1}"#];
    match ask(&apps[1], &holder, &report).await? {
        Reply::Simple(_ok) => {}
        other => {
            return Err(format!("a living connection held {held}, and its report is answered {other:?}"));
        }
    }
    Ok(())
}

/// Returns a connection to the node of `app`.
fn caller(app: &AppState) -> Arc<Caller> {
    let connection = connection_name(app.store.node(), 1);
    Arc::new(Caller { connection, ..(*Actor::new(1, None).caller).clone() })
}

/// Submits a job, and claims it in the name of the connection. Returns the id of the job.
async fn hold_a_job(app: &Arc<AppState>, caller: &Arc<Caller>) -> Result<String, String> {
    let plan = r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#;
    ask(app, caller, &["PLAN.SUBMIT", plan]).await?;
    ask(app, caller, &["ACTION.SUBMIT", r#"{"action_id":"a","plan_id":"p","inputs":[{}]}"#]).await?;
    match ask(app, caller, &["RPOP", "queue:ready"]).await? {
        Reply::Bulk(json) => {
            let job: serde_json::Value = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
            let id = job["job_id"].as_str().ok_or("a claim has no id")?.to_owned();
            ask(app, caller, &["JOB.UPDATE", &id, r#"{"status":"running","attempt":1}"#]).await?;
            Ok(id)
        }
        other => Err(format!("a claim is answered {other:?}")),
    }
}

async fn ask(app: &Arc<AppState>, caller: &Arc<Caller>, words: &[&str]) -> Result<Reply, String> {
    let words: Vec<Bytes> = words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    let (command, request) = Request::parse(&words).map_err(|error| error.line())?;
    let run = dispatch::run(Arc::clone(app), Arc::clone(caller), command, request);
    Ok(run.await.reply)
}

impl Client {
    async fn run(mut self) -> Result<(), String> {
        for round in 0..ROUNDS {
            self.submit(round).await?;
            self.work_off().await?;
        }
        let mut idle = 0;
        // A fetch skips a limit that another transaction has locked, so one empty fetch is not the
        // end.
        while idle < 3 {
            idle = if self.work_off().await? == 0 { idle + 1 } else { 0 };
            tokio::time::sleep(Duration::from_millis(HEARTBEAT_MS / 4)).await;
        }
        Ok(())
    }

    async fn submit(&mut self, round: usize) -> Result<(), String> {
        let jobs: Vec<String> = (0..self.rng.usize(4..9)).map(|n| self.job(round, n)).collect();
        let documents: Vec<OjsDocument> =
            serde_json::from_str(&format!("[{}]", jobs.join(","))).map_err(|error| error.to_string())?;
        let all = ojs_submission::enqueue_all(&self.app, None, documents)
            .await
            .map_err(|error| error.to_string())?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for job in all.iter().filter(|one| one.is_new).map(|one| &one.job.job) {
            if let Some(kind) = job.ojs.as_ref().and_then(|ojs| ojs.unique.clone()) {
                let count = known.waiting.entry(kind.clone()).or_default();
                *count += 1;
                if *count > 1 {
                    known.wrong.push(format!("the kind {kind} has two jobs, of which one is {}", job.job_id));
                }
            }
        }
        Ok(())
    }

    /// Returns a job under a limit, which in three of four cases also has a unique kind. Each
    /// client uses an order of its own.
    fn job(&mut self, round: usize, n: usize) -> String {
        let (queue, name) = (ojs_jobs::QUEUE, &self.name);
        let (key, kind) = (self.rng.usize(..LIMITS), self.rng.usize(..KINDS));
        let unique =
            if self.rng.bool() { r#","unique":{"keys":["type"],"on_conflict":"ignore"}"# } else { "" };
        format!(
            r#"{{"type":"t{kind}","args":["{name}-{round}-{n}"],"options":{{"queue":"{queue}","rate_limit":{{"key":"k{key}","concurrency":{AT_ONCE}}}{unique}}}}}"#
        )
    }

    /// Fetches some jobs, and reports them. Returns the number of these jobs.
    async fn work_off(&mut self) -> Result<usize, String> {
        let claims = ojs_jobs::fetched(&self.app, 4).await.map_err(|error| error.to_string())?;
        let jobs: Vec<_> = claims.into_iter().map(|claim| claim.job).collect();
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.iter().for_each(|job| known.record_fetch(job));
        }
        tokio::task::yield_now().await;
        for job in &jobs {
            self.known.lock().unwrap_or_else(PoisonError::into_inner).ended(job);
            let acked = ojs_reports::ack(&self.app, None, &job.job_id, OjsAck::default()).await;
            acked.map_err(|error| format!("{} was fetched, and its report refused: {error}", job.job_id))?;
        }
        Ok(jobs.len())
    }
}

impl ClientView {
    fn record_fetch(&mut self, job: &agenix_rules::job::Job) {
        let times = self.attempts.entry((job.job_id.to_string(), job.attempt)).or_default();
        *times += 1;
        if *times > 1 || job.attempt > 1 {
            self.wrong.push(format!("{} was handed out twice", job.job_id));
        }
        if let Some(key) = job.ojs.as_ref().and_then(|ojs| ojs.limit.clone()) {
            let count = self.running.entry(key.clone()).or_default();
            *count += 1;
            if *count > AT_ONCE {
                self.wrong.push(format!("{count} jobs run under the limit {key}, which lets {AT_ONCE} run"));
            }
        }
    }

    /// Records that a client is about to report the end of a job.
    fn ended(&mut self, job: &agenix_rules::job::Job) {
        let Some(ojs) = &job.ojs else { return };
        for (counts, key) in [(&mut self.running, &ojs.limit), (&mut self.waiting, &ojs.unique)] {
            if let Some(key) = key {
                *counts.entry(key.clone()).or_default() -= 1;
            }
        }
        self.done += 1;
    }
}
