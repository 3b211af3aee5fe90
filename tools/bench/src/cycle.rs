//! The durable job cycle: a job is submitted, claimed, and completed with a result of 1 KB, by clients that each do so over a
//! connection of their own, one request at a time. Against peers that do the same, every server fresh for every contest.

mod agq;
mod beanstalkd;
mod crew;
mod ended;
pub(crate) mod http;
mod limited;
mod node;
pub(crate) mod nodes;
mod ours;
mod pairs;
mod pairs_ours;
pub(crate) mod pgo_workload;
mod postgres;
mod redis;
mod redis_lua;
mod server;
mod setting;
mod slow_disk;
pub(crate) mod store;
mod texts;
mod tools;
mod wire;

use std::time::Duration;

use self::{
    agq::{Agq, Durability},
    setting::Setting,
    tools::Tools,
};
use super::{Bench, Better, Contest, Place};

const SECTION: &str = "cycle";
const AGQ: &str = "agq always";
const AGQ_AS_SHIPPED: &str = "agq as shipped";
const REDIS: &str = "redis Lua";
const POSTGRES: &str = "PostgreSQL";
const BEANSTALKD: &str = "beanstalkd -f0";

const NOTE: &str = "every answer waits for the disk, claims too; as shipped, claims do not; redis: AOF always, never \
    rewritten; PostgreSQL: SKIP LOCKED, no counters, pgbench over TCP like all others; beanstalkd keeps no result, and no claim";

/// Everything of this section.
pub(crate) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let tools = Tools::ready(bench, place);
    for setting in setting::of_a_run(bench.is_quick) {
        cycles(bench, place, &tools, setting)?;
    }
    pairs::run(bench, place, &tools)?;
    slow_disk::run(bench, place, &tools)
}

/// How long a contender is measured for at a time. Not so many cycles: a sync takes ten times as long on one disk as on
/// another, and on a slow one peers that sync for each job alone would take minutes.
fn span(bench: &Bench) -> Duration {
    // pgbench knows whole seconds only.
    Duration::from_secs(if bench.is_quick { 1 } else { 2 })
}

/// One setting, everybody in it.
fn cycles(bench: &mut Bench, place: &Place, tools: &Tools, setting: Setting) -> anyhow::Result<()> {
    if !bench.wants(&setting.title()) {
        return Ok(());
    }
    let span = span(bench);
    let alone = |durability| ours::crew(vec![Agq::start(&place.bin, durability, None)?], setting);
    let (mut always, mut as_shipped) = (alone(Durability::Always)?, alone(Durability::AsShipped)?);
    let mut contest = Contest::new(setting.title(), "cycles/s", Better::More)
        .noting(NOTE)
        .with(AGQ, move || always.cycles_per_sec(span))
        .with(AGQ_AS_SHIPPED, move || as_shipped.cycles_per_sec(span));
    if let Some(program) = &tools.redis {
        let crew = redis_lua::crew(program, setting, None).map(|mut crew| move || crew.cycles_per_sec(span));
        contest = joined(bench, contest, REDIS, crew);
    }
    if tools.has_postgres {
        let queue = postgres::queue(postgres::cluster(None), setting)
            .map(|mut queue| move || queue.cycles_per_sec(span));
        contest = joined(bench, contest, POSTGRES, queue);
    }
    if let Some(program) = &tools.beanstalkd {
        let crew = beanstalkd::crew(program, setting).map(|mut crew| move || crew.cycles_per_sec(span));
        contest = joined(bench, contest, BEANSTALKD, crew);
    }
    for &(peer, floor, aim) in setting.goals() {
        contest = contest.against(peer, floor, aim);
    }
    bench.hold(SECTION, contest)
}

/// The contest with one more, where that one could be started.
fn joined<'a>(
    bench: &mut Bench,
    contest: Contest<'a>,
    name: &'static str,
    started: anyhow::Result<impl FnMut() -> anyhow::Result<f64> + 'a>,
) -> Contest<'a> {
    match started {
        Ok(run) => contest.with(name, run),
        Err(error) => {
            bench.skip(&format!("{name}, {}", contest.title), &format!("{error:#}"));
            contest
        }
    }
}
