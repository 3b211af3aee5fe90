//! The Open Job Spec over HTTP beside RESP, on one agq each: submissions, fetches, and the whole cycle of a job.

use std::{fmt::Write, io, sync::Arc};

use super::{
    agq::{Agq, Durability},
    crew::{Client, Crew},
    ours,
    setting::Setting,
    span,
    texts::Texts,
    wire::{Wire, nothing_ready, unexpected},
};
use crate::{Bench, Better, Contest, Place};

const SECTION: &str = "http";
const HTTP: &str = "over HTTP";
const RESP: &str = "over RESP";
const NOTE: &str = "both as shipped: submissions and ends of jobs are on disk before the answer; one request at a time, connections \
    are kept";

const FETCH_NOTE: &str = "jobs are submitted 1,000 at a time in between, and never end; claims are on disk a moment later, as shipped";
/// Jobs that are submitted at once for those who only fetch.
const STOCK: usize = 1_000;

/// The contests of this kind.
pub(crate) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    for clients in [1, 8, 64] {
        let setting = Setting { clients, ..Setting::SLOW_DISK };
        hold(bench, place, setting, Part::Submission)?;
        hold(bench, place, setting, Part::Fetch)?;
        hold(bench, place, setting, Part::Cycle)?;
    }
    Ok(())
}

/// What of a job's life is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// It is submitted.
    Submission,
    /// It is taken.
    Fetch,
    /// It is submitted, taken, and done.
    Cycle,
}

fn hold(bench: &mut Bench, place: &Place, setting: Setting, part: Part) -> anyhow::Result<()> {
    let span = span(bench);
    let start = || Agq::start(&place.bin, Durability::AsShipped, None);
    let mut http = crew(start()?, setting, part)?;
    let (what, unit, note) = match part {
        Part::Submission => ("submissions", "jobs/s", NOTE),
        Part::Fetch => ("fetches", "jobs/s", FETCH_NOTE),
        Part::Cycle => ("cycles", "cycles/s", NOTE),
    };
    let contest = Contest::new(format!("{what} over HTTP, {}", setting.title()), unit, Better::More)
        .noting(note)
        .with(HTTP, move || http.cycles_per_sec(span));
    let contest = match part {
        Part::Submission | Part::Fetch => {
            let mut resp = halves(start()?, setting, part)?;
            contest.with(RESP, move || resp.cycles_per_sec(span))
        }
        Part::Cycle => {
            let mut resp = ours::crew(vec![start()?], setting)?;
            contest.against(RESP, 0.4, 0.6).with(RESP, move || resp.cycles_per_sec(span))
        }
    };
    bench.hold(SECTION, contest)
}

/// An agq and clients that do whole cycles.
pub(super) fn whole(agq: Agq, setting: Setting) -> anyhow::Result<Crew<OverHttp, Agq>> {
    crew(agq, setting, Part::Cycle)
}

fn crew(agq: Agq, setting: Setting, part: Part) -> anyhow::Result<Crew<OverHttp, Agq>> {
    let texts = Texts::new(setting.input_bytes);
    let clients = (0..setting.clients).map(|number| OverHttp::connect(&agq, number, &texts, part));
    Ok(Crew::new(clients.collect::<io::Result<_>>()?, agq))
}

/// A client over HTTP: who submits and the worker in one.
pub(super) struct OverHttp {
    wire: Wire,
    head: String,
    worker: String,
    texts: Arc<Texts>,
    part: Part,
    body: String,
    // Of the jobs that it has submitted at once.
    left: usize,
}

impl OverHttp {
    /// Connects a client that does whole cycles.
    pub(super) fn connect_whole(agq: &Agq, number: usize, texts: &Arc<Texts>) -> io::Result<Self> {
        Self::connect(agq, number, texts, Part::Cycle)
    }

    fn connect(agq: &Agq, number: usize, texts: &Arc<Texts>, part: Part) -> io::Result<Self> {
        let (wire, key) = agq.connect_http()?;
        let head = format!("Host: agq\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n");
        let worker = format!("b-{number}");
        Ok(Self { wire, head, worker, texts: Arc::clone(texts), part, body: String::new(), left: 0 })
    }

    /// Sends the body; what is answered.
    fn post(&mut self, path: &str, status: &str) -> io::Result<&str> {
        let (head, length) = (&self.head, self.body.len());
        self.wire.put(format_args!("POST /ojs/v1{path} HTTP/1.1\r\n{head}Content-Length: {length}\r\n"))?;
        self.wire.raw(&self.body);
        self.wire.send()?;
        self.wire.http_answer(status)
    }

    fn submit(&mut self, number: usize) -> io::Result<()> {
        self.body.clear();
        let input = self.texts.input(number);
        let _infallible = write!(self.body, r#"{{"type":"cycle","args":["{input}"]}}"#);
        self.post("/jobs", "201").map(drop)
    }

    fn stock(&mut self, number: usize) -> io::Result<()> {
        let input = self.texts.input(number);
        let job = format!(r#"{{"type":"cycle","args":["{input}"]}}"#);
        self.body = format!(r#"{{"jobs":[{}]}}"#, vec![job.as_str(); STOCK].join(","));
        self.post("/jobs/batch", "201").map(drop)
    }

    /// Submits a job with these options. A job that is not new is an error.
    pub(super) fn submit_with(&mut self, arg: &str, options: &str) -> io::Result<()> {
        self.body.clear();
        let _infallible = write!(self.body, r#"{{"type":"cycle","args":["{arg}"],"options":{options}}}"#);
        self.post("/jobs", "201").map(drop)
    }

    /// The id of a job that it has now.
    fn fetch(&mut self) -> io::Result<String> {
        self.body.clear();
        let _infallible = write!(self.body, r#"{{"queues":["default"],"worker_id":"{}"}}"#, self.worker);
        self.fetched()
    }

    /// Waits for a job that it may have, and returns the id of that job.
    pub(super) fn fetch_within(&mut self, wait_ms: u32) -> io::Result<String> {
        self.body.clear();
        let worker = &self.worker;
        let _infallible =
            write!(self.body, r#"{{"queues":["default"],"worker_id":"{worker}","wait_ms":{wait_ms}}}"#);
        self.fetched()
    }

    fn fetched(&mut self) -> io::Result<String> {
        let jobs = self.post("/workers/fetch", "200")?;
        let (_, behind) = jobs.split_once(r#""id":""#).ok_or_else(nothing_ready)?;
        Ok(behind.split_once('"').ok_or_else(|| unexpected(behind))?.0.to_owned())
    }

    pub(super) fn ack(&mut self, id: &str, number: usize) -> io::Result<()> {
        self.body.clear();
        let (worker, result) = (&self.worker, self.texts.result(number));
        let _infallible =
            write!(self.body, r#"{{"job_id":"{id}","worker_id":"{worker}","result":"{result}"}}"#);
        self.post("/workers/ack", "200").map(drop)
    }
}

impl Client for OverHttp {
    fn cycle(&mut self, number: usize) -> io::Result<()> {
        match self.part {
            Part::Submission => self.submit(number),
            Part::Fetch => {
                if self.left == 0 {
                    self.stock(number)?;
                    self.left = STOCK;
                }
                self.left -= 1;
                self.fetch().map(drop)
            }
            Part::Cycle => {
                self.submit(number)?;
                let id = self.fetch()?;
                self.ack(&id, number)
            }
        }
    }
}

fn halves(agq: Agq, setting: Setting, part: Part) -> anyhow::Result<Crew<OverResp, Agq>> {
    let texts = Texts::new(setting.input_bytes);
    let client = |number| {
        let (wire, texts) = (agq.connect_worker(number)?, Arc::clone(&texts));
        Ok(OverResp { wire, texts, part, json: String::new(), left: 0 })
    };
    let clients = (0..setting.clients).map(client).collect::<io::Result<_>>()?;
    Ok(Crew::new(clients, agq))
}

/// A client over RESP that does a part of the cycle.
struct OverResp {
    wire: Wire,
    texts: Arc<Texts>,
    part: Part,
    json: String,
    // Of the jobs that it has submitted at once.
    left: usize,
}

impl OverResp {
    fn stock(&mut self, number: usize) -> io::Result<()> {
        let input = format!(r#"{{"data":"{}"}}"#, self.texts.input(number));
        let inputs = vec![input.as_str(); STOCK].join(",");
        self.wire.done(&["ACTION.SUBMIT", &format!(r#"{{"plan_id":"cycle","inputs":[{inputs}]}}"#)])
    }

    fn fetch(&mut self) -> io::Result<()> {
        self.wire.command(&["RPOP", "queue:ready"])?;
        self.wire.send()?;
        self.wire.bulk()?.map(drop).ok_or_else(nothing_ready)
    }
}

impl Client for OverResp {
    fn cycle(&mut self, number: usize) -> io::Result<()> {
        if self.part == Part::Submission {
            ours::submission(&mut self.json, self.texts.input(number));
            return self.wire.done(&["ACTION.SUBMIT", &self.json]);
        }
        if self.left == 0 {
            self.stock(number)?;
            self.left = STOCK;
        }
        self.left -= 1;
        self.fetch()
    }
}
