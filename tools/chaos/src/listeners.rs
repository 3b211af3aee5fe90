//! Clients that listen over RESP, beside dashboards and workers over HTTP, for the whole run. agq
//! cuts nobody off because somebody else leaves, and a listener hears every message.

use std::{
    io::{self, ErrorKind},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use fastrand::Rng;
use serde_json::{Value, json};

use super::{
    Place, http,
    ledger::Ledger,
    pause,
    resp::{Reply, Resp, unexpected},
};

/// There are more dashboards than subscribers, because each door of agq has to number more
/// connections than the other door has listeners.
const SUBSCRIBERS: usize = 5;
const DASHBOARDS: usize = 8;
const CHANNEL: &str = "chaos:news";
const LIST: &str = "chaos:relay";
const QUEUE: &str = "chaos-http";
const PUBLISH_EVERY: Duration = Duration::from_millis(20);
/// Number of events after which a dashboard is closed at the latest.
const MOST_EVENTS: usize = 6;

/// A client, and what ended its connection.
type Client = fn(&Place, &Ledger, &mut Rng) -> io::Result<()>;

/// Starts all of them.
pub(super) fn start(place: &Arc<Place>, ledger: &Arc<Ledger>, rng: &mut Rng) -> Vec<JoinHandle<()>> {
    let subscribers = [("a subscriber", subscribe as Client)].repeat(SUBSCRIBERS);
    let dashboards = [("a dashboard", browse as Client)].repeat(DASHBOARDS);
    let others: [(&str, Client); 3] = [
        ("the publisher", publish),
        ("a client that waits for elements", take),
        ("a worker over HTTP", work),
    ];
    let all = subscribers.into_iter().chain(dashboards).chain(others);
    all.map(|(name, client)| {
        let (place, ledger, rng) = (Arc::clone(place), Arc::clone(ledger), rng.fork());
        thread::spawn(move || keep(name, client, &place, &ledger, rng))
    })
    .collect()
}

/// Keeps a client connected until the load ends. A connection that was open ends only with agq.
fn keep(name: &str, client: Client, place: &Place, ledger: &Ledger, mut rng: Rng) {
    while !ledger.is_over() {
        // A connection from here on belongs to this life or to a later one.
        let life = place.life();
        match client(place, ledger, &mut rng) {
            Ok(()) => {}
            Err(error)
                if error.kind() == ErrorKind::UnexpectedEof && life.is_some() && place.life() == life =>
            {
                ledger.lost(format!("{name} was cut off while agq lived: {error}"));
            }
            Err(_with_agq) => ledger.note("connections that listeners lost"),
        }
        pause(Duration::from_millis(50));
    }
}

/// Connects; whatever prevents that is no cut.
fn open(place: &Place) -> io::Result<Resp> {
    Resp::open(&place.agq, &place.key).map_err(|error| io::Error::other(error.to_string()))
}

/// Listens to the channel, on which no message may be missing.
fn subscribe(place: &Place, ledger: &Ledger, _rng: &mut Rng) -> io::Result<()> {
    let mut resp = open(place)?;
    resp.ask(&["SUBSCRIBE", CHANNEL])?;
    let mut before: Option<(u64, u64)> = None;
    while !ledger.is_over() {
        let Reply::Array(message) = resp.receive()? else { continue };
        let Some(Reply::Bulk(text)) = message.last() else { continue };
        let heard = text.split_once(':').and_then(|(of, n)| Some((of.parse().ok()?, n.parse().ok()?)));
        let Some((of, number)) = heard else {
            ledger.lost(format!("a subscriber heard '{text}', which nobody published"));
            continue;
        };
        if let Some((last_of, last)) = before.filter(|(last_of, last)| *last_of == of && last + 1 != number) {
            ledger.lost(format!("a subscriber heard {of}:{number} after {last_of}:{last}"));
        }
        before = Some((of, number));
        ledger.acknowledged("messages heard", 1);
    }
    Ok(())
}

/// Publishes numbered messages, and pushes elements for the client that waits for them.
fn publish(place: &Place, ledger: &Ledger, rng: &mut Rng) -> io::Result<()> {
    let mut resp = open(place)?;
    // Messages of one connection come in their order.
    let of = rng.u64(..);
    for number in 1_u64.. {
        if ledger.is_over() {
            break;
        }
        match resp.ask(&["PUBLISH", CHANNEL, &format!("{of}:{number}")])? {
            Reply::Integer(_heard) => ledger.acknowledged("messages published", 1),
            other => return Err(unexpected(&other)),
        }
        if number.is_multiple_of(10) {
            resp.ask(&["RPUSH", LIST, &format!("{of}:{number}")])?;
        }
        pause(PUBLISH_EVERY);
    }
    // Subscribers wait for a last message.
    (0..SUBSCRIBERS)
        .try_for_each(|_| resp.ask(&["PUBLISH", CHANNEL, &format!("{}:0", rng.u64(..))]).map(drop))
}

/// Waits for elements, each of which comes once.
fn take(place: &Place, ledger: &Ledger, _rng: &mut Rng) -> io::Result<()> {
    let mut resp = open(place)?;
    let mut before = String::new();
    while !ledger.is_over() {
        let Reply::Array(taken) = resp.ask(&["BLPOP", LIST, "1"])? else { continue };
        let Some(Reply::Bulk(element)) = taken.into_iter().next_back() else { continue };
        if element == before {
            ledger.lost(format!("the element {element} was taken twice"));
        }
        before = element;
        ledger.acknowledged("elements taken", 1);
    }
    Ok(())
}

/// Opens a dashboard, looks at some events, and closes it.
fn browse(place: &Place, ledger: &Ledger, rng: &mut Rng) -> io::Result<()> {
    let address = place.http();
    let key = json!({"key": place.key}).to_string();
    let other = |error: io::Error| io::Error::other(error.to_string());
    let login = http::ask(&address, ("POST", "/dashboard/login"), "", &key).map_err(other)?;
    let cookie = format!("Cookie: {}\r\n", login.cookie.unwrap_or_default());
    let mut stream = http::ask(&address, ("GET", "/dashboard/events"), &cookie, "").map_err(other)?;
    if stream.status != 200 {
        return Err(io::Error::other(format!("a dashboard's stream was answered {}", stream.status)));
    }
    for _event in 0..rng.usize(1..=MOST_EVENTS) {
        while !ledger.is_over() && !stream.line()?.starts_with("event:") {}
    }
    ledger.acknowledged("dashboards that were open", 1);
    Ok(())
}

/// Submits a job over HTTP, fetches it and reports it.
fn work(place: &Place, ledger: &Ledger, _rng: &mut Rng) -> io::Result<()> {
    let ask = |path: &str, body: Value| {
        let headers = format!("Authorization: Bearer {}\r\n", place.key);
        let answer = http::ask(&place.http(), ("POST", path), &headers, &body.to_string());
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
