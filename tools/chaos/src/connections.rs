//! Long connections over RESP and HTTP during the whole run: subscribers, dashboards, workers. agq
//! must not close a connection because another one ends, and a subscriber must get every message.

use std::{
    io::{self, ErrorKind},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use fastrand::Rng;
use serde_json::{Value, json};

use super::{
    Endpoints, http,
    ledger::ChaosLedger,
    pause,
    resp::{Resp, RespReply, unexpected},
};

/// There are more dashboards than subscribers, so that the number of connections over HTTP exceeds
/// the number of subscribers over RESP. A collision of connection numbers would then show.
const SUBSCRIBERS: usize = 5;
const DASHBOARDS: usize = 8;
const CHANNEL: &str = "chaos:news";
const LIST: &str = "chaos:relay";
const QUEUE: &str = "chaos-http";
const PUBLISH_EVERY: Duration = Duration::from_millis(20);
/// Greatest number of events that a dashboard reads before it is closed.
const MAX_EVENTS: usize = 6;

/// Runs a client until its connection ends, and returns the reason.
type ClientLoop = fn(&Endpoints, &ChaosLedger, &mut Rng) -> io::Result<()>;

/// Starts all clients.
pub(super) fn start(
    endpoints: &Arc<Endpoints>,
    ledger: &Arc<ChaosLedger>,
    rng: &mut Rng,
) -> Vec<JoinHandle<()>> {
    let subscribers = [("a subscriber", subscribe as ClientLoop)].repeat(SUBSCRIBERS);
    let dashboards = [("a dashboard", browse as ClientLoop)].repeat(DASHBOARDS);
    let others: [(&str, ClientLoop); 3] = [
        ("the publisher", publish),
        ("a client that waits for elements", take),
        ("a worker over HTTP", work),
    ];
    let all = subscribers.into_iter().chain(dashboards).chain(others);
    all.map(|(name, client)| {
        let (endpoints, ledger, rng) = (Arc::clone(endpoints), Arc::clone(ledger), rng.fork());
        thread::spawn(move || keep(name, client, &endpoints, &ledger, rng))
    })
    .collect()
}

/// Keeps a client connected until the load ends. An open connection may end only with the agq
/// process.
fn keep(name: &str, client: ClientLoop, endpoints: &Endpoints, ledger: &ChaosLedger, mut rng: Rng) {
    while !ledger.is_over() {
        // The connection is opened later, so it belongs to this agq process or to a later one.
        let generation = endpoints.generation();
        match client(endpoints, ledger, &mut rng) {
            Ok(()) => {}
            Err(error)
                if error.kind() == ErrorKind::UnexpectedEof
                    && generation.is_some()
                    && endpoints.generation() == generation =>
            {
                ledger.lost(format!("{name} was disconnected while agq was running: {error}"));
            }
            Err(_with_agq) => ledger.note("connections that listeners lost"),
        }
        pause(Duration::from_millis(50));
    }
}

/// Connects. A failure to connect does not count as a disconnection.
fn open(endpoints: &Endpoints) -> io::Result<Resp> {
    Resp::open(&endpoints.agq, &endpoints.key).map_err(|error| io::Error::other(error.to_string()))
}

/// Subscribes to the channel, and checks that no message is missing.
fn subscribe(endpoints: &Endpoints, ledger: &ChaosLedger, _rng: &mut Rng) -> io::Result<()> {
    let mut resp = open(endpoints)?;
    resp.ask(&["SUBSCRIBE", CHANNEL])?;
    let mut before: Option<(u64, u64)> = None;
    while !ledger.is_over() {
        let RespReply::Array(message) = resp.receive()? else { continue };
        let Some(RespReply::Bulk(text)) = message.last() else { continue };
        let parsed = text.split_once(':').and_then(|(of, n)| Some((of.parse().ok()?, n.parse().ok()?)));
        let Some((of, number)) = parsed else {
            ledger.lost(format!("a subscriber got '{text}', which was not published"));
            continue;
        };
        if let Some((last_of, last)) = before.filter(|(last_of, last)| *last_of == of && last + 1 != number) {
            ledger.lost(format!("a subscriber got {of}:{number} after {last_of}:{last}"));
        }
        before = Some((of, number));
        ledger.acknowledged("messages received", 1);
    }
    Ok(())
}

/// Publishes numbered messages, and pushes elements for the client that pops them.
fn publish(endpoints: &Endpoints, ledger: &ChaosLedger, rng: &mut Rng) -> io::Result<()> {
    let mut resp = open(endpoints)?;
    // Messages of one publisher arrive in order.
    let of = rng.u64(..);
    for number in 1_u64.. {
        if ledger.is_over() {
            break;
        }
        match resp.ask(&["PUBLISH", CHANNEL, &format!("{of}:{number}")])? {
            RespReply::Integer(_received) => ledger.acknowledged("messages published", 1),
            other => return Err(unexpected(&other)),
        }
        if number.is_multiple_of(10) {
            resp.ask(&["RPUSH", LIST, &format!("{of}:{number}")])?;
        }
        pause(PUBLISH_EVERY);
    }
    // Subscribers wait for a last message before they end.
    (0..SUBSCRIBERS)
        .try_for_each(|_| resp.ask(&["PUBLISH", CHANNEL, &format!("{}:0", rng.u64(..))]).map(drop))
}

/// Pops elements, and checks that none comes twice.
fn take(endpoints: &Endpoints, ledger: &ChaosLedger, _rng: &mut Rng) -> io::Result<()> {
    let mut resp = open(endpoints)?;
    let mut before = String::new();
    while !ledger.is_over() {
        let RespReply::Array(taken) = resp.ask(&["BLPOP", LIST, "1"])? else { continue };
        let Some(RespReply::Bulk(element)) = taken.into_iter().next_back() else { continue };
        if element == before {
            ledger.lost(format!("the element {element} was taken twice"));
        }
        before = element;
        ledger.acknowledged("elements taken", 1);
    }
    Ok(())
}

/// Opens a dashboard, reads some events, and closes it.
fn browse(endpoints: &Endpoints, ledger: &ChaosLedger, rng: &mut Rng) -> io::Result<()> {
    let address = endpoints.http();
    let key = json!({"key": endpoints.key}).to_string();
    let other = |error: io::Error| io::Error::other(error.to_string());
    let login = http::ask(&address, ("POST", "/dashboard/login"), "", &key).map_err(other)?;
    let cookie = format!("Cookie: {}\r\n", login.cookie.unwrap_or_default());
    let mut stream = http::ask(&address, ("GET", "/dashboard/events"), &cookie, "").map_err(other)?;
    if stream.status != 200 {
        return Err(io::Error::other(format!("a dashboard's stream was answered {}", stream.status)));
    }
    for _event in 0..rng.usize(1..=MAX_EVENTS) {
        while !ledger.is_over() && !stream.line()?.starts_with("event:") {}
    }
    ledger.acknowledged("dashboards that were open", 1);
    Ok(())
}

/// Submits a job over HTTP, fetches it and reports it.
fn work(endpoints: &Endpoints, ledger: &ChaosLedger, _rng: &mut Rng) -> io::Result<()> {
    let ask = |path: &str, body: Value| {
        let headers = format!("Authorization: Bearer {}\r\n", endpoints.key);
        let answer = http::ask(&endpoints.http(), ("POST", path), &headers, &body.to_string());
        let answer = answer.map_err(|error| io::Error::other(error.to_string()))?;
        if !(200..300).contains(&answer.status) {
            return Err(io::Error::other(answer.body));
        }
        serde_json::from_str::<Value>(&answer.body).map_err(io::Error::other)
    };
    ask("/ojs/v1/jobs", json!({"type": "chaos", "args": [1], "options": {"queue": QUEUE}}))?;
    let fetched = ask("/ojs/v1/workers/fetch", json!({"queues": [QUEUE], "count": 1}))?;
    if let Some(id) = fetched["jobs"][0]["id"].as_str() {
        ask("/ojs/v1/workers/ack", json!({"job_id": id, "result": 1}))?;
        ledger.acknowledged("jobs over HTTP", 1);
    }
    Ok(())
}
