//! Parts of an agq and a worker that a supervisor runs on this machine: keys, options, and the wait
//! for the worker.

use std::path::{Path, PathBuf};

use agenix_client::{ClientError, Connection, Server};
use agenix_protocol::{
    byte_escape::encode_os, documents::WorkerStatus, errors::ErrorKind, ids::WorkerId, request::Request,
};
use tokio::time::{Duration, Instant, sleep};

use crate::{
    background::{
        embedded::{new_key, program},
        supervisor::{LogTails, ServiceSpec},
    },
    error::{CliError, Result},
    profiles::write_secret,
};

/// Name of the file with the session key.
pub(crate) const KEY: &str = "session-key";
/// Maximum time until agq has the worker.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Words of the line that agw logs when agq has registered it.
const REGISTERED: &str = " is registered at ";

/// Returns the session key of `dir` and its file, and creates both if they are missing.
pub(crate) fn key_of(dir: &Path) -> Result<(String, PathBuf)> {
    let file = dir.join(KEY);
    match std::fs::read_to_string(&file) {
        Ok(key) if !key.trim().is_empty() => Ok((key.trim().to_owned(), file)),
        _ => {
            let key = new_key();
            let file = write_secret(dir, KEY, &key)?;
            Ok((key, file))
        }
    }
}

/// Returns the id of a new worker. Containers may have equal process ids and share a database.
pub(crate) fn new_worker_id(stem: &str, pid: u32, random: uuid::Uuid) -> String {
    let random = random.simple().to_string();
    format!("{stem}-{pid}-{}", &random[..5])
}

/// Waits until agq has the worker `worker_id`, and the worker takes jobs. Returns false after
/// [`MAX_WAIT`].
pub(crate) async fn wait_for_worker(agq: &str, key: &str, worker_id: &str) -> Result<bool> {
    let server = Server::new(agq, key.to_owned().into())
        .map_err(|problem| CliError::usage(problem, "choose another AGX_HOME"))?;
    let mut connection = Connection::open(&server).await?;
    let since = Instant::now();
    loop {
        if takes_jobs(&connection.workers().await?, worker_id) {
            return Ok(true);
        }
        if since.elapsed() > MAX_WAIT {
            return Ok(false);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns true if the worker `worker_id` is one of `workers`, and takes jobs. The others may share
/// the database, or agq may not know yet that they have ended.
fn takes_jobs(workers: &[WorkerStatus], worker_id: &str) -> bool {
    workers.iter().any(|worker| worker.worker_id.as_str() == worker_id && worker.state == "active")
}

/// Waits until the log of agw shows that agq has the worker. Returns false after [`MAX_WAIT`]. The
/// key of a worker may not list the workers of agq.
pub(crate) async fn wait_for_registration(logs: &LogTails) -> bool {
    let since = Instant::now();
    while !logs.contain("agw", REGISTERED) {
        if since.elapsed() > MAX_WAIT {
            return false;
        }
        sleep(POLL_INTERVAL).await;
    }
    true
}

/// Checks that the key of `connection` permits a worker with this id, or with any id if there is
/// none.
pub(crate) async fn check_key_of_worker(
    connection: &mut Connection,
    worker_id: Option<&WorkerId>,
) -> Result<()> {
    let any = || WorkerId::new(format!("join-{}", uuid::Uuid::new_v4().simple()));
    let worker_id = worker_id.cloned().map_or_else(any, Ok);
    let worker_id = worker_id.map_err(|error| CliError::usage(error.to_string(), "give --worker-id"))?;
    // agq checks the key first. A heartbeat for an unknown worker changes nothing.
    match connection.call(&Request::WorkerHeartbeat { worker_id, stats: None }).await {
        Ok(_) => Ok(()),
        Err(ClientError::Rejected(reason)) => judge_refusal(&reason),
        Err(error) => Err(error.into()),
    }
}

/// Returns the error of the refused heartbeat of a worker, unless only the worker is unknown.
fn judge_refusal(reason: &str) -> Result<()> {
    let help = match ErrorKind::of(reason) {
        ErrorKind::WorkerNotRegistered => return Ok(()),
        ErrorKind::NotPermitted if reason.contains("may not act for") => {
            "the token has the key of one worker: give its name, as in [workers] of agq's config file, with --worker-id"
        }
        ErrorKind::NotPermitted => {
            "make a token with the key of a worker (`agq token --session-key-file FILE`), or give --no-worker"
        }
        _ => return Err(ClientError::Rejected(reason.to_owned()).into()),
    };
    Err(CliError::Rejected { problem: reason.to_owned(), help: help.into() })
}

pub(crate) fn worker(agq: &str, key_file: &Path, ca: Option<&Path>, jobs: Option<u32>) -> Vec<String> {
    let mut args = spec_texts(&["--end-with-stdin", "--agq", agq, "--session-key-file"]);
    args.push(text(key_file));
    if let Some(ca) = ca {
        args.extend(["--tls-ca".into(), text(ca)]);
    }
    if let Some(jobs) = jobs {
        args.extend(["--max-concurrent-jobs".into(), jobs.to_string()]);
    }
    args
}

pub(crate) fn part(name: &str, args: Vec<String>) -> Result<ServiceSpec> {
    Ok(ServiceSpec { name: name.into(), program: program(name)?.into(), args })
}

/// Returns words as arguments of a [`ServiceSpec`], which are byte escapes. A word may itself have
/// byte escapes that the program has to get.
pub(crate) fn spec_texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| text(Path::new(word))).collect()
}

/// Returns a path as an argument of a [`ServiceSpec`].
pub(crate) fn text(path: &Path) -> String {
    encode_os(path.as_os_str())
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::parse;

    use super::{WorkerId, WorkerStatus, judge_refusal, new_worker_id, takes_jobs};

    #[test]
    fn workers_of_processes_with_equal_ids_have_different_names() {
        let [one, other] =
            [1_u128 << 120, 2 << 120].map(uuid::Uuid::from_u128).map(|id| new_worker_id("local", 7, id));
        assert!(one != other && one.starts_with("local-7-"), "{one} {other}");
        assert!(one.parse::<WorkerId>().is_ok());
    }

    #[test]
    fn another_worker_does_not_count_as_the_one_that_was_started() {
        let worker = |id: &str, state: &str| -> WorkerStatus {
            let json = format!(
                r#"{{"worker_id":"{id}","state":"{state}","hostname":"h","platform":"","agw_version":"","capabilities":["sort"],
                    "max_concurrent_jobs":2,"active_jobs":0,"registered_at":"2026-01-31T08:00:00.000Z",
                    "last_seen_at":"2026-01-31T08:00:00.000Z"}}"#
            );
            parse(json.as_bytes()).unwrap()
        };
        assert!(!takes_jobs(&[worker("w0", "active")], "w1"));
        assert!(!takes_jobs(&[worker("w0", "active"), worker("w1", "dead")], "w1"));
        assert!(takes_jobs(&[worker("w0", "dead"), worker("w1", "active")], "w1"));
    }

    #[test]
    fn join_names_the_option_for_the_key_of_one_worker() {
        let help = |reason: &str| judge_refusal(reason).unwrap_err().help().unwrap();
        let of_another = help("NOPERM This key is worker w1's and may not act for join-1");
        assert!(of_another.contains("--worker-id"), "{of_another}");
        let of_client = help("NOPERM This key is a client's and may not use WORKER.HEARTBEAT");
        assert!(of_client.contains("--no-worker") && !of_client.contains("--worker-id"), "{of_client}");
        assert!(judge_refusal("Worker not registered: join-1").is_ok());
        assert!(judge_refusal("Too many commands").is_err());
    }
}
