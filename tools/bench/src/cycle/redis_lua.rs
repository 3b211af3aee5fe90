//! Redis with Lua scripts as a contender. The three scripts in tools/bench/assets/lua do the same
//! work: they keep records, a ready list, leases, results, and counters.

use std::{fs, io, path::Path, sync::Arc};

use super::{
    clients::{Clients, CycleClient},
    payloads::Payloads,
    redis::DurableRedis,
    server::file,
    setting::Setting,
    wire::{BufferedConnection, nothing_ready, unexpected},
};

/// Depth of the pipeline that fills a queue.
const BATCH: usize = 200;

/// Starts a Redis with `setting.queued` jobs, and connects its clients.
pub(super) fn clients(
    program: &Path,
    setting: Setting,
    library: Option<&Path>,
) -> anyhow::Result<Clients<RedisClient, DurableRedis>> {
    let redis = DurableRedis::start(program, library)?;
    let payloads = Payloads::new(setting.input_bytes);
    let mut wire = redis.connect()?;
    let scripts = Arc::new(Scripts::load(&mut wire)?);
    fill(&mut wire, &scripts, &payloads, setting.queued)?;
    let clients = (0..setting.clients).map(|number| {
        let (scripts, payloads) = (Arc::clone(&scripts), Arc::clone(&payloads));
        let worker = format!("b-{number}");
        Ok(RedisClient { wire: redis.connect()?, scripts, payloads, worker, job: String::new() })
    });
    Ok(Clients::new(clients.collect::<io::Result<_>>()?, redis))
}

/// Queues jobs without waiting for the disk.
fn fill(
    wire: &mut BufferedConnection,
    scripts: &Scripts,
    payloads: &Payloads,
    queued: usize,
) -> io::Result<()> {
    wire.call(&["CONFIG", "SET", "appendfsync", "no"])?;
    for first in (0..queued).step_by(BATCH) {
        let numbers = first..(first + BATCH).min(queued);
        for number in numbers.clone() {
            wire.write_command(&["EVALSHA", &scripts.submit, "0", payloads.input(number)])?;
        }
        wire.send()?;
        for _ in numbers {
            wire.read_ok()?;
        }
    }
    wire.call(&["CONFIG", "SET", "appendfsync", "always"])
}

/// SHA-1 sums by which Redis runs the scripts.
struct Scripts {
    submit: String,
    claim: String,
    complete: String,
}

impl Scripts {
    fn load(wire: &mut BufferedConnection) -> io::Result<Self> {
        let mut load = |name: &str| {
            let script = fs::read_to_string(file(name))?;
            wire.write_command(&["SCRIPT", "LOAD", &script])?;
            wire.send()?;
            let sha = wire.bulk()?.ok_or_else(|| unexpected("no script"))?;
            io::Result::Ok(sha.to_owned())
        };
        Ok(Self {
            submit: load("lua/submit.lua")?,
            claim: load("lua/claim.lua")?,
            complete: load("lua/complete.lua")?,
        })
    }
}

pub(super) struct RedisClient {
    wire: BufferedConnection,
    scripts: Arc<Scripts>,
    payloads: Arc<Payloads>,
    worker: String,
    // The claimed job: its id, a space, its attempt.
    job: String,
}

impl CycleClient for RedisClient {
    fn cycle(&mut self, number: usize) -> io::Result<()> {
        self.wire.call(&["EVALSHA", &self.scripts.submit, "0", self.payloads.input(number)])?;
        self.claim()?;
        let (id, attempt) = self.job.split_once(' ').ok_or_else(|| unexpected(&self.job))?;
        let result = self.payloads.result(number);
        self.wire.call(&["EVALSHA", &self.scripts.complete, "0", id, &self.worker, attempt, result])
    }
}

impl RedisClient {
    fn claim(&mut self) -> io::Result<()> {
        self.wire.write_command(&["EVALSHA", &self.scripts.claim, "0", &self.worker])?;
        self.wire.send()?;
        match self.wire.line()? {
            "*3" => {}
            "$-1" => return Err(nothing_ready()),
            other => return Err(unexpected(other)),
        }
        self.job.clear();
        self.job.push_str(self.wire.bulk()?.unwrap_or_default());
        self.job.push(' ');
        let attempt = self.wire.line()?;
        self.job.push_str(attempt.strip_prefix(':').ok_or_else(|| unexpected(attempt))?);
        self.wire.bulk()?;
        Ok(())
    }
}
