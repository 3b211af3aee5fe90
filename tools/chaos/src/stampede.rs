//! Five hundred workers at once: each logs in, registers, asks for a job, and is gone, whether it got one or not.

use std::{io, thread};

use serde_json::json;

use super::{
    Place,
    resp::{Reply, Resp, unexpected},
};

/// How many there are.
pub(super) const WORKERS: usize = 500;
const THREADS: usize = 10;

/// Lets them in; how many were served, and why the first was not that was not.
pub(super) fn run(place: &Place) -> (usize, Option<io::Error>) {
    let outcomes: Vec<io::Result<()>> = thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS).map(|part| scope.spawn(move || some(place, part))).collect();
        let failed = |_| vec![Err(io::Error::other("a thread of the stampede panicked"))];
        parts.into_iter().flat_map(|part| part.join().unwrap_or_else(failed)).collect()
    });
    let served = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    (served, outcomes.into_iter().find_map(Result::err))
}

/// A part of them: all are there before the first of them is listened to.
fn some(place: &Place, part: usize) -> Vec<io::Result<()>> {
    let numbers = (part..WORKERS).step_by(THREADS);
    let come: Vec<_> = numbers.map(|number| come(place, number)).collect();
    come.into_iter().map(|resp| resp.and_then(|mut resp| listen(&mut resp))).collect()
}

fn come(place: &Place, number: usize) -> io::Result<Resp> {
    let mut resp = Resp::open(&place.agq, &place.key)?;
    let registration =
        json!({"worker_id": format!("stampede-{number}"), "capabilities": ["sh", "sed"]}).to_string();
    resp.send(&["WORKER.REGISTER", &registration])?;
    resp.send(&["BRPOP", "queue:ready", "0.2"])?;
    Ok(resp)
}

fn listen(resp: &mut Resp) -> io::Result<()> {
    match resp.receive()? {
        Reply::Line(_registered) => {}
        other => return Err(unexpected(&other)),
    }
    match resp.receive()? {
        Reply::Nil | Reply::Bulk(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}
