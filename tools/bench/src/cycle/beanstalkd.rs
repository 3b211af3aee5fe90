//! beanstalkd as a contender, with a sync for each job that is put and deleted. beanstalkd stores
//! neither results nor the holders of jobs.

use std::{io, path::Path, process::Command, sync::Arc};

use tempfile::TempDir;

use super::{
    clients::{Clients, CycleClient},
    payloads::Payloads,
    server::{ServerProcess, directory, free_port},
    setting::Setting,
    wire::{BufferedConnection, unexpected},
};

/// Depth of the pipeline that fills a queue.
const BATCH: usize = 200;
const SYNC_ALWAYS: &str = "-f0";
const SYNC_NEVER: &str = "-F";

pub(super) struct Beanstalkd {
    // The server is dropped first, because it writes into the directory.
    _server: ServerProcess,
    _dir: TempDir,
}

/// Starts a beanstalkd with `setting.queued` jobs, and connects its clients.
pub(super) fn clients(
    program: &Path,
    setting: Setting,
) -> anyhow::Result<Clients<BeanstalkdClient, Beanstalkd>> {
    let dir = directory()?;
    let payloads = Payloads::new(setting.input_bytes);
    if setting.queued > 0 {
        // A process without syncs fills the queue. The process that is measured then reads its
        // files.
        let (_filler, address) = start(program, &dir, SYNC_NEVER)?;
        fill(&mut BufferedConnection::open(&address)?, &payloads, setting.queued)?;
    }
    let (server, address) = start(program, &dir, SYNC_ALWAYS)?;
    let clients = (0..setting.clients).map(|_| {
        Ok(BeanstalkdClient {
            wire: BufferedConnection::open(&address)?,
            payloads: Arc::clone(&payloads),
            job_id: String::new(),
        })
    });
    Ok(Clients::new(clients.collect::<io::Result<_>>()?, Beanstalkd { _server: server, _dir: dir }))
}

fn start(program: &Path, dir: &TempDir, sync: &str) -> anyhow::Result<(ServerProcess, String)> {
    let port = free_port()?.to_string();
    let mut command = Command::new(program);
    command.args(["-l", "127.0.0.1", "-p", &port, sync, "-b"]).arg(dir.path());
    let mut server = ServerProcess::start(&mut command, &dir.path().join("log"))?;
    let address = format!("127.0.0.1:{port}");
    server.wait_for("an answer of beanstalkd", || ping(&address).ok())?;
    Ok((server, address))
}

fn ping(address: &str) -> io::Result<()> {
    let mut wire = BufferedConnection::open(address)?;
    wire.write_line(format_args!("list-tube-used"))?;
    wire.send()?;
    expect_line(&mut wire, "USING ").map(drop)
}

fn fill(wire: &mut BufferedConnection, payloads: &Payloads, queued: usize) -> io::Result<()> {
    for first in (0..queued).step_by(BATCH) {
        let numbers = first..(first + BATCH).min(queued);
        for number in numbers.clone() {
            put(wire, payloads.input(number))?;
        }
        wire.send()?;
        for _ in numbers {
            expect_line(wire, "INSERTED ")?;
        }
    }
    Ok(())
}

fn put(wire: &mut BufferedConnection, input: &str) -> io::Result<()> {
    wire.write_line(format_args!("put 0 0 3600 {}\r\n{input}", input.len()))
}

/// Reads a line that has to begin with `prefix`, and returns the rest.
fn expect_line<'a>(wire: &'a mut BufferedConnection, prefix: &str) -> io::Result<&'a str> {
    let line = wire.line()?;
    line.strip_prefix(prefix).ok_or_else(|| unexpected(line))
}

pub(super) struct BeanstalkdClient {
    wire: BufferedConnection,
    payloads: Arc<Payloads>,
    job_id: String,
}

impl CycleClient for BeanstalkdClient {
    fn cycle(&mut self, number: usize) -> io::Result<()> {
        let wire = &mut self.wire;
        put(wire, self.payloads.input(number))?;
        wire.send()?;
        expect_line(wire, "INSERTED ")?;

        wire.write_line(format_args!("reserve"))?;
        wire.send()?;
        let reserved = expect_line(wire, "RESERVED ")?;
        let (id, bytes) = reserved.split_once(' ').ok_or_else(|| unexpected(reserved))?;
        let bytes = bytes.parse().map_err(|_| unexpected(reserved))?;
        self.job_id.clear();
        self.job_id.push_str(id);
        wire.body(bytes)?;

        wire.write_line(format_args!("delete {}", self.job_id))?;
        wire.send()?;
        expect_line(wire, "DELETED").map(drop)
    }
}
