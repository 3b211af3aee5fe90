//! A private agq with a plan that does nothing, and commands that the section needs.

use std::{io, path::Path};

use agenix_harness::resp::{Resp, RespReply, unexpected};
use anyhow::{bail, ensure};
use e2e::{Agq, Lab};

const PLAN: &str = r#"{"plan_id":"nothing","tasks":[{"task_number":1,"command":"true"}]}"#;
/// All clients have one address, and send as fast as they can. Registered workers send no
/// heartbeats.
const AGQ: [&str; 6] =
    ["--max-connections-per-ip", "0", "--max-commands-per-second", "0", "--heartbeat-interval", "3600"];
/// Depth of a pipeline.
const PIPELINE: usize = 500;

pub(super) struct ScaleFixture {
    // agq is dropped first, because it writes into the directory of the lab.
    pub(super) agq: Agq,
    pub(super) lab: Lab,
}

impl ScaleFixture {
    pub(super) fn new(bin: &Path) -> Self {
        Self::with_args(bin, &[])
    }

    /// Starts an agq that stores its data in a PostgreSQL database.
    pub(super) fn on_postgres(bin: &Path, url: &str) -> Self {
        Self::with_args(bin, &["--store", url])
    }

    fn with_args(bin: &Path, args: &[&str]) -> Self {
        let lab = Lab::with_binaries(bin.to_owned());
        let agq = lab.agq(&[&AGQ, args].concat());
        lab.submit_plan(&agq, PLAN);
        Self { agq, lab }
    }

    pub(super) fn connect(&self) -> io::Result<Resp> {
        Resp::open(&self.agq.address(), self.lab.key())
    }
}

/// Sends a command that has to be answered with a status line.
pub(super) fn expect_ok(resp: &mut Resp, command: &[&str]) -> io::Result<()> {
    match resp.ask(command)? {
        RespReply::Line(_ok) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Sends the same command for each document, in pipelines.
pub(super) fn submit_all(resp: &mut Resp, command: &str, documents: &[String]) -> io::Result<()> {
    for documents in documents.chunks(PIPELINE) {
        for document in documents {
            resp.send(&[command, document])?;
        }
        for _ in documents {
            match resp.receive()? {
                RespReply::Line(_ok) => {}
                other => return Err(unexpected(&other)),
            }
        }
    }
    Ok(())
}

/// Registers a worker on this connection, which then claims on its behalf.
pub(super) fn register(resp: &mut Resp, id: &str, tools: &str, tags: &str) -> io::Result<()> {
    let worker = format!(r#"{{"worker_id":"{id}","capabilities":["{tools}"],"tags":{{{tags}}}}}"#);
    expect_ok(resp, &["WORKER.REGISTER", &worker])
}

/// Returns the number of ready jobs.
pub(super) fn ready(resp: &mut Resp) -> anyhow::Result<usize> {
    match resp.ask(&["LLEN", "queue:ready"])? {
        RespReply::Integer(count) => Ok(usize::try_from(count)?),
        other => bail!("agq answered LLEN with {other:?}"),
    }
}

/// Returns an error if the number of ready jobs is not `count`.
pub(super) fn expect_ready(resp: &mut Resp, count: usize) -> anyhow::Result<()> {
    let ready = ready(resp)?;
    ensure!(ready == count, "{ready} jobs are ready instead of {count}");
    Ok(())
}
