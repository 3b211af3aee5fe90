//! Section `wire`: commands on keys by redis-benchmark, on agq and on redis-server, each with
//! several levels of durability.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use agenix_harness::resp::{Resp, RespReply, unexpected};
use anyhow::{Context, bail, ensure};
use e2e::{Agq, Lab};

use super::{
    ProgramDirs,
    comparison::{Better, ContenderComparison},
    measure::Bench,
    redis_server::{Persistence, RedisServer, redis_benchmark},
};

const SECTION: &str = "wire";
const CONNECTIONS: &str = "50";
const BYTES: &str = "100";
/// List that redis-benchmark pushes to and pops from.
const LIST: &str = "mylist";
/// Depth of the deeper pipeline. Each count is a multiple of this depth, because redis-benchmark
/// sends whole pipelines.
const MAX_PIPELINE: usize = 16;
/// Number of requests that warm up, and the least number of a round.
const MIN_REQUESTS: usize = 3200;

const OURS: [(&str, &str); 2] = [("agq always", "always"), ("agq interval", "interval")];
const ALWAYS: &str = "redis AOF always";
const PEERS: [(&str, Persistence); 3] = [
    (ALWAYS, Persistence::Always),
    ("redis AOF everysec", Persistence::EverySec),
    ("redis off", Persistence::Off),
];
/// Tests by their names in redis-benchmark. SET comes before GET, which reads its values.
const TESTS: [Test; 5] = [
    Test { title: "PING", name: "ping_mbulk", is_write: false },
    Test { title: "SET", name: "set", is_write: true },
    Test { title: "GET", name: "get", is_write: false },
    Test { title: "LPUSH", name: "lpush", is_write: true },
    Test { title: "RPOP", name: "rpop", is_write: true },
];
const WRITES: &str = "sync before each reply: agq always and redis AOF always; delayed: agq interval and \
    redis AOF everysec; never: redis off. redis-server has one thread, and AOF rewriting is off";
const READS: &str = "no writes";

#[derive(Clone, Copy)]
struct Test {
    title: &'static str,
    name: &'static str,
    is_write: bool,
}

pub(crate) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let Some(benchmark) = redis_benchmark(&programs.tools) else {
        bench.skip(SECTION, "there is no redis-benchmark; Debian has it in redis-tools");
        return Ok(());
    };
    let servers = servers(bench, programs)?;
    let secs = if bench.is_quick { 0.25 } else { 1.5 };
    for pipeline in [1, MAX_PIPELINE] {
        for test in TESTS {
            let load = Load { benchmark: &benchmark, test, pipeline, secs };
            let comparison = comparison(&load, &servers);
            if bench.wants(&comparison.title) {
                bench.compare(SECTION, comparison)?;
            }
        }
    }
    Ok(())
}

fn comparison<'a>(load: &'a Load<'a>, servers: &'a [KeyServer]) -> ContenderComparison<'a> {
    let (title, pipeline) = (load.test.title, load.pipeline);
    let title = format!("{title}, {CONNECTIONS} connections, pipeline {pipeline}");
    let note = if load.test.is_write { WRITES } else { READS };
    // A pipeline of reads shows the cost of the server itself.
    let (floor, aim) = if load.test.is_write || pipeline == 1 { (0.8, 1.0) } else { (0.6, 0.9) };
    let comparison = ContenderComparison::new(title, "requests/s", Better::More)
        .with_goal(ALWAYS, floor, aim)
        .with_note(note);
    servers.iter().fold(comparison, |comparison, server| {
        // The rate of the first round gives the number of requests of the next, for this server and
        // disk.
        let mut count = MIN_REQUESTS;
        comparison.with(server.name, move || {
            let rate = load.run_on(server, count)?;
            count = load.count_at(rate);
            Ok(rate)
        })
    })
}

/// A server that is idle while others are measured.
struct KeyServer {
    name: &'static str,
    address: String,
    // Exactly one of the following servers is set. The servers are dropped before the lab, because
    // they write into the directory of the lab.
    _agq: Option<Agq>,
    _redis: Option<RedisServer>,
    lab: Lab,
}

/// Starts all servers, ours first. A quick run has only those that sync before each answer.
fn servers(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<Vec<KeyServer>> {
    let (ours, peers) = if bench.is_quick { (&OURS[..1], &PEERS[..1]) } else { (&OURS[..], &PEERS[..]) };
    let mut servers = Vec::new();
    for &(name, durability) in ours {
        let lab = Lab::with_binaries(programs.bin.clone());
        let mut args = crate::load::AGQ.to_vec();
        args.extend(["--durability", durability]);
        let agq = lab.agq(&args);
        servers.push(KeyServer { name, address: agq.address(), _agq: Some(agq), _redis: None, lab });
    }
    for &(name, persistence) in peers {
        let lab = Lab::with_binaries(programs.bin.clone());
        match RedisServer::start(&programs.tools, &lab.path().join("redis"), lab.key(), persistence) {
            Ok(redis) => {
                let address = format!("127.0.0.1:{}", redis.port());
                servers.push(KeyServer { name, address, _agq: None, _redis: Some(redis), lab });
            }
            Err(error) => bench.skip(&format!("{SECTION}: {name}"), &format!("{error:#}")),
        }
    }
    Ok(servers)
}

/// Work of redis-benchmark, and its approximate time in seconds.
struct Load<'a> {
    benchmark: &'a Path,
    test: Test,
    pipeline: usize,
    secs: f64,
}

impl Load<'_> {
    /// Sends `count` requests to a server, and returns the requests per second.
    fn run_on(&self, server: &KeyServer, count: usize) -> anyhow::Result<f64> {
        if self.test.name == "rpop" {
            self.fill(server, count)?;
        }
        requests(self.benchmark, server, self.test.name, self.pipeline, count)
    }

    /// Returns the number of requests that take as long as a round, at `rate` requests per second.
    fn count_at(&self, rate: f64) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate of some millions at most"
        )]
        let count = (rate * self.secs) as usize;
        count.max(MIN_REQUESTS).next_multiple_of(MAX_PIPELINE)
    }

    /// Fills the list, so that it has `count` elements to pop.
    fn fill(&self, server: &KeyServer, count: usize) -> anyhow::Result<()> {
        let missing = count.saturating_sub(length(server)?);
        if missing == 0 {
            return Ok(());
        }
        requests(self.benchmark, server, "lpush", MAX_PIPELINE, missing.next_multiple_of(MAX_PIPELINE))?;
        let length = length(server)?;
        ensure!(length >= count, "there are {length} elements, {count} are to be popped");
        Ok(())
    }
}

/// Returns the length of the list.
fn length(server: &KeyServer) -> anyhow::Result<usize> {
    match Resp::open(&server.address, server.lab.key())?.ask(&["LLEN", LIST])? {
        RespReply::Integer(length) => Ok(usize::try_from(length)?),
        other => bail!(unexpected(&other)),
    }
}

/// Runs redis-benchmark, which stops at the first error reply. Returns the requests per second.
fn requests(
    benchmark: &Path,
    server: &KeyServer,
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "redis-benchmark ended with {}: {}", output.status, stderr.trim());
    let table = String::from_utf8_lossy(&output.stdout);
    rate(&table)
        .with_context(|| format!("redis-benchmark printed no rate: {} {}", table.trim(), stderr.trim()))
}

/// Parses the second column of the line after the head: `"SET","66666.69","0.943",…`.
fn rate(table: &str) -> Option<f64> {
    let line = table.lines().nth(1)?;
    line.split(',').nth(1)?.trim().trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rate_is_the_second_column() {
        let head = "\"test\",\"rps\",\"avg_latency_ms\"\n";
        assert_eq!(rate(&format!("{head}\"SET\",\"66666.69\",\"0.943\"\n")), Some(66_666.69));
        assert_eq!(rate(head), None);
        assert_eq!(rate(""), None);
    }
}
