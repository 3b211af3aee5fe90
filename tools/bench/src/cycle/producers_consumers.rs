//! Compares agq, BullMQ and graphile-worker with eight producers, eight consumers, and at most 64
//! jobs in flight.

use std::{path::Path, sync::Arc, time::Duration};

use e2e::Postgres;

use super::{
    AGQ, AGQ_AS_SHIPPED, SECTION,
    agq::{AgqServer, SyncMode},
    node::Node,
    postgres,
    producers_consumers_agq::ProducersConsumers,
    redis::DurableRedis,
    span,
    tools::{NodeTools, Tools},
    with_peer,
};
use crate::{Bench, Better, ContenderComparison, ProgramDirs};

const TITLE: &str = "8 producers and 8 consumers, 100 B";
const BULLMQ: &str = "BullMQ";
pub(super) const GRAPHILE: &str = "graphile-worker";
const NOTE: &str = "every reply is durable; results of 1 KB, but graphile-worker stores none and removes \
    the job; BullMQ on redis AOF always; both in one Node process, as shipped; consumers of agq send a \
    report together with the next claim, as those of BullMQ do";

pub(super) fn run(bench: &mut Bench, programs: &ProgramDirs, tools: &Tools) -> anyhow::Result<()> {
    if !bench.wants(TITLE) {
        return Ok(());
    }
    let span = span(bench);
    let mut always = ProducersConsumers::at(vec![AgqServer::start(&programs.bin, SyncMode::Always, None)?])?;
    let mut as_shipped =
        ProducersConsumers::at(vec![AgqServer::start(&programs.bin, SyncMode::AsShipped, None)?])?;
    let mut comparison = ContenderComparison::new(TITLE, "jobs/s", Better::More)
        .with_note(NOTE)
        .with(AGQ, move || always.jobs_per_sec(span))
        .with(AGQ_AS_SHIPPED, move || as_shipped.jobs_per_sec(span));
    if let (Some(node), Some(program)) = (&tools.node, &tools.redis) {
        let run = bullmq(node, program).map(|mut peer| move || peer.jobs_per_sec(span));
        comparison = with_peer(bench, comparison, BULLMQ, run);
    }
    if let Some(node) = tools.node.as_ref().filter(|_| tools.has_postgres) {
        let run = graphile(node, postgres::cluster(None)).map(|mut peer| move || peer.jobs_per_sec(span));
        comparison = with_peer(bench, comparison, GRAPHILE, run);
    }
    bench.compare(SECTION, comparison.with_goal(BULLMQ, 2.0, 2.5).with_goal(GRAPHILE, 8.0, 12.0))
}

/// A script of Node, and its server.
pub(super) struct NodePeer<S> {
    // The script is dropped first.
    node: Node,
    _server: S,
}

impl<S> NodePeer<S> {
    pub(super) fn jobs_per_sec(&mut self, span: Duration) -> anyhow::Result<f64> {
        self.node.jobs_per_sec(span)
    }
}

fn bullmq(tools: &NodeTools, program: &Path) -> anyhow::Result<NodePeer<DurableRedis>> {
    let redis = DurableRedis::start(program, None)?;
    let node = Node::start(tools, "bullmq.js", &redis.port().to_string())?;
    Ok(NodePeer { node, _server: redis })
}

/// Starts graphile-worker on a cluster.
pub(super) fn graphile(tools: &NodeTools, cluster: Arc<Postgres>) -> anyhow::Result<NodePeer<Arc<Postgres>>> {
    let node = Node::start(tools, "graphile.js", &cluster.url())?;
    Ok(NodePeer { node, _server: cluster })
}
