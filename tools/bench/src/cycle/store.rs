//! Section `store`: compares a PostgreSQL store that is large, has just grown, or has several
//! nodes, with a fresh one with one node. Both stores of a comparison are databases of one cluster,
//! and so share its write-ahead log.

use std::{cell::Cell, path::Path, sync::Arc, time::Duration};

use anyhow::ensure;
use e2e::Postgres;

use super::{
    agenix, agq::AgqServer, ended_jobs, http, limited, postgres, setting::Setting, tools::has_postgres,
};
use crate::{Bench, Better, ContenderComparison, ProgramDirs, table::grouped};

const SECTION: &str = "store";
const FRESH: &str = "fresh database";
const ONE_NODE: &str = "1 agq";
const THREE_NODES: &str = "3 agq";
/// Floor and aim of the ratio to a fresh database.
const OF_FRESH: (f64, f64) = (0.8, 1.0);
const ENDED: usize = 1_000_000;
const LANES: usize = 10_000;
const SUBMITTED: usize = 800_000;
/// Number of clients, which are divided among the nodes.
const CLIENTS: usize = 24;
/// Number of limits that the jobs have.
const LIMITS: usize = 30;
/// Number of clients that create the lanes.
const SEEDERS: usize = 64;
/// Time for which a contender is measured in a round.
const SPAN: Duration = Duration::from_secs(4);
/// Time for which a store is used before it grows, so that PostgreSQL has planned all statements.
const WHILE_SMALL: Duration = Duration::from_secs(1);

const ENDED_NOTE: &str = "each job has results of 1 KB and an action; each ended job lets retention remove another; \
    two databases of one PostgreSQL";
const LANES_NOTE: &str = "over HTTP; each lane has a limit with its own key, under which a job has ended; two \
    databases of one PostgreSQL";
const GROWTH_NOTE: &str = "measured directly after the submission to the queue of the clients; each time on a new database, after \
    a second of use";
const NODES_NOTE: &str = "over HTTP; unique jobs under 30 limits in turn, at most 4 at once under each; two databases of one PostgreSQL; \
    all share the processors";

pub(crate) fn run(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    if !has_postgres(bench) {
        bench.skip("the PostgreSQL store", "there is no PostgreSQL");
        return Ok(());
    }
    ended(bench, programs)?;
    lanes(bench, programs)?;
    growth(bench, programs)?;
    nodes(bench, programs)
}

fn ended(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let much = format!("{} ended jobs", grouped(ENDED));
    let title = format!("cycles with {much}, {}", Setting::SLOW_DISK.title());
    if !bench.wants(&title) {
        return Ok(());
    }
    let cluster = postgres::cluster(None);
    let clients = |database, jobs| {
        let nodes = AgqServer::start_nodes(&programs.bin, 1, &cluster.create(database))?;
        ended_jobs::fill(&nodes[0], jobs)?;
        agenix::clients(nodes, Setting::SLOW_DISK)
    };
    let (mut full, mut fresh) = (clients("full", ENDED)?, clients("fresh", 0)?);
    let comparison = ContenderComparison::new(title, "cycles/s", Better::More)
        .with_goal(FRESH, OF_FRESH.0, OF_FRESH.1)
        .with_note(ENDED_NOTE)
        .with(much, || full.cycles_per_sec(SPAN))
        .with(FRESH, || fresh.cycles_per_sec(SPAN));
    bench.compare(SECTION, comparison)
}

fn lanes(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let much = format!("{} empty lanes", grouped(LANES));
    let title = format!("cycles with {much}, {}", Setting::SLOW_DISK.title());
    if !bench.wants(&title) {
        return Ok(());
    }
    let cluster = postgres::cluster(None);
    let clients = |database, lanes| {
        let nodes = AgqServer::start_nodes(&programs.bin, 1, &cluster.create(database))?;
        let mut seeders = limited::clients(nodes, SEEDERS, LANES)?;
        seeders.do_cycles(lanes)?;
        http::whole(seeders.into_server().swap_remove(0), Setting::SLOW_DISK)
    };
    let (mut many, mut fresh) = (clients("many", LANES)?, clients("fresh", 0)?);
    let comparison = ContenderComparison::new(title, "cycles/s", Better::More)
        .with_goal(FRESH, OF_FRESH.0, OF_FRESH.1)
        .with_note(LANES_NOTE)
        .with(much, || many.cycles_per_sec(SPAN))
        .with(FRESH, || fresh.cycles_per_sec(SPAN));
    bench.compare(SECTION, comparison)
}

fn growth(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let much = format!("{} jobs submitted", grouped(SUBMITTED));
    let title = format!("cycles right after {much}, {}", Setting::SLOW_DISK.title());
    if !bench.wants(&title) {
        return Ok(());
    }
    let (cluster, turns) = (postgres::cluster(None), Cell::new(0));
    let turn = |jobs| {
        turns.set(turns.get() + 1);
        let database = format!("turn_{}", turns.get());
        let rate = after_growth(&programs.bin, &cluster.create(&database), jobs);
        drop_database(&cluster, &database)?;
        rate
    };
    let comparison = ContenderComparison::new(title, "cycles/s", Better::More)
        .with_goal(FRESH, OF_FRESH.0, OF_FRESH.1)
        .with_note(GROWTH_NOTE)
        .with(much, || turn(SUBMITTED))
        .with(FRESH, || turn(0));
    bench.compare(SECTION, comparison)
}

/// Submits `jobs` jobs to a new store, and returns the cycles per second right after that.
fn after_growth(bin: &Path, url: &str, jobs: usize) -> anyhow::Result<f64> {
    let mut clients = agenix::clients(AgqServer::start_nodes(bin, 1, url)?, Setting::SLOW_DISK)?;
    clients.cycles_per_sec(WHILE_SMALL)?;
    agenix::grow(&clients, Setting::SLOW_DISK, jobs)?;
    clients.cycles_per_sec(SPAN)
}

/// Drops a database. The server writes a checkpoint first, during which the next round begins.
fn drop_database(cluster: &Arc<Postgres>, database: &str) -> anyhow::Result<()> {
    let status = cluster.client("dropdb").args(["--force", database]).status()?;
    ensure!(status.success(), "dropdb ended with {status}");
    Ok(())
}

fn nodes(bench: &mut Bench, programs: &ProgramDirs) -> anyhow::Result<()> {
    let title = format!("cycles of unique jobs under {LIMITS} limits, {CLIENTS} clients");
    if !bench.wants(&title) {
        return Ok(());
    }
    let cluster = postgres::cluster(None);
    let clients = |database, count| {
        limited::clients(
            AgqServer::start_nodes(&programs.bin, count, &cluster.create(database))?,
            CLIENTS,
            LIMITS,
        )
    };
    let (mut three, mut one) = (clients("three", 3)?, clients("one", 1)?);
    let comparison = ContenderComparison::new(title, "cycles/s", Better::More)
        .with_goal(ONE_NODE, 1.0, 1.5)
        .with_note(NODES_NOTE)
        .with(THREE_NODES, || three.cycles_per_sec(SPAN))
        .with(ONE_NODE, || one.cycles_per_sec(SPAN));
    bench.compare(SECTION, comparison)
}
