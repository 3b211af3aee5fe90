//! Section `http`: compares the Open Job Spec over HTTP with RESP, on one agq each. The section
//! measures submissions, fetches, and whole cycles.

use std::{fmt::Write, io, sync::Arc};

use super::{
    agenix,
    agq::{AgqServer, SyncMode},
    clients::{Clients, CycleClient},
    payloads::Payloads,
    setting::Setting,
    span,
    wire::{BufferedConnection, nothing_ready, unexpected},
};
use crate::{Bench, Better, ContenderComparison, ProgramDirs};

const SECTION: &str = "http";
const HTTP: &str = "over HTTP";
const RESP: &str = "over RESP";
const NOTE: &str = "both as shipped: submissions and ends of jobs are durable; one request at a time on \
    persistent connections";

const FETCH_NOTE: &str = "jobs are submitted in between, 1,000 at a time, and never end; claims are not \
    durable, as shipped";
/// Number of jobs in a submission for clients that only fetch.
const STOCK: usize = 1_000;

pub(crate) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    for clients in [1, 8, 64] {
        let setting = Setting { clients, ..Setting::SLOW_DISK };
        compare(bench, programs, setting, CyclePart::Submission)?;
        compare(bench, programs, setting, CyclePart::Fetch)?;
        compare(bench, programs, setting, CyclePart::Cycle)?;
    }
    Ok(())
}

/// Part of the cycle that is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CyclePart {
    Submission,
    Fetch,
    /// Submission, fetch and end
    Cycle,
}

fn compare(
    bench: &mut Bench,
    programs: &ProgramDirs,
    setting: Setting,
    part: CyclePart,
) -> anyhow::Result<()> {
    let span = span(bench);
    let start = || AgqServer::start(&programs.bin, SyncMode::AsShipped, None);
    let mut http = clients(start()?, setting, part)?;
    let (operations, unit, note) = match part {
        CyclePart::Submission => ("submissions", "jobs/s", NOTE),
        CyclePart::Fetch => ("fetches", "jobs/s", FETCH_NOTE),
        CyclePart::Cycle => ("cycles", "cycles/s", NOTE),
    };
    let comparison =
        ContenderComparison::new(format!("{operations} over HTTP, {}", setting.title()), unit, Better::More)
            .with_note(note)
            .with(HTTP, move || http.cycles_per_sec(span));
    let comparison = match part {
        CyclePart::Submission | CyclePart::Fetch => {
            let mut resp = part_clients(start()?, setting, part)?;
            comparison.with(RESP, move || resp.cycles_per_sec(span))
        }
        CyclePart::Cycle => {
            let mut resp = agenix::clients(vec![start()?], setting)?;
            comparison.with_goal(RESP, 0.4, 0.6).with(RESP, move || resp.cycles_per_sec(span))
        }
    };
    bench.compare(SECTION, comparison)
}

/// Connects clients that run whole cycles.
pub(super) fn whole(agq: AgqServer, setting: Setting) -> anyhow::Result<Clients<HttpClient, AgqServer>> {
    clients(agq, setting, CyclePart::Cycle)
}

fn clients(
    agq: AgqServer,
    setting: Setting,
    part: CyclePart,
) -> anyhow::Result<Clients<HttpClient, AgqServer>> {
    let payloads = Payloads::new(setting.input_bytes);
    let clients = (0..setting.clients).map(|number| HttpClient::connect(&agq, number, &payloads, part));
    Ok(Clients::new(clients.collect::<io::Result<_>>()?, agq))
}

/// A client over HTTP that submits and works.
pub(super) struct HttpClient {
    wire: BufferedConnection,
    head: String,
    worker: String,
    payloads: Arc<Payloads>,
    part: CyclePart,
    body: String,
    // Remaining jobs of the last submission of the client.
    left: usize,
}

impl HttpClient {
    /// Connects a client that runs whole cycles.
    pub(super) fn connect_whole(
        agq: &AgqServer,
        number: usize,
        payloads: &Arc<Payloads>,
    ) -> io::Result<Self> {
        Self::connect(agq, number, payloads, CyclePart::Cycle)
    }

    fn connect(
        agq: &AgqServer,
        number: usize,
        payloads: &Arc<Payloads>,
        part: CyclePart,
    ) -> io::Result<Self> {
        let (wire, key) = agq.connect_http()?;
        let head = format!("Host: agq\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n");
        let worker = format!("b-{number}");
        Ok(Self { wire, head, worker, payloads: Arc::clone(payloads), part, body: String::new(), left: 0 })
    }

    /// Sends the body, and returns that of the answer, which must have the status `status`.
    fn post(&mut self, path: &str, status: &str) -> io::Result<&str> {
        let (head, length) = (&self.head, self.body.len());
        self.wire
            .write_line(format_args!("POST /ojs/v1{path} HTTP/1.1\r\n{head}Content-Length: {length}\r\n"))?;
        self.wire.write_raw(&self.body);
        self.wire.send()?;
        self.wire.http_answer(status)
    }

    fn submit(&mut self, number: usize) -> io::Result<()> {
        self.body.clear();
        let input = self.payloads.input(number);
        let _infallible = write!(self.body, r#"{{"type":"cycle","args":["{input}"]}}"#);
        self.post("/jobs", "201").map(drop)
    }

    fn stock(&mut self, number: usize) -> io::Result<()> {
        let input = self.payloads.input(number);
        let job = format!(r#"{{"type":"cycle","args":["{input}"]}}"#);
        self.body = format!(r#"{{"jobs":[{}]}}"#, vec![job.as_str(); STOCK].join(","));
        self.post("/jobs/batch", "201").map(drop)
    }

    /// Submits a job with options. A duplicate is an error.
    pub(super) fn submit_with(&mut self, arg: &str, options: &str) -> io::Result<()> {
        self.body.clear();
        let _infallible = write!(self.body, r#"{{"type":"cycle","args":["{arg}"],"options":{options}}}"#);
        self.post("/jobs", "201").map(drop)
    }

    /// Fetches a job, and returns its id. Returns an error if no job is ready.
    fn fetch(&mut self) -> io::Result<String> {
        self.body.clear();
        let _infallible = write!(self.body, r#"{{"queues":["default"],"worker_id":"{}"}}"#, self.worker);
        self.fetched()
    }

    /// Waits up to `wait_ms` for a job, and returns its id.
    pub(super) fn fetch_within(&mut self, wait_ms: u32) -> io::Result<String> {
        self.body.clear();
        let worker = &self.worker;
        let _infallible =
            write!(self.body, r#"{{"queues":["default"],"worker_id":"{worker}","wait_ms":{wait_ms}}}"#);
        self.fetched()
    }

    fn fetched(&mut self) -> io::Result<String> {
        let jobs = self.post("/workers/fetch", "200")?;
        let (_, rest) = jobs.split_once(r#""id":""#).ok_or_else(nothing_ready)?;
        Ok(rest.split_once('"').ok_or_else(|| unexpected(rest))?.0.to_owned())
    }

    pub(super) fn ack(&mut self, id: &str, number: usize) -> io::Result<()> {
        self.body.clear();
        let (worker, result) = (&self.worker, self.payloads.result(number));
        let _infallible =
            write!(self.body, r#"{{"job_id":"{id}","worker_id":"{worker}","result":"{result}"}}"#);
        self.post("/workers/ack", "200").map(drop)
    }
}

impl CycleClient for HttpClient {
    fn cycle(&mut self, number: usize) -> io::Result<()> {
        match self.part {
            CyclePart::Submission => self.submit(number),
            CyclePart::Fetch => {
                if self.left == 0 {
                    self.stock(number)?;
                    self.left = STOCK;
                }
                self.left -= 1;
                self.fetch().map(drop)
            }
            CyclePart::Cycle => {
                self.submit(number)?;
                let id = self.fetch()?;
                self.ack(&id, number)
            }
        }
    }
}

fn part_clients(
    agq: AgqServer,
    setting: Setting,
    part: CyclePart,
) -> anyhow::Result<Clients<RespPartClient, AgqServer>> {
    let payloads = Payloads::new(setting.input_bytes);
    let client = |number| {
        let (wire, payloads) = (agq.connect_worker(number)?, Arc::clone(&payloads));
        Ok(RespPartClient { wire, payloads, part, json: String::new(), left: 0 })
    };
    let clients = (0..setting.clients).map(client).collect::<io::Result<_>>()?;
    Ok(Clients::new(clients, agq))
}

/// A client over RESP that runs a part of the cycle.
struct RespPartClient {
    wire: BufferedConnection,
    payloads: Arc<Payloads>,
    part: CyclePart,
    json: String,
    // Remaining jobs of the last submission of the client.
    left: usize,
}

impl RespPartClient {
    fn stock(&mut self, number: usize) -> io::Result<()> {
        let input = format!(r#"{{"data":"{}"}}"#, self.payloads.input(number));
        let inputs = vec![input.as_str(); STOCK].join(",");
        self.wire.call(&["ACTION.SUBMIT", &format!(r#"{{"plan_id":"cycle","inputs":[{inputs}]}}"#)])
    }

    fn fetch(&mut self) -> io::Result<()> {
        self.wire.write_command(&["RPOP", "queue:ready"])?;
        self.wire.send()?;
        self.wire.bulk()?.map(drop).ok_or_else(nothing_ready)
    }
}

impl CycleClient for RespPartClient {
    fn cycle(&mut self, number: usize) -> io::Result<()> {
        if self.part == CyclePart::Submission {
            agenix::submission(&mut self.json, self.payloads.input(number));
            return self.wire.call(&["ACTION.SUBMIT", &self.json]);
        }
        if self.left == 0 {
            self.stock(number)?;
            self.left = STOCK;
        }
        self.left -= 1;
        self.fetch()
    }
}
