//! beanstalkd, a sync for every job that is put and deleted. It keeps no results, and does not write down who has a job.

use std::{io, path::Path, process::Command, sync::Arc};

use tempfile::TempDir;

use super::{
    crew::{Client, Crew},
    server::{Server, directory, free_port},
    setting::Setting,
    texts::Texts,
    wire::{Wire, unexpected},
};

/// Jobs that are on their way at once while a queue is filled.
const PIECE: usize = 200;
const SYNC_ALWAYS: &str = "-f0";
const SYNC_NEVER: &str = "-F";

/// A running beanstalkd.
pub(super) struct Beanstalkd {
    // The first to be dropped: it writes into the directory.
    _server: Server,
    _dir: TempDir,
}

/// A beanstalkd with so many jobs that wait, and its clients.
pub(super) fn crew(program: &Path, setting: Setting) -> anyhow::Result<Crew<OfBeanstalkd, Beanstalkd>> {
    let dir = directory()?;
    let texts = Texts::new(setting.input_bytes);
    if setting.queued > 0 {
        // It is filled by one that waits for no disk, and read again by the one that is measured.
        let (_filler, address) = start(program, &dir, SYNC_NEVER)?;
        fill(&mut Wire::open(&address)?, &texts, setting.queued)?;
    }
    let (server, address) = start(program, &dir, SYNC_ALWAYS)?;
    let clients = (0..setting.clients).map(|_| {
        Ok(OfBeanstalkd { wire: Wire::open(&address)?, texts: Arc::clone(&texts), job_id: String::new() })
    });
    Ok(Crew::new(clients.collect::<io::Result<_>>()?, Beanstalkd { _server: server, _dir: dir }))
}

fn start(program: &Path, dir: &TempDir, sync: &str) -> anyhow::Result<(Server, String)> {
    let port = free_port()?.to_string();
    let mut command = Command::new(program);
    command.args(["-l", "127.0.0.1", "-p", &port, sync, "-b"]).arg(dir.path());
    let mut server = Server::start(&mut command, &dir.path().join("log"))?;
    let address = format!("127.0.0.1:{port}");
    server.until("an answer of beanstalkd", || is_there(&address).ok())?;
    Ok((server, address))
}

fn is_there(address: &str) -> io::Result<()> {
    let mut wire = Wire::open(address)?;
    wire.put(format_args!("list-tube-used"))?;
    wire.send()?;
    told(&mut wire, "USING ").map(drop)
}

/// Lets so many jobs wait.
fn fill(wire: &mut Wire, texts: &Texts, queued: usize) -> io::Result<()> {
    for first in (0..queued).step_by(PIECE) {
        let numbers = first..(first + PIECE).min(queued);
        for number in numbers.clone() {
            put(wire, texts.input(number))?;
        }
        wire.send()?;
        for _ in numbers {
            told(wire, "INSERTED ")?;
        }
    }
    Ok(())
}

fn put(wire: &mut Wire, input: &str) -> io::Result<()> {
    wire.put(format_args!("put 0 0 3600 {}\r\n{input}", input.len()))
}

/// Takes a line that begins so; the rest of it.
fn told<'a>(wire: &'a mut Wire, what: &str) -> io::Result<&'a str> {
    let line = wire.line()?;
    line.strip_prefix(what).ok_or_else(|| unexpected(line))
}

/// One client.
pub(super) struct OfBeanstalkd {
    wire: Wire,
    texts: Arc<Texts>,
    job_id: String,
}

impl Client for OfBeanstalkd {
    fn cycle(&mut self, number: usize) -> io::Result<()> {
        let wire = &mut self.wire;
        put(wire, self.texts.input(number))?;
        wire.send()?;
        told(wire, "INSERTED ")?;

        wire.put(format_args!("reserve"))?;
        wire.send()?;
        let reserved = told(wire, "RESERVED ")?;
        let (id, bytes) = reserved.split_once(' ').ok_or_else(|| unexpected(reserved))?;
        let bytes = bytes.parse().map_err(|_| unexpected(reserved))?;
        self.job_id.clear();
        self.job_id.push_str(id);
        wire.body(bytes)?;

        wire.put(format_args!("delete {}", self.job_id))?;
        wire.send()?;
        told(wire, "DELETED").map(drop)
    }
}
