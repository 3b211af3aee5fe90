//! Section `cycle`: the durable job cycle. Clients submit a job, claim one, and complete it with a
//! result of 1 KB. Each client has its own connection, and sends one request at a time. Each
//! comparison starts fresh servers.

mod agenix;
mod agq;
mod beanstalkd;
mod clients;
mod ended_jobs;
pub(crate) mod http;
mod limited;
mod node;
pub(crate) mod nodes;
mod payloads;
pub(crate) mod pgo_workload;
pub(crate) mod postgres;
mod producers_consumers;
mod producers_consumers_agq;
mod redis;
mod redis_lua;
mod server;
mod setting;
mod slow_disk;
pub(crate) mod store;
mod tools;
mod wire;

use std::time::Duration;

pub(crate) use self::tools::has_postgres;
use self::{
    agq::{AgqServer, SyncMode},
    setting::Setting,
    tools::Tools,
};
use super::{Bench, Better, ContenderComparison, ProgramDirs};

const SECTION: &str = "cycle";
const AGQ: &str = "agq always";
const AGQ_AS_SHIPPED: &str = "agq as shipped";
const REDIS: &str = "redis Lua";
const POSTGRES: &str = "PostgreSQL";
const BEANSTALKD: &str = "beanstalkd -f0";

const NOTE: &str = "every reply, also to claims, is durable; as shipped, claims are not; redis: AOF \
    always, rewriting off; PostgreSQL: SKIP LOCKED, no counters, pgbench by TCP as all others; beanstalkd \
    stores no results and no claims";

pub(crate) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let tools = Tools::find(bench, programs);
    for setting in setting::of_a_run(bench.is_quick) {
        cycles(bench, programs, &tools, setting)?;
    }
    producers_consumers::run(bench, programs, &tools)?;
    slow_disk::run(bench, programs, &tools)
}

/// Returns the time for which a contender is measured in a round. The measure is a time and not a
/// number of cycles, because syncs of some disks are so slow that peers which sync for each job
/// would take minutes.
fn span(bench: &Bench) -> Duration {
    // pgbench supports whole seconds only.
    Duration::from_secs(if bench.is_quick { 1 } else { 2 })
}

fn cycles(bench: &mut Bench, programs: &ProgramDirs, tools: &Tools, setting: Setting) -> anyhow::Result<()> {
    if !bench.wants(&setting.title()) {
        return Ok(());
    }
    let span = span(bench);
    let alone =
        |durability| agenix::clients(vec![AgqServer::start(&programs.bin, durability, None)?], setting);
    let (mut always, mut as_shipped) = (alone(SyncMode::Always)?, alone(SyncMode::AsShipped)?);
    let mut comparison = ContenderComparison::new(setting.title(), "cycles/s", Better::More)
        .with_note(NOTE)
        .with(AGQ, move || always.cycles_per_sec(span))
        .with(AGQ_AS_SHIPPED, move || as_shipped.cycles_per_sec(span));
    if let Some(program) = &tools.redis {
        let clients = redis_lua::clients(program, setting, None)
            .map(|mut clients| move || clients.cycles_per_sec(span));
        comparison = with_peer(bench, comparison, REDIS, clients);
    }
    if tools.has_postgres {
        let queue = postgres::queue(postgres::cluster(None), setting)
            .map(|mut queue| move || queue.cycles_per_sec(span));
        comparison = with_peer(bench, comparison, POSTGRES, queue);
    }
    if let Some(program) = &tools.beanstalkd {
        let clients =
            beanstalkd::clients(program, setting).map(|mut clients| move || clients.cycles_per_sec(span));
        comparison = with_peer(bench, comparison, BEANSTALKD, clients);
    }
    for &(peer, floor, aim) in setting.goals() {
        comparison = comparison.with_goal(peer, floor, aim);
    }
    bench.compare(SECTION, comparison)
}

/// Adds a contender to a comparison, or reports why it could not be started.
fn with_peer<'a>(
    bench: &mut Bench,
    comparison: ContenderComparison<'a>,
    name: &'static str,
    started: anyhow::Result<impl FnMut() -> anyhow::Result<f64> + 'a>,
) -> ContenderComparison<'a> {
    match started {
        Ok(run) => comparison.with(name, run),
        Err(error) => {
            bench.skip(&format!("{name}, {}", comparison.title), &format!("{error:#}"));
            comparison
        }
    }
}
