//! Hot paths of agq, each executed a given number of times, so that their instructions can be
//! counted.

use std::sync::Arc;

use agenix_protocol::{
    limits::Limits,
    resp::{CommandDecoder, Reply},
};
use anyhow::{Context, anyhow, bail, ensure};
use bytes::{Bytes, BytesMut};
use redb::{StorageBackend, backends::InMemoryBackend};
use tokio_util::codec::Decoder;

use crate::{
    config::default_settings,
    simulation::{actors::Actor, process::SimulatedProcess, time::SimulatedTime},
};

const PLAN: &str = r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#;
const WORKER: &str = r#"{"worker_id":"w","capabilities":["true"],"max_concurrent_jobs":1000000}"#;
/// Number of jobs that are prepared for claims and reports.
const ACTION_SIZE: u64 = 100;

/// Executes the hot path `path` `times` times. Fails if the path is unknown, or has a wrong result.
pub fn run_path(path: &str, times: u64) -> anyhow::Result<()> {
    match path {
        "decode" => decode(times),
        "keys" => Fixture::new()?.keys(times),
        "submit" => Fixture::new()?.submit(times, 1),
        "claim" => Fixture::new()?.claim(times).map(drop),
        "update" => Fixture::new()?.update(times),
        other => bail!("there is no path '{other}': decode, keys, submit, claim or update"),
    }
}

/// Decodes commands from bytes, sixteen at a time, as in a pipeline.
fn decode(times: u64) -> anyhow::Result<()> {
    let command = b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$100\r\n";
    let one = [command.as_slice(), &[b'x'; 100], b"\r\n"].concat();
    let mut decoder = CommandDecoder::new(&Limits::default());
    for _ in 0..times.div_ceil(16) {
        let mut bytes = BytesMut::from(one.repeat(16).as_slice());
        for _ in 0..16 {
            ensure!(decoder.decode(&mut bytes)?.is_some_and(|args| args.len() == 3), "a command was lost");
        }
    }
    Ok(())
}

/// agq in memory, with a plan and a worker.
struct Fixture {
    process: SimulatedProcess,
    worker: Actor,
    number: u64,
}

impl Fixture {
    fn new() -> anyhow::Result<Self> {
        let journal = InMemoryBackend::new();
        journal.set_len(8 << 20)?;
        let (time, settings) = (SimulatedTime::new(1), default_settings()?);
        let process = SimulatedProcess::begin_on(InMemoryBackend::new(), journal, None, &time, &settings)
            .map_err(|why| anyhow!(why))?;
        let mut stand = Self { process, worker: Actor::new(1, Some("w")), number: 0 };
        stand.ask(&["PLAN.SUBMIT", PLAN])?;
        stand.ask(&["WORKER.REGISTER", WORKER])?;
        Ok(stand)
    }

    fn ask(&mut self, words: &[&str]) -> anyhow::Result<Reply> {
        let words: Vec<Bytes> = words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        self.number += 1;
        let caller = Arc::clone(&self.worker.caller);
        let _abort = self.process.give(self.number, caller, &words).map_err(|why| anyhow!(why))?;
        loop {
            self.process.rest();
            match self.process.replies().pop() {
                Some((_, done)) => match done.reply {
                    Reply::Error(line) => bail!("{line}"),
                    reply => return Ok(reply),
                },
                None => ensure!(self.process.write(usize::MAX), "nobody answers"),
            }
        }
    }

    fn keys(&mut self, times: u64) -> anyhow::Result<()> {
        let value = "x".repeat(100);
        for n in 0..times {
            self.ask(&["SET", &format!("key:{n:012}"), &value])?;
            self.ask(&["LPUSH", "list", &value])?;
            self.ask(&["RPOP", "list"])?;
        }
        Ok(())
    }

    /// Submits actions with `inputs` inputs of 100 bytes each.
    fn submit(&mut self, times: u64, inputs: u64) -> anyhow::Result<()> {
        let input = format!(r#"{{"data":"{}"}}"#, "x".repeat(100));
        let inputs = vec![input; usize::try_from(inputs)?].join(",");
        let action = format!(r#"{{"plan_id":"p","inputs":[{inputs}]}}"#);
        for _ in 0..times {
            self.ask(&["ACTION.SUBMIT", &action])?;
        }
        Ok(())
    }

    fn claim(&mut self, times: u64) -> anyhow::Result<Vec<String>> {
        self.submit(times.div_ceil(ACTION_SIZE), ACTION_SIZE)?;
        (0..times).map(|_| job_id(&self.ask(&["RPOP", "queue:ready"])?)).collect()
    }

    fn update(&mut self, times: u64) -> anyhow::Result<()> {
        let stdout = "x".repeat(1024);
        let results = format!(
            r#"[{{"task_number":1,"command":"true","exit_code":0,"stdout":"{stdout}","stderr":""}}]"#
        );
        let update = format!(r#"{{"status":"completed","attempt":1,"task_results":{results}}}"#);
        for job in self.claim(times)? {
            self.ask(&["JOB.UPDATE", &job, &update])?;
        }
        Ok(())
    }
}

fn job_id(reply: &Reply) -> anyhow::Result<String> {
    let Reply::Bulk(json) = reply else { bail!("a claim was answered {reply:?}") };
    let job: serde_json::Value = serde_json::from_slice(json)?;
    Ok(job["job_id"].as_str().context("a job has no id")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::run_path;

    #[test]
    fn every_path_is_gone_to_its_end_and_an_unknown_one_is_refused() {
        for path in ["decode", "keys", "submit", "claim", "update"] {
            run_path(path, 3).unwrap();
        }
        assert!(run_path("none", 1).is_err());
    }
}
