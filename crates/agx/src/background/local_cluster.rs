//! Parts of an agq and a worker that a supervisor runs on this machine: keys, options, and the wait
//! for the worker.

use std::path::{Path, PathBuf};

use agenix_client::{ClientError, Connection, Server};
use agenix_protocol::{byte_escape::encode_os, errors::ErrorKind, ids::WorkerId, request::Request};
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

/// Waits until agq has workers that take jobs, and returns their number.
pub(crate) async fn wait_for_worker(agq: &str, key: &str) -> Result<usize> {
    let server = Server::new(agq, key.to_owned().into())
        .map_err(|problem| CliError::usage(problem, "choose another AGX_HOME"))?;
    let mut connection = Connection::open(&server).await?;
    let since = Instant::now();
    loop {
        let workers = connection.workers().await?;
        let workers = workers.iter().filter(|worker| worker.state == "active").count();
        if workers > 0 || since.elapsed() > MAX_WAIT {
            return Ok(workers);
        }
        sleep(POLL_INTERVAL).await;
    }
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
    use super::judge_refusal;

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
