//! Section `nodes`: several agq on one PostgreSQL. Cycles are compared with plain SKIP LOCKED on
//! the same server, producers and consumers with graphile-worker.

use std::sync::Arc;

use super::{
    POSTGRES, agenix,
    agq::Agq,
    postgres,
    producers_consumers::{self, GRAPHILE},
    producers_consumers_agq::ProducersConsumers,
    setting::Setting,
    span,
    tools::Tools,
    with_peer,
};
use crate::{Bench, Better, Comparison, Programs};

const SECTION: &str = "nodes";
const ONE_NODE: &str = "1 agq on PostgreSQL";
const THREE_NODES: &str = "3 agq on PostgreSQL";
const NOTE: &str = "all on one PostgreSQL with its default settings; claims of agq are not durable; \
    pgbench: SKIP LOCKED, no counters, no server in between; graphile-worker stores no results";

pub(crate) fn run(bench: &mut Bench, programs: &Programs) -> anyhow::Result<()> {
    let tools = Tools::find(bench, programs);
    if !tools.has_postgres {
        bench.skip("several agq", "there is no PostgreSQL");
        return Ok(());
    }
    for clients in [8, 64] {
        cycles(bench, programs, Setting { clients, ..Setting::SLOW_DISK })?;
    }
    producers_consumers(bench, programs, &tools)
}

fn cycles(bench: &mut Bench, programs: &Programs, setting: Setting) -> anyhow::Result<()> {
    let (span, cluster) = (span(bench), postgres::cluster(None));
    let nodes = |count| {
        agenix::clients(
            Agq::start_nodes(&programs.bin, count, &cluster.create(&format!("nodes_{count}")))?,
            setting,
        )
    };
    let (mut one, mut three) = (nodes(1)?, nodes(3)?);
    let queue = postgres::queue(Arc::clone(&cluster), setting);
    let comparison =
        Comparison::new(format!("one PostgreSQL, {}", setting.title()), "cycles/s", Better::More)
            .with_note(NOTE)
            .with(ONE_NODE, move || one.cycles_per_sec(span))
            .with(THREE_NODES, move || three.cycles_per_sec(span));
    let queue = queue.map(|mut queue| move || queue.cycles_per_sec(span));
    let comparison = with_peer(bench, comparison, POSTGRES, queue);
    bench.compare(SECTION, comparison)
}

fn producers_consumers(bench: &mut Bench, programs: &Programs, tools: &Tools) -> anyhow::Result<()> {
    let (span, cluster) = (span(bench), postgres::cluster(None));
    let nodes = |count| {
        ProducersConsumers::at(Agq::start_nodes(
            &programs.bin,
            count,
            &cluster.create(&format!("nodes_{count}")),
        )?)
    };
    let (mut one, mut three) = (nodes(1)?, nodes(3)?);
    let mut comparison =
        Comparison::new("one PostgreSQL, 8 producers and 8 consumers, 100 B", "jobs/s", Better::More)
            .with_note(NOTE)
            .with(ONE_NODE, move || one.jobs_per_sec(span))
            .with(THREE_NODES, move || three.jobs_per_sec(span));
    if let Some(node) = &tools.node {
        let run = producers_consumers::graphile(node, Arc::clone(&cluster))
            .map(|mut peer| move || peer.jobs_per_sec(span));
        comparison = with_peer(bench, comparison, GRAPHILE, run);
    }
    bench.compare(SECTION, comparison)
}
