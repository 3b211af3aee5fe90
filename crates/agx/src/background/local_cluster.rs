//! Parts of an agq and a worker that a supervisor runs on this machine: keys, options, and the wait
//! for the worker.

use std::path::{Path, PathBuf};

use agenix_client::{Connection, Server};
use tokio::time::{Duration, Instant, sleep};

use crate::{
    background::{
        embedded::{new_key, program},
        supervisor::ServiceSpec,
    },
    error::{CliError, Result},
    profiles::write_secret,
};

/// Name of the file with the session key.
pub(crate) const KEY: &str = "session-key";
/// Maximum time until agq has the worker.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

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
        .map_err(|what| CliError::usage(what, "choose another AGX_HOME"))?;
    let mut connection = Connection::open(&server).await?;
    let since = Instant::now();
    loop {
        let workers = connection.workers().await?;
        let workers = workers.iter().filter(|worker| worker.state == "active").count();
        if workers > 0 || since.elapsed() > MAX_WAIT {
            return Ok(workers);
        }
        sleep(LOOK_EVERY).await;
    }
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
    Ok(ServiceSpec { name: name.into(), program: program(name)?, args })
}

pub(crate) fn spec_texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.into()).collect()
}

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
