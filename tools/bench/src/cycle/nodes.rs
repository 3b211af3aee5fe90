//! Section `nodes`: several agq on one PostgreSQL. Cycles are compared with plain SKIP LOCKED on
//! the same server, producers and consumers with graphile-worker.

use std::sync::Arc;

use super::{
    POSTGRES, agenix,
    agq::AgqServer,
    postgres,
    producers_consumers::{self, GRAPHILE},
    producers_consumers_agq::ProducersConsumers,
    setting::Setting,
    span,
    tools::Tools,
    with_peer,
};
use crate::{Bench, Better, ContenderComparison, ProgramDirs};

const SECTION: &str = "nodes";
const ONE_NODE: &str = "1 agq on PostgreSQL";
const THREE_NODES: &str = "3 agq on PostgreSQL";
const NOTE: &str = "all on one PostgreSQL with its default settings; claims of agq are not durable; \
    pgbench: SKIP LOCKED, no counters, no server in between; graphile-worker stores no results";

/// Ratio of one agq to plain SKIP LOCKED, by the number of clients: clients, floor, aim.
const TO_POSTGRES: [(usize, f64, f64); 2] = [(8, 0.4, 0.6), (64, 0.6, 1.0)];
/// Ratio of one agq to graphile-worker: floor, aim.
const TO_GRAPHILE: (f64, f64) = (3.0, 4.0);
/// Ratio of three agq to one: floor, aim. All nodes and the database share the same processors.
const TO_ONE_NODE: (f64, f64) = (1.0, 1.3);

pub(crate) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let tools = Tools::find(bench, programs);
    if !tools.has_postgres {
        bench.skip("several agq", "there is no PostgreSQL");
        return Ok(());
    }
    for (clients, floor, aim) in TO_POSTGRES {
        cycles(bench, programs, Setting { clients, ..Setting::SLOW_DISK }, (floor, aim))?;
    }
    producers_consumers(bench, programs, &tools)
}

fn cycles(
    bench: &mut Bench,
    programs: &ProgramDirs,
    setting: Setting,
    (floor, aim): (f64, f64),
) -> anyhow::Result<()> {
    let (span, cluster) = (span(bench), postgres::cluster(None));
    let nodes = |count| {
        agenix::clients(
            AgqServer::start_nodes(&programs.bin, count, &cluster.create(&format!("nodes_{count}")))?,
            setting,
        )
    };
    let (mut one, mut three) = (nodes(1)?, nodes(3)?);
    let queue = postgres::queue(Arc::clone(&cluster), setting);
    let title = format!("one PostgreSQL, {}", setting.title());
    let comparison = ContenderComparison::new(&title, "cycles/s", Better::More)
        .with_goal(POSTGRES, floor, aim)
        .with_note(NOTE)
        .with(ONE_NODE, || one.cycles_per_sec(span));
    let queue = queue.map(|mut queue| move || queue.cycles_per_sec(span));
    let comparison = with_peer(bench, comparison, POSTGRES, queue);
    bench.compare(SECTION, comparison)?;
    let comparison = three_nodes(&title, "cycles/s")
        .with(THREE_NODES, || three.cycles_per_sec(span))
        .with(ONE_NODE, || one.cycles_per_sec(span));
    bench.compare(SECTION, comparison)
}

fn producers_consumers(bench: &mut Bench, programs: &ProgramDirs, tools: &Tools) -> anyhow::Result<()> {
    let (span, cluster) = (span(bench), postgres::cluster(None));
    let nodes = |count| {
        ProducersConsumers::at(AgqServer::start_nodes(
            &programs.bin,
            count,
            &cluster.create(&format!("nodes_{count}")),
        )?)
    };
    let (mut one, mut three) = (nodes(1)?, nodes(3)?);
    let title = "one PostgreSQL, 8 producers and 8 consumers, 100 B";
    let mut comparison = ContenderComparison::new(title, "jobs/s", Better::More)
        .with_goal(GRAPHILE, TO_GRAPHILE.0, TO_GRAPHILE.1)
        .with_note(NOTE)
        .with(ONE_NODE, || one.jobs_per_sec(span));
    if let Some(node) = &tools.node {
        let run = producers_consumers::graphile(node, Arc::clone(&cluster))
            .map(|mut peer| move || peer.jobs_per_sec(span));
        comparison = with_peer(bench, comparison, GRAPHILE, run);
    }
    bench.compare(SECTION, comparison)?;
    let comparison = three_nodes(title, "jobs/s")
        .with(THREE_NODES, || three.jobs_per_sec(span))
        .with(ONE_NODE, || one.jobs_per_sec(span));
    bench.compare(SECTION, comparison)
}

/// Returns a comparison of three agq with one, still without contenders.
fn three_nodes<'a>(title: &str, unit: &'static str) -> ContenderComparison<'a> {
    ContenderComparison::new(format!("three agq on {title}"), unit, Better::More)
        .with_goal(ONE_NODE, TO_ONE_NODE.0, TO_ONE_NODE.1)
        .with_note(NOTE)
}
