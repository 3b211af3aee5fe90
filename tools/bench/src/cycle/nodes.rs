//! Several agq on one PostgreSQL, beside others that keep a queue on the same server: the cycle against plain SKIP LOCKED, pairs against
//! graphile-worker.

use std::sync::Arc;

use super::{
    POSTGRES,
    agq::Agq,
    joined, ours,
    pairs::{self, GRAPHILE},
    pairs_ours::Pairs,
    postgres,
    setting::Setting,
    span,
    tools::Tools,
};
use crate::{Bench, Better, Contest, Place};

const SECTION: &str = "nodes";
const ONE_NODE: &str = "1 agq on PostgreSQL";
const THREE_NODES: &str = "3 agq on PostgreSQL";
const NOTE: &str = "all on one server, as it is shipped; claims of agq do not wait for the disk; pgbench: SKIP LOCKED, no counters, no \
    server between; graphile-worker keeps no results";

/// The contests of this kind.
pub(crate) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let tools = Tools::ready(bench, place);
    if !tools.has_postgres {
        bench.skip("several agq", "there is no PostgreSQL");
        return Ok(());
    }
    for clients in [8, 64] {
        cycles(bench, place, Setting { clients, ..Setting::SLOW_DISK })?;
    }
    pairs(bench, place, &tools)
}

fn cycles(bench: &mut Bench, place: &Place, setting: Setting) -> anyhow::Result<()> {
    let (span, cluster) = (span(bench), postgres::cluster(None));
    let nodes = |count| {
        ours::crew(Agq::start_nodes(&place.bin, count, &cluster.create(&format!("nodes_{count}")))?, setting)
    };
    let (mut one, mut three) = (nodes(1)?, nodes(3)?);
    let queue = postgres::queue(Arc::clone(&cluster), setting);
    let contest = Contest::new(format!("one PostgreSQL, {}", setting.title()), "cycles/s", Better::More)
        .noting(NOTE)
        .with(ONE_NODE, move || one.cycles_per_sec(span))
        .with(THREE_NODES, move || three.cycles_per_sec(span));
    let queue = queue.map(|mut queue| move || queue.cycles_per_sec(span));
    let contest = joined(bench, contest, POSTGRES, queue);
    bench.hold(SECTION, contest)
}

fn pairs(bench: &mut Bench, place: &Place, tools: &Tools) -> anyhow::Result<()> {
    let (span, cluster) = (span(bench), postgres::cluster(None));
    let nodes =
        |count| Pairs::at(Agq::start_nodes(&place.bin, count, &cluster.create(&format!("nodes_{count}")))?);
    let (mut one, mut three) = (nodes(1)?, nodes(3)?);
    let mut contest =
        Contest::new("one PostgreSQL, 8 producers and 8 consumers, 100 B", "jobs/s", Better::More)
            .noting(NOTE)
            .with(ONE_NODE, move || one.jobs_per_sec(span))
            .with(THREE_NODES, move || three.jobs_per_sec(span));
    if let Some(node) = &tools.node {
        let run = pairs::graphile(node, Arc::clone(&cluster)).map(|mut peer| move || peer.jobs_per_sec(span));
        contest = joined(bench, contest, GRAPHILE, run);
    }
    bench.hold(SECTION, contest)
}
