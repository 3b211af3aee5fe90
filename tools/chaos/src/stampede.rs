//! Connects five hundred workers at once. Each worker logs in, registers, asks for a job, and
//! disconnects with or without one.

use std::{io, thread};

use serde_json::json;

use super::{
    Endpoints,
    resp::{Resp, RespReply, unexpected},
};

pub(super) const WORKERS: usize = 500;
const THREADS: usize = 10;

/// Runs all workers. Returns the number of those that were served, and the first error of another
/// one.
pub(super) fn run(endpoints: &Endpoints) -> (usize, Option<io::Error>) {
    let outcomes: Vec<io::Result<()>> = thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS).map(|part| scope.spawn(move || run_part(endpoints, part))).collect();
        let failed = |_| vec![Err(io::Error::other("a thread of the stampede panicked"))];
        parts.into_iter().flat_map(|part| part.join().unwrap_or_else(failed)).collect()
    });
    let served = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    (served, outcomes.into_iter().find_map(Result::err))
}

/// Runs the workers of one thread, all of which connect before the first reply is read.
fn run_part(endpoints: &Endpoints, part: usize) -> Vec<io::Result<()>> {
    let numbers = (part..WORKERS).step_by(THREADS);
    let connected: Vec<_> = numbers.map(|number| connect(endpoints, number)).collect();
    connected.into_iter().map(|resp| resp.and_then(|mut resp| receive(&mut resp))).collect()
}

fn connect(endpoints: &Endpoints, number: usize) -> io::Result<Resp> {
    let mut resp = Resp::open(&endpoints.agq, &endpoints.key)?;
    let registration =
        json!({"worker_id": format!("stampede-{number}"), "capabilities": ["sh", "sed"]}).to_string();
    resp.send(&["WORKER.REGISTER", &registration])?;
    resp.send(&["BRPOP", "queue:ready", "0.2"])?;
    Ok(resp)
}

fn receive(resp: &mut Resp) -> io::Result<()> {
    match resp.receive()? {
        RespReply::Line(_registered) => {}
        other => return Err(unexpected(&other)),
    }
    match resp.receive()? {
        RespReply::Nil | RespReply::Bulk(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}
