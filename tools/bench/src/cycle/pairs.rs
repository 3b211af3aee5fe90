//! Eight who submit and eight who work off, at most 64 jobs on their way at once: how BullMQ and graphile-worker are used.

use std::{path::Path, sync::Arc, time::Duration};

use e2e::Postgres;

use super::{
    AGQ, AGQ_AS_SHIPPED, SECTION,
    agq::{Agq, Durability},
    joined,
    node::Node,
    pairs_ours::Pairs,
    postgres,
    redis::Redis,
    span,
    tools::{NodeTools, Tools},
};
use crate::{Bench, Better, Contest, Place};

const TITLE: &str = "8 producers and 8 consumers, 100 B";
const BULLMQ: &str = "BullMQ";
pub(super) const GRAPHILE: &str = "graphile-worker";
const NOTE: &str = "every answer waits for the disk; results of 1 KB, but graphile-worker keeps none and removes the job; \
    BullMQ on redis AOF always; both in one process of Node, as they are shipped; agq's consumers send a report and the \
    next claim together, as BullMQ's do";

/// The one contest of this kind.
pub(super) fn run(bench: &mut Bench, place: &Place, tools: &Tools) -> anyhow::Result<()> {
    if !bench.wants(TITLE) {
        return Ok(());
    }
    let span = span(bench);
    let mut always = Pairs::at(vec![Agq::start(&place.bin, Durability::Always, None)?])?;
    let mut as_shipped = Pairs::at(vec![Agq::start(&place.bin, Durability::AsShipped, None)?])?;
    let mut contest = Contest::new(TITLE, "jobs/s", Better::More)
        .noting(NOTE)
        .with(AGQ, move || always.jobs_per_sec(span))
        .with(AGQ_AS_SHIPPED, move || as_shipped.jobs_per_sec(span));
    if let (Some(node), Some(program)) = (&tools.node, &tools.redis) {
        let run = bullmq(node, program).map(|mut peer| move || peer.jobs_per_sec(span));
        contest = joined(bench, contest, BULLMQ, run);
    }
    if let Some(node) = tools.node.as_ref().filter(|_| tools.has_postgres) {
        let run = graphile(node, postgres::cluster(None)).map(|mut peer| move || peer.jobs_per_sec(span));
        contest = joined(bench, contest, GRAPHILE, run);
    }
    bench.hold(SECTION, contest.against(BULLMQ, 2.0, 2.5).against(GRAPHILE, 8.0, 12.0))
}

/// A script, and the server on which it works.
pub(super) struct Peer<S> {
    // The first to be dropped.
    node: Node,
    _server: S,
}

impl<S> Peer<S> {
    pub(super) fn jobs_per_sec(&mut self, span: Duration) -> anyhow::Result<f64> {
        self.node.jobs_per_sec(span)
    }
}

fn bullmq(tools: &NodeTools, program: &Path) -> anyhow::Result<Peer<Redis>> {
    let redis = Redis::start(program, None)?;
    let node = Node::start(tools, "bullmq.js", &redis.port().to_string())?;
    Ok(Peer { node, _server: redis })
}

/// graphile-worker on this cluster.
pub(super) fn graphile(tools: &NodeTools, cluster: Arc<Postgres>) -> anyhow::Result<Peer<Arc<Postgres>>> {
    let node = Node::start(tools, "graphile.js", &cluster.url())?;
    Ok(Peer { node, _server: cluster })
}
