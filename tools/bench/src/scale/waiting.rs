//! Five hundred workers wait for jobs that they could run, and others come: what a job costs that is looked at for all of them.

use std::{io, path::Path};

use agenix_harness::resp::Resp;

use super::{
    SECTION, grouped,
    stand::{Stand, must, register},
    turns,
};
use crate::{
    Place,
    contest::{Better, Contest},
    measure::Bench,
};

const WAITING: usize = 500;
const JOB: &str = r#"{"plan_id":"nothing","inputs":[{}]}"#;
const NOTE: &str = "those who wait in BRPOP have another tool than the jobs need; one connection submits, claims and completes, \
    one command at a time; claims are on disk soon after, the rest before it is acknowledged";

/// An agq for which some wait.
struct Room {
    resp: Resp,
    _waiting: Vec<Resp>,
    // Dropped last.
    _stand: Stand,
}

pub(super) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let turns = bench.scaled(1000, 300);
    let (mut full, mut empty) = (Room::new(&place.bin, WAITING)?, Room::new(&place.bin, 0)?);
    let waiting = format!("{} workers wait", grouped(WAITING));
    let contest =
        Contest::new(format!("submit, claim and complete a job while {waiting}"), "µs", Better::Less)
            .noting(NOTE)
            .with(waiting, || full.turns(turns))
            .with("nobody waits", || empty.turns(turns));
    bench.hold(SECTION, contest)
}

impl Room {
    fn new(bin: &Path, waiting: usize) -> anyhow::Result<Self> {
        let stand = Stand::new(bin);
        let mut resp = stand.connect()?;
        let waiting = (0..waiting).map(|n| wait(&stand, n)).collect::<io::Result<_>>()?;
        register(&mut resp, "worker", "true", "")?;
        Ok(Self { resp, _waiting: waiting, _stand: stand })
    }

    fn turns(&mut self, turns: usize) -> anyhow::Result<f64> {
        let resp = &mut self.resp;
        turns::timed(turns, || {
            must(resp, &["ACTION.SUBMIT", JOB])?;
            let job = turns::claim(resp)?;
            turns::complete(resp, &job).map_err(Into::into)
        })
    }
}

/// A worker that waits for jobs, of which there will be none for it.
fn wait(stand: &Stand, n: usize) -> io::Result<Resp> {
    let mut resp = stand.connect()?;
    register(&mut resp, &format!("waiting-{n}"), "other", "")?;
    resp.send(&["BRPOP", "queue:ready", "0"])?;
    Ok(resp)
}
