//! Redis doing the same work: a job's record, the ready list, leases, the result, counters; three scripts (tools/bench/assets/lua).

use std::{fs, io, path::Path, sync::Arc};

use super::{
    crew::{Client, Crew},
    redis::Redis,
    server::file,
    setting::Setting,
    texts::Texts,
    wire::{Wire, nothing_ready, unexpected},
};

/// Submissions that are on their way at once while a queue is filled.
const PIECE: usize = 200;

/// A Redis with so many jobs that wait, and its clients.
pub(super) fn crew(
    program: &Path,
    setting: Setting,
    library: Option<&Path>,
) -> anyhow::Result<Crew<OfRedis, Redis>> {
    let redis = Redis::start(program, library)?;
    let texts = Texts::new(setting.input_bytes);
    let mut wire = redis.connect()?;
    let scripts = Arc::new(Scripts::load(&mut wire)?);
    fill(&mut wire, &scripts, &texts, setting.queued)?;
    let clients = (0..setting.clients).map(|number| {
        let (scripts, texts) = (Arc::clone(&scripts), Arc::clone(&texts));
        let worker = format!("b-{number}");
        Ok(OfRedis { wire: redis.connect()?, scripts, texts, worker, job: String::new() })
    });
    Ok(Crew::new(clients.collect::<io::Result<_>>()?, redis))
}

/// Lets so many jobs wait; meanwhile nothing waits for the disk.
fn fill(wire: &mut Wire, scripts: &Scripts, texts: &Texts, queued: usize) -> io::Result<()> {
    wire.done(&["CONFIG", "SET", "appendfsync", "no"])?;
    for first in (0..queued).step_by(PIECE) {
        let numbers = first..(first + PIECE).min(queued);
        for number in numbers.clone() {
            wire.command(&["EVALSHA", &scripts.submit, "0", texts.input(number)])?;
        }
        wire.send()?;
        for _ in numbers {
            wire.is_done()?;
        }
    }
    wire.done(&["CONFIG", "SET", "appendfsync", "always"])
}

/// The scripts, as Redis knows them.
struct Scripts {
    submit: String,
    claim: String,
    complete: String,
}

impl Scripts {
    fn load(wire: &mut Wire) -> io::Result<Self> {
        let mut load = |name: &str| {
            let script = fs::read_to_string(file(name))?;
            wire.command(&["SCRIPT", "LOAD", &script])?;
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

/// One client.
pub(super) struct OfRedis {
    wire: Wire,
    scripts: Arc<Scripts>,
    texts: Arc<Texts>,
    worker: String,
    // The job that is under way: its id, a space, its attempt.
    job: String,
}

impl Client for OfRedis {
    fn cycle(&mut self, number: usize) -> io::Result<()> {
        self.wire.done(&["EVALSHA", &self.scripts.submit, "0", self.texts.input(number)])?;
        self.claim()?;
        let (id, attempt) = self.job.split_once(' ').ok_or_else(|| unexpected(&self.job))?;
        let result = self.texts.result(number);
        self.wire.done(&["EVALSHA", &self.scripts.complete, "0", id, &self.worker, attempt, result])
    }
}

impl OfRedis {
    fn claim(&mut self) -> io::Result<()> {
        self.wire.command(&["EVALSHA", &self.scripts.claim, "0", &self.worker])?;
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
