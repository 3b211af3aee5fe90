//! An agq of its own with a plan that does nothing, and what may be done to it.

use std::{io, path::Path};

use agenix_harness::resp::{Reply, Resp, unexpected};
use anyhow::{bail, ensure};
use e2e::{Agq, Lab};

const PLAN: &str = r#"{"plan_id":"nothing","tasks":[{"task_number":1,"command":"true"}]}"#;
/// We come from one address, as fast as we can; workers that we only register are silent and live on.
const AGQ: [&str; 6] =
    ["--max-connections-per-ip", "0", "--max-commands-per-second", "0", "--heartbeat-interval", "3600"];
/// Commands that are under way at once, where we do not wait for each.
const AT_ONCE: usize = 500;

pub(super) struct Stand {
    // The first to be dropped: it writes into the lab's directory.
    pub(super) agq: Agq,
    pub(super) lab: Lab,
}

impl Stand {
    pub(super) fn new(bin: &Path) -> Self {
        let lab = Lab::with_binaries(bin.to_owned());
        let agq = lab.agq(&AGQ);
        lab.submit_plan(&agq, PLAN);
        Self { agq, lab }
    }

    pub(super) fn connect(&self) -> io::Result<Resp> {
        Resp::open(&self.agq.address(), self.lab.key())
    }
}

/// Sends a command that is answered with a line.
pub(super) fn must(resp: &mut Resp, command: &[&str]) -> io::Result<()> {
    match resp.ask(command)? {
        Reply::Line(_ok) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Submits documents by the same command, many under way at once.
pub(super) fn submit_all(resp: &mut Resp, command: &str, documents: &[String]) -> io::Result<()> {
    for documents in documents.chunks(AT_ONCE) {
        for document in documents {
            resp.send(&[command, document])?;
        }
        for _ in documents {
            match resp.receive()? {
                Reply::Line(_ok) => {}
                other => return Err(unexpected(&other)),
            }
        }
    }
    Ok(())
}

/// A worker that is registered on this connection, and claims on it in its own name.
pub(super) fn register(resp: &mut Resp, id: &str, tools: &str, tags: &str) -> io::Result<()> {
    let worker = format!(r#"{{"worker_id":"{id}","capabilities":["{tools}"],"tags":{{{tags}}}}}"#);
    must(resp, &["WORKER.REGISTER", &worker])
}

/// How many jobs are ready.
pub(super) fn ready(resp: &mut Resp) -> anyhow::Result<usize> {
    match resp.ask(&["LLEN", "queue:ready"])? {
        Reply::Integer(count) => Ok(usize::try_from(count)?),
        other => bail!("agq answered LLEN with {other:?}"),
    }
}

/// Whether so many jobs are ready.
pub(super) fn expect_ready(resp: &mut Resp, count: usize) -> anyhow::Result<()> {
    let ready = ready(resp)?;
    ensure!(ready == count, "{ready} jobs are ready, and not {count}");
    Ok(())
}
