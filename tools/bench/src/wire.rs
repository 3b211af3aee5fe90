//! Commands on users' keys as fast as redis-benchmark sends them: agq and redis-server, each as durable as it can be, and less.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use agenix_harness::resp::{Reply, Resp, unexpected};
use anyhow::{Context, bail, ensure};
use e2e::{Agq, Lab};

use super::{
    Place,
    contest::{Better, Contest},
    measure::Bench,
    peers::{Persistence, Redis, redis_benchmark},
};

const SECTION: &str = "wire";
const CONNECTIONS: &str = "50";
const BYTES: &str = "100";
/// The list that redis-benchmark pushes to and pops from.
const LIST: &str = "mylist";
/// The deepest pipeline; every count is a multiple of it, so that nothing beyond the count is sent.
const MOST_AT_ONCE: usize = 16;
/// How many requests warm up, and the fewest of a round.
const FIRST: usize = 3200;

const OURS: [(&str, &str); 2] = [("agq always", "always"), ("agq interval", "interval")];
const ALWAYS: &str = "redis AOF always";
const PEERS: [(&str, Persistence); 3] = [
    (ALWAYS, Persistence::Always),
    ("redis AOF everysec", Persistence::EverySec),
    ("redis off", Persistence::Off),
];
/// What redis-benchmark calls its tests. SET comes before GET, and gives it something to find.
const TESTS: [Test; 5] = [
    Test { title: "PING", name: "ping_mbulk", is_write: false },
    Test { title: "SET", name: "set", is_write: true },
    Test { title: "GET", name: "get", is_write: false },
    Test { title: "LPUSH", name: "lpush", is_write: true },
    Test { title: "RPOP", name: "rpop", is_write: true },
];
const WRITES: &str = "synced before each answer: agq always and redis AOF always; later: agq interval and redis AOF \
                      everysec; never: redis off. redis-server rewrites no AOF here, and has one thread";
const READS: &str = "nothing is written";

#[derive(Clone, Copy)]
struct Test {
    title: &'static str,
    name: &'static str,
    is_write: bool,
}

pub(crate) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let Some(benchmark) = redis_benchmark(&place.tools) else {
        bench.skip(SECTION, "there is no redis-benchmark; Debian has it in redis-tools");
        return Ok(());
    };
    let servers = servers(bench, place)?;
    let secs = if bench.is_quick { 0.25 } else { 1.5 };
    for pipeline in [1, MOST_AT_ONCE] {
        for test in TESTS {
            let load = Load { benchmark: &benchmark, test, pipeline, secs };
            let contest = contest(&load, &servers);
            if bench.wants(&contest.title) {
                bench.hold(SECTION, contest)?;
            }
        }
    }
    Ok(())
}

fn contest<'a>(load: &'a Load<'a>, servers: &'a [Server]) -> Contest<'a> {
    let (title, pipeline) = (load.test.title, load.pipeline);
    let title = format!("{title}, {CONNECTIONS} connections, pipeline {pipeline}");
    let note = if load.test.is_write { WRITES } else { READS };
    // Where nothing is written, many commands at once show what the server itself costs.
    let (floor, aim) = if load.test.is_write || pipeline == 1 { (0.8, 1.0) } else { (0.6, 0.9) };
    let contest = Contest::new(title, "requests/s", Better::More).against(ALWAYS, floor, aim).noting(note);
    servers.iter().fold(contest, |contest, server| {
        // The round that warms up says how many requests make a round, on this server and on this disk.
        let mut count = FIRST;
        contest.with(server.name, move || {
            let rate = load.put_on(server, count)?;
            count = load.count_at(rate);
            Ok(rate)
        })
    })
}

/// A server that has nothing to do between its turns.
struct Server {
    name: &'static str,
    address: String,
    // One of them, and the first to be dropped: it writes into the lab's directory.
    _agq: Option<Agq>,
    _redis: Option<Redis>,
    lab: Lab,
}

/// All of them, ours first; in a quick run those alone that sync before each answer.
fn servers(bench: &mut Bench, place: &Place) -> anyhow::Result<Vec<Server>> {
    let (ours, peers) = if bench.is_quick { (&OURS[..1], &PEERS[..1]) } else { (&OURS[..], &PEERS[..]) };
    let mut servers = Vec::new();
    for &(name, durability) in ours {
        let lab = Lab::with_binaries(place.bin.clone());
        let mut args = crate::load::AGQ.to_vec();
        args.extend(["--durability", durability]);
        let agq = lab.agq(&args);
        servers.push(Server { name, address: agq.address(), _agq: Some(agq), _redis: None, lab });
    }
    for &(name, persistence) in peers {
        let lab = Lab::with_binaries(place.bin.clone());
        match Redis::start(&place.tools, &lab.path().join("redis"), lab.key(), persistence) {
            Ok(redis) => {
                let address = format!("127.0.0.1:{}", redis.port());
                servers.push(Server { name, address, _agq: None, _redis: Some(redis), lab });
            }
            Err(error) => bench.skip(&format!("{SECTION}: {name}"), &format!("{error:#}")),
        }
    }
    Ok(servers)
}

/// What redis-benchmark is to do, and for about how long.
struct Load<'a> {
    benchmark: &'a Path,
    test: Test,
    pipeline: usize,
    secs: f64,
}

impl Load<'_> {
    /// Puts so many requests on a server; how many of them it answers a second.
    fn put_on(&self, server: &Server, count: usize) -> anyhow::Result<f64> {
        if self.test.name == "rpop" {
            self.fill(server, count)?;
        }
        requests(self.benchmark, server, self.test.name, self.pipeline, count)
    }

    /// How many requests take as long as a round is to take.
    fn count_at(&self, rate: f64) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate of some millions at most"
        )]
        let count = (rate * self.secs) as usize;
        count.max(FIRST).next_multiple_of(MOST_AT_ONCE)
    }

    /// So many elements that nothing is popped from an empty list.
    fn fill(&self, server: &Server, count: usize) -> anyhow::Result<()> {
        let missing = count.saturating_sub(length(server)?);
        if missing == 0 {
            return Ok(());
        }
        requests(self.benchmark, server, "lpush", MOST_AT_ONCE, missing.next_multiple_of(MOST_AT_ONCE))?;
        let length = length(server)?;
        ensure!(length >= count, "there are {length} elements, {count} are to be popped");
        Ok(())
    }
}

/// How many elements the list has.
fn length(server: &Server) -> anyhow::Result<usize> {
    match Resp::open(&server.address, server.lab.key())?.ask(&["LLEN", LIST])? {
        Reply::Integer(length) => Ok(usize::try_from(length)?),
        other => bail!(unexpected(&other)),
    }
}

/// Runs redis-benchmark to its end. It stops by itself at the first error that is answered.
fn requests(
    benchmark: &Path,
    server: &Server,
    test: &str,
    pipeline: usize,
    count: usize,
) -> anyhow::Result<f64> {
    let (host, port) = server.address.split_once(':').context("an address has a port")?;
    let mut command = Command::new(benchmark);
    command
        .args(["-h", host, "-p", port, "-a", server.lab.key(), "-c", CONNECTIONS, "-d", BYTES])
        .args(["-t", test, "-P", &pipeline.to_string(), "-n", &count.to_string(), "--csv"])
        .stdin(Stdio::null());
    let output = command.output().context("cannot start redis-benchmark")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "redis-benchmark ended with {}: {}", output.status, said.trim());
    let table = String::from_utf8_lossy(&output.stdout);
    rate(&table).with_context(|| format!("redis-benchmark said no rate: {} {}", table.trim(), said.trim()))
}

/// The second column of the line behind the head: `"SET","66666.69","0.943",…`.
fn rate(table: &str) -> Option<f64> {
    let line = table.lines().nth(1)?;
    line.split(',').nth(1)?.trim().trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn the_rate_is_read() {
        let head = "\"test\",\"rps\",\"avg_latency_ms\"\n";
        assert_eq!(rate(&format!("{head}\"SET\",\"66666.69\",\"0.943\"\n")), Some(66_666.69));
        assert_eq!(rate(head), None);
        assert_eq!(rate(""), None);
    }
}
