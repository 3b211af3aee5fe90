//! A PostgreSQL store beside itself: with much in it and with nothing, just grown and new, with several nodes and with one. The stores
//! of a contest are databases of one cluster, so that both write to the same log.

use std::{cell::Cell, path::Path, sync::Arc, time::Duration};

use anyhow::ensure;
use e2e::Postgres;

use super::{agq::Agq, ended, http, limited, ours, postgres, setting::Setting, tools::has_postgres};
use crate::{Bench, Better, Contest, Place, scale::grouped};

const SECTION: &str = "store";
const FRESH: &str = "fresh database";
const ONE_NODE: &str = "1 agq";
const THREE_NODES: &str = "3 agq";
/// What is owed and aimed at, of what a fresh database does.
const OF_FRESH: (f64, f64) = (0.8, 1.0);
const ENDED: usize = 1_000_000;
const LANES: usize = 10_000;
const SUBMITTED: usize = 800_000;
/// Clients that are divided among the nodes.
const CLIENTS: usize = 24;
/// Limits under which the jobs of several nodes stand.
const LIMITS: usize = 30;
/// Clients that make the lanes.
const SEEDERS: usize = 64;
/// How long a contender is measured at a time.
const SPAN: Duration = Duration::from_secs(4);
/// Time for which a store is used before it grows, so that the plans of all statements are made.
const WHILE_SMALL: Duration = Duration::from_secs(1);

const ENDED_NOTE: &str = "jobs with results of 1 KB and an action each; no more are kept, so that one is forgotten for each that ends; \
    two databases of one PostgreSQL";
const LANES_NOTE: &str = "over HTTP; each lane is of a limit with a key of its own, under which a job ran and ended before; two \
    databases of one PostgreSQL";
const GROWTH_NOTE: &str = "measured right after the submission, which goes to the queue of the clients; each time a new database, which \
    was used for a second before";
const NODES_NOTE: &str = "over HTTP; unique jobs under 30 limits in turn, at most 4 at once under each; two databases of one PostgreSQL; \
    all share the processors";

/// The contests of this kind.
pub(crate) fn run(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    if !has_postgres(bench) {
        bench.skip("the PostgreSQL store", "there is no PostgreSQL");
        return Ok(());
    }
    ended(bench, place)?;
    lanes(bench, place)?;
    growth(bench, place)?;
    nodes(bench, place)
}

fn ended(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let much = format!("{} ended jobs", grouped(ENDED));
    let title = format!("cycles with {much}, {}", Setting::SLOW_DISK.title());
    if !bench.wants(&title) {
        return Ok(());
    }
    let cluster = postgres::cluster(None);
    let crew = |database, jobs| {
        let nodes = Agq::start_nodes(&place.bin, 1, &cluster.create(database))?;
        ended::fill(&nodes[0], jobs)?;
        ours::crew(nodes, Setting::SLOW_DISK)
    };
    let (mut full, mut fresh) = (crew("full", ENDED)?, crew("fresh", 0)?);
    let contest = Contest::new(title, "cycles/s", Better::More)
        .against(FRESH, OF_FRESH.0, OF_FRESH.1)
        .noting(ENDED_NOTE)
        .with(much, || full.cycles_per_sec(SPAN))
        .with(FRESH, || fresh.cycles_per_sec(SPAN));
    bench.hold(SECTION, contest)
}

fn lanes(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let much = format!("{} empty lanes", grouped(LANES));
    let title = format!("cycles with {much}, {}", Setting::SLOW_DISK.title());
    if !bench.wants(&title) {
        return Ok(());
    }
    let cluster = postgres::cluster(None);
    let crew = |database, lanes| {
        let nodes = Agq::start_nodes(&place.bin, 1, &cluster.create(database))?;
        let mut seeders = limited::crew(nodes, SEEDERS, LANES)?;
        seeders.do_cycles(lanes)?;
        http::whole(seeders.into_server().swap_remove(0), Setting::SLOW_DISK)
    };
    let (mut many, mut fresh) = (crew("many", LANES)?, crew("fresh", 0)?);
    let contest = Contest::new(title, "cycles/s", Better::More)
        .against(FRESH, OF_FRESH.0, OF_FRESH.1)
        .noting(LANES_NOTE)
        .with(much, || many.cycles_per_sec(SPAN))
        .with(FRESH, || fresh.cycles_per_sec(SPAN));
    bench.hold(SECTION, contest)
}

fn growth(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let much = format!("{} jobs submitted", grouped(SUBMITTED));
    let title = format!("cycles right after {much}, {}", Setting::SLOW_DISK.title());
    if !bench.wants(&title) {
        return Ok(());
    }
    let (cluster, turns) = (postgres::cluster(None), Cell::new(0));
    let turn = |jobs| {
        turns.set(turns.get() + 1);
        let database = format!("turn_{}", turns.get());
        let rate = after_growth(&place.bin, &cluster.create(&database), jobs);
        drop_database(&cluster, &database)?;
        rate
    };
    let contest = Contest::new(title, "cycles/s", Better::More)
        .against(FRESH, OF_FRESH.0, OF_FRESH.1)
        .noting(GROWTH_NOTE)
        .with(much, || turn(SUBMITTED))
        .with(FRESH, || turn(0));
    bench.hold(SECTION, contest)
}

/// How many cycles a second there are right after so many jobs were submitted to a new store.
fn after_growth(bin: &Path, url: &str, jobs: usize) -> anyhow::Result<f64> {
    let mut crew = ours::crew(Agq::start_nodes(bin, 1, url)?, Setting::SLOW_DISK)?;
    crew.cycles_per_sec(WHILE_SMALL)?;
    ours::grow(&crew, Setting::SLOW_DISK, jobs)?;
    crew.cycles_per_sec(SPAN)
}

/// Frees the disk. The server writes a checkpoint before it does so, in which the next turn begins.
fn drop_database(cluster: &Arc<Postgres>, database: &str) -> anyhow::Result<()> {
    let status = cluster.client("dropdb").args(["--force", database]).status()?;
    ensure!(status.success(), "dropdb ended with {status}");
    Ok(())
}

fn nodes(bench: &mut Bench, place: &Place) -> anyhow::Result<()> {
    let title = format!("cycles of unique jobs under {LIMITS} limits, {CLIENTS} clients");
    if !bench.wants(&title) {
        return Ok(());
    }
    let cluster = postgres::cluster(None);
    let crew = |database, count| {
        limited::crew(Agq::start_nodes(&place.bin, count, &cluster.create(database))?, CLIENTS, LIMITS)
    };
    let (mut three, mut one) = (crew("three", 3)?, crew("one", 1)?);
    let contest = Contest::new(title, "cycles/s", Better::More)
        .against(ONE_NODE, 1.0, 1.5)
        .noting(NODES_NOTE)
        .with(THREE_NODES, || three.cycles_per_sec(SPAN))
        .with(ONE_NODE, || one.cycles_per_sec(SPAN));
    bench.hold(SECTION, contest)
}
