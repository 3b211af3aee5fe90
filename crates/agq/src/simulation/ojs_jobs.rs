//! Jobs of the Open Job Spec with limits and unique kinds. Such jobs are used in worlds without
//! faults only, to compare two stores.

use std::{collections::BTreeSet, sync::Arc};

use agenix_protocol::{
    documents::{OjsAck, OjsDocument, OjsFetch, to_json},
    ids::JobId,
    resp::Reply,
};
use agenix_rules::job::Job;

use crate::{
    app::AppState,
    error::CommandError,
    resp::outcome::CommandOutcome,
    service::{fetch, ojs_reports, ojs_submission},
    simulation::{
        ledger::CheckResult,
        operations::{OjsOperation, Operation},
        process::now,
        world::{InFlightRequest, PendingRequest, World},
    },
    store::{Claim, DocumentKind, DocumentStore, StoreError, StoredJob},
};

/// Queue of these jobs. No other actor claims from it.
pub(super) const QUEUE: &str = "own";
const MAX_FETCHED: u64 = 3;
/// Time in which all ended jobs are pruned, in rounds of a second.
const FORGETTING_ROUNDS: usize = 20;
/// Kinds of documents that are removed with their jobs.
pub(super) const OF_JOBS: [DocumentKind; 2] = [DocumentKind::Limit, DocumentKind::Unique];

/// Executes an operation. Both stores must give the same reply.
pub(super) async fn act(app: Arc<AppState>, operation: OjsOperation) -> CommandOutcome {
    let reply = match operation {
        OjsOperation::Enqueue(json) => enqueue(&app, &json).await,
        OjsOperation::Fetch(count) => fetch(&app, count).await,
        OjsOperation::Ack(job_id) => ack(&app, job_id).await,
    };
    CommandOutcome::plain(reply.unwrap_or_else(|error| Reply::Error(error.to_string())))
}

async fn enqueue(app: &AppState, json: &str) -> Result<Reply, CommandError> {
    let documents: Vec<OjsDocument> = serde_json::from_str(json).expect("the simulation writes legal JSON");
    let all = ojs_submission::enqueue_all(app, None, documents).await?;
    all.iter().map(|one| Ok(shown(&one.job)?)).collect::<Result<_, CommandError>>().map(Reply::Array)
}

async fn fetch(app: &AppState, count: u64) -> Result<Reply, CommandError> {
    let claims = fetched(app, count).await?.into_iter();
    claims.map(|claim| Ok(shown(&stored(claim))?)).collect::<Result<_, CommandError>>().map(Reply::Array)
}

/// Fetches jobs anonymously.
pub(super) async fn fetched(app: &AppState, count: u64) -> Result<Vec<Claim>, CommandError> {
    let asked = OjsFetch {
        queues: vec![QUEUE.to_owned()],
        count: Some(count),
        worker_id: None,
        visibility_timeout_ms: None,
        wait_ms: None,
    };
    Ok(fetch::fetch(app, None, asked).await?.into_iter().map(|handed| handed.take()).collect())
}

async fn ack(app: &AppState, job_id: String) -> Result<Reply, CommandError> {
    let id = JobId::new(job_id).expect("agq gave it");
    let done = ojs_reports::ack(app, None, &id, OjsAck::default()).await?;
    Ok(shown(&done)?)
}

fn stored(claim: Claim) -> StoredJob {
    let Claim { job, queue, input, .. } = claim;
    StoredJob { job, queue, needs: Default::default(), input, results: None }
}

fn shown(job: &StoredJob) -> Result<Reply, StoreError> {
    Ok(Reply::bulk(to_json(&crate::http::job_view::job_view(job)?)))
}

/// Returns the ids of the jobs in the reply to a fetch.
pub(super) fn ids(reply: &Reply) -> Vec<String> {
    let Reply::Array(jobs) = reply else { return Vec::new() };
    let id = |job: &Reply| {
        let Reply::Bulk(json) = job else { return None };
        let job: serde_json::Value = serde_json::from_slice(json).ok()?;
        Some(job["id"].as_str()?.to_owned())
    };
    jobs.iter().filter_map(id).collect()
}

impl World {
    /// Submits jobs with limits and unique kinds, fetches some, or acknowledges one.
    pub(super) fn use_ojs_jobs(&mut self) -> CheckResult {
        match self.rng.u8(..8) {
            0..4 => {
                let fresh = self.number();
                let jobs: Vec<String> = (0..self.rng.u64(1..5)).map(|n| self.ojs_job(fresh, n)).collect();
                self.ask_ojs(PendingRequest::Anything, OjsOperation::Enqueue(format!("[{}]", jobs.join(","))))
            }
            4..6 => self.fetch_ojs_jobs(),
            _ => self.ack_ojs_job(),
        }
    }

    /// Returns a job under a limit, whose key is often new. Some jobs have a unique kind.
    fn ojs_job(&mut self, fresh: u64, n: u64) -> String {
        let key = if self.rng.bool() { format!("k{}", self.rng.u8(..4)) } else { format!("c{fresh}-{n}") };
        let limit =
            [r#""concurrency":1"#, r#""concurrency":2"#, r#""max_per_second":1"#][self.rng.usize(..3)];
        let unique = match self.rng.u8(..3) {
            0 => r#","unique":{"keys":["type"],"on_conflict":"ignore"}"#,
            _ => "",
        };
        let kind = self.rng.u8(..4);
        format!(
            r#"{{"type":"t{kind}","args":["{fresh}-{n}"],"options":{{"queue":"{QUEUE}","rate_limit":{{"key":"{key}",{limit}}}{unique}}}}}"#
        )
    }

    fn fetch_ojs_jobs(&mut self) -> CheckResult {
        self.ask_ojs(PendingRequest::Fetched, OjsOperation::Fetch(MAX_FETCHED))
    }

    fn ack_ojs_job(&mut self) -> CheckResult {
        let Some(job_id) = self.any_of(&self.fetched.clone()) else { return Ok(()) };
        self.fetched.retain(|known| *known != job_id);
        self.ask_ojs(PendingRequest::Anything, OjsOperation::Ack(job_id))
    }

    fn ask_ojs(&mut self, asked: PendingRequest, operation: OjsOperation) -> CheckResult {
        let number = self.number();
        self.tell(|| format!("{number}: {operation:?}"));
        let Some(process) = &mut self.process else { return Ok(()) };
        let app = Arc::clone(&process.app);
        let abort = process.spawn(number, act(app, operation.clone()));
        self.ops.insert(number, InFlightRequest { asked, abort });
        self.note(|| Operation::Ojs { number, operation });
        self.rest_between()
    }

    /// Fetches and acknowledges jobs, as far as their limits permit.
    pub(super) fn finish_ojs_jobs(&mut self) -> CheckResult {
        self.fetch_ojs_jobs()?;
        while !self.fetched.is_empty() {
            self.ack_ojs_job()?;
        }
        Ok(())
    }

    /// Waits until all ended jobs are pruned, and checks that only used documents and lanes are
    /// left. Records these documents and lanes.
    pub(super) fn prune_ojs_jobs(&mut self) -> CheckResult {
        for _round in 0..FORGETTING_ROUNDS {
            self.pass(1000)?;
        }
        let jobs = self.all_jobs()?;
        let used = |key: &str| {
            let of = |job: &Job| {
                let ojs = job.ojs.as_ref();
                ojs.is_some_and(|ojs| [&ojs.limit, &ojs.unique].into_iter().flatten().any(|name| name == key))
            };
            jobs.iter().any(of)
        };
        let lanes = jobs.iter().map(|job| job.lane).collect::<BTreeSet<_>>().len();
        let Some(process) = &self.process else { return Ok(()) };
        let mut notes = Vec::new();
        for kind in OF_JOBS {
            let left = now(process.store.documents(kind))?;
            if let Some((key, _)) = left.iter().find(|(key, _)| !used(key)) {
                return Err(format!("the note of {key} is kept, and no job is"));
            }
            notes.push(left);
        }
        let kept = process.store.lane_count().map_err(|error| error.to_string())?;
        if kept > lanes {
            return Err(format!("{kept} lanes are kept, and jobs are in {lanes}"));
        }
        self.note(|| Operation::Forgotten { notes, lanes });
        Ok(())
    }
}
