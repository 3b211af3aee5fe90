//! Workers that could run the jobs of a plan, for `agx map --dry-run` with a server, and for jobs
//! with quantities.

use agenix_client::{Connection, Server};
use agenix_protocol::{
    documents::{Plan, WorkerStatus},
    ids::WorkerId,
};
use agenix_rules::{
    capability::{ClaimantCapabilities, Needs},
    plan,
};

use crate::{error::Result, output::OutputFormat};

/// Maximum number of workers that the note names.
const MAX_NAMED: usize = 10;

/// Workers that could run the jobs. All jobs of a map have the same plan, and so the same needs.
#[derive(Debug, PartialEq, Eq)]
struct AbleWorkers {
    workers: Vec<WorkerId>,
    /// The workers, or why there is none, as a sentence without a full stop.
    text: String,
}

/// Shows the user where the jobs would run, and returns the workers. An agq that does not answer
/// does not fail a dry run.
pub(super) async fn able_workers(
    given: Result<Option<Server>>,
    plan: &Plan,
    output: OutputFormat,
) -> Option<Vec<WorkerId>> {
    let found = match given {
        Ok(Some(server)) => placement(&server, plan).await,
        Ok(None) => return None,
        Err(failure) => Err(failure),
    };
    match found {
        Ok(AbleWorkers { workers, text }) => {
            output.note(&format!("agx: {text}"));
            Some(workers)
        }
        Err(failure) => {
            output.note(&format!("agx: it is not known where the jobs would run: {failure}"));
            None
        }
    }
}

/// Warns the user if no worker has all that the jobs need.
pub(super) async fn note_without_worker(
    agq: &mut Connection,
    plan: &Plan,
    output: OutputFormat,
) -> Result<()> {
    let AbleWorkers { workers, text } = among(&agq.workers().await?, &plan::needs(plan));
    if workers.is_empty() {
        output.note(&format!("agx: {text}; the jobs wait for a worker"));
    }
    Ok(())
}

/// Asks the server for its workers.
async fn placement(server: &Server, plan: &Plan) -> Result<AbleWorkers> {
    let workers = Connection::open(server).await?.workers().await?;
    Ok(among(&workers, &plan::needs(plan)))
}

fn among(workers: &[WorkerStatus], needs: &Needs) -> AbleWorkers {
    let mut live: Vec<(&WorkerStatus, Vec<String>)> = workers
        .iter()
        .filter(|worker| worker.state != "dead")
        .map(|worker| (worker, ClaimantCapabilities::of_status(worker).missing(needs)))
        .collect();
    let accepts = |worker: &WorkerStatus| worker.state == "active";
    let fit: Vec<WorkerId> = live
        .iter()
        .filter(|(worker, missing)| missing.is_empty() && accepts(worker))
        .map(|(worker, _)| worker.worker_id.clone())
        .collect();
    live.sort_by_key(|(worker, missing)| (missing.len(), !accepts(worker)));
    let text = match live.first() {
        _ if !fit.is_empty() => {
            let named: Vec<&str> = fit.iter().take(MAX_NAMED).map(|worker_id| worker_id.as_str()).collect();
            let more = if fit.len() > MAX_NAMED { " …" } else { "" };
            format!(
                "each job could run on {} of {} workers: {}{more}",
                fit.len(),
                live.len(),
                named.join(", ")
            )
        }
        None => "no job could run, because this agq has no worker".into(),
        Some((worker, missing)) if missing.is_empty() => {
            format!(
                "no job could run now, because {}, which has all that the jobs need, is {}",
                worker.worker_id, worker.state
            )
        }
        Some((worker, missing)) => {
            format!(
                "no job could run, because no worker has all that the jobs need: {} comes closest and lacks {}",
                worker.worker_id,
                missing.join(", ")
            )
        }
    };
    AbleWorkers { workers: fit, text }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{WorkerStatus, parse};
    use agenix_rules::capability::Needs;

    use super::among;

    fn worker(id: &str, state: &str, tools: &str, tags: &str) -> WorkerStatus {
        let json = format!(
            r#"{{"worker_id":"{id}","state":"{state}","hostname":"h","platform":"","agw_version":"",
                "capabilities":{{"tools":[{tools}],"agentic_units":[]}},"max_concurrent_jobs":1,"active_jobs":0,
                "registered_at":"2026-01-31T08:00:00.000Z","last_seen_at":"2026-01-31T08:00:00.000Z","stats":null,
                "tags":{{{tags}}}}}"#
        );
        parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn placement_names_the_workers_that_fit_or_the_nearest_one() {
        let needs = |tags: &[&str]| Needs {
            tools: vec!["jq".into()],
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            ..Needs::default()
        };
        let (a, b) =
            (worker("a", "active", r#""jq""#, ""), worker("b", "active", r#""sort""#, r#""gpu":true"#));
        let (c, d) = (worker("c", "draining", r#""jq""#, ""), worker("d", "dead", r#""jq""#, ""));
        let found = among(&[a.clone(), b.clone(), d.clone()], &needs(&[]));
        assert_eq!(found.text, "each job could run on 1 of 2 workers: a");
        assert_eq!(found.workers[0].as_str(), "a");
        let of = |workers: &[WorkerStatus], tags: &[&str]| among(workers, &needs(tags)).text;
        assert_eq!(
            of(&[b, a], &["gpu", "x"]),
            "no job could run, because no worker has all that the jobs need: b comes closest and lacks tool jq, tag x"
        );
        assert!(of(&[c], &[]).ends_with("because c, which has all that the jobs need, is draining"));
        assert_eq!(of(&[d], &[]), "no job could run, because this agq has no worker");
    }
}
