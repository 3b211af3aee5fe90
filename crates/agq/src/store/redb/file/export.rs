//! Export of a database file as records that every store can import, and import of such records.

use std::{collections::BTreeMap, io::BufRead, path::Path};

use agenix_protocol::time::Timestamp;
use anyhow::{Context, anyhow};
use redb::{Database, Durability, Error};

use crate::store::{
    DocumentKind, KeyEntry, StoredJob, Totals,
    export::{Checksums, ExportRecord, Importer, Sink},
    redb::{
        engine::{Snapshot, Versions},
        file::{backup, migrations, open_readonly},
        schema::{
            codec::{decode, encode},
            index_keys::LaneKey,
            tables::{
                ACTIONS, INPUTS, JOBS, KEYS, LANES, LIST_ITEMS, NOTES, PAUSED, PLANS, REGISTRATIONS, RESULTS,
                SCORES, TALLIES, TOTALS, WORKERS, ordered, score_of,
            },
        },
        txn::{WriteTxn, writer_cache::WriterCache},
    },
};

const IMPORT_BATCH: usize = 2_000;

pub(crate) fn export(file: &Path, sink: &mut Sink<'_>) -> anyhow::Result<()> {
    hand_out(&open_readonly(file)?.kept.snapshot(), sink)
}

fn hand_out(snapshot: &Snapshot<'_>, sink: &mut Sink<'_>) -> anyhow::Result<()> {
    records(snapshot, sink)?;
    keys(snapshot, sink)?;
    for row in snapshot.table(&NOTES).iter()? {
        let (place, json) = row?;
        let (kind, id) = place.value();
        sink(ExportRecord::Note { kind: kind.to_owned(), id: id.to_owned(), json: json.value().to_owned() })?;
    }
    let totals = snapshot.table(&TOTALS).get("totals")?.map(|totals| decode(totals.value())).transpose()?;
    totals
        .filter(|totals| *totals != Totals::default())
        .map_or(Ok(()), |totals| sink(ExportRecord::Totals(totals)))
}

fn records(snapshot: &Snapshot<'_>, sink: &mut Sink<'_>) -> anyhow::Result<()> {
    for row in snapshot.table(&PLANS).iter()? {
        sink(ExportRecord::Plan(decode(row?.1.value())?))?;
    }
    let tallies = snapshot.table(&TALLIES);
    for row in snapshot.table(&ACTIONS).iter()? {
        let (id, action) = row?;
        let tally = tallies.get(id.value())?;
        let tally = tally.map(|tally| decode(tally.value())).transpose()?.unwrap_or_default();
        sink(ExportRecord::Action { action: decode(action.value())?, tally })?;
    }
    jobs(snapshot, sink)?;
    for row in snapshot.table(&PAUSED).iter()? {
        sink(ExportRecord::Paused { queue: row?.0.value().to_owned() })?;
    }
    let registrations = snapshot.table(&REGISTRATIONS);
    for row in snapshot.table(&WORKERS).iter()? {
        let (id, worker) = row?;
        let registration = registrations.get(id.value())?.map(|told| told.value().to_owned());
        sink(ExportRecord::Worker { worker: decode(worker.value())?, registration })?;
    }
    Ok(())
}

fn jobs(snapshot: &Snapshot<'_>, sink: &mut Sink<'_>) -> anyhow::Result<()> {
    let mut lanes: BTreeMap<u32, LaneKey> = BTreeMap::new();
    for row in snapshot.table(&LANES).iter()? {
        let (number, key) = row?;
        lanes.insert(number.value(), decode(key.value())?);
    }
    let (inputs, results) = (snapshot.table(&INPUTS), snapshot.table(&RESULTS));
    for row in snapshot.table(&JOBS).iter()? {
        let (id, record) = row?;
        let mut job: agenix_rules::job::Job = decode(record.value())?;
        let lane = lanes.get(&job.lane).ok_or_else(|| anyhow!("{} has no lane", job.job_id))?;
        job.lane = 0;
        let input = inputs.get(id.value())?.map(|input| input.value().to_owned()).unwrap_or_default();
        let results = results.get(id.value())?.map(|results| results.value().to_owned());
        let (queue, needs) = (lane.queue.clone(), lane.needs.clone());
        sink(ExportRecord::Job(Box::new(StoredJob { job, queue, needs, input, results })))?;
    }
    Ok(())
}

fn keys(snapshot: &Snapshot<'_>, sink: &mut Sink<'_>) -> anyhow::Result<()> {
    for row in snapshot.table(&KEYS).iter()? {
        let (key, record) = row?;
        let (key, record) = (key.value().to_vec().into(), record.value());
        let KeyEntry { content, expires_at } = record.entry;
        let expires_at_ms = expires_at.map(|at| at.0);
        sink(ExportRecord::Key { key, number: record.number, content, expires_at_ms })?;
    }
    for row in snapshot.table(&LIST_ITEMS).iter()? {
        let (place, item) = row?;
        let (key, place) = place.value();
        sink(ExportRecord::Item { key: key.to_vec().into(), place, item: item.value().to_vec().into() })?;
    }
    for row in snapshot.table(&SCORES).iter()? {
        let (member, score) = row?;
        let (key, member) = member.value();
        let (key, member) = (key.to_vec().into(), member.to_vec().into());
        sink(ExportRecord::Score { key, member, score: score_of(score.value()).to_string() })?;
    }
    Ok(())
}

/// Creates a database in an empty file, and imports all records. Returns checksums of the result.
pub(crate) fn import(file: &Path, from: &mut Importer<impl BufRead>) -> anyhow::Result<Checksums> {
    let database = Database::builder().set_cache_size(backup::CACHE_BYTES).create(file)?;
    migrations::prepare(&database)?;
    let versions = Versions::of(database)?;
    let mut cache = WriterCache::default();
    loop {
        let mut records = Vec::with_capacity(IMPORT_BATCH);
        while records.len() < IMPORT_BATCH
            && let Some(record) = from.take()?
        {
            records.push(record);
        }
        let is_last = records.len() < IMPORT_BATCH;
        put_all(&versions, &mut cache, records, is_last)?;
        if is_last {
            return from.verify(|sink| hand_out(&versions.snapshot(), sink));
        }
    }
}

/// Inserts records. All of them are durable when the last one is.
fn put_all(
    versions: &Versions,
    cache: &mut WriterCache,
    records: Vec<ExportRecord>,
    is_last: bool,
) -> anyhow::Result<()> {
    let closed = {
        let snapshot = versions.snapshot();
        let mut batch = WriteTxn::open(&snapshot, cache, false);
        records.into_iter().try_for_each(|record| batch.put_record(record))?;
        batch.close()?
    };
    let mut transaction = versions.begin_write()?;
    transaction.set_durability(if is_last { Durability::Immediate } else { Durability::None })?;
    closed.changes.write(&transaction)?;
    transaction.commit()?;
    Ok(versions.refresh(&versions.pin())?)
}

impl WriteTxn<'_> {
    fn put_record(&mut self, record: ExportRecord) -> anyhow::Result<()> {
        match record {
            ExportRecord::Plan(plan) => {
                self.tables.plans.insert(plan.plan_id.as_str(), encode(&plan)?.as_slice());
            }
            ExportRecord::Action { action, tally } => {
                self.put_action(&action)?;
                self.put_tally(&action.action_id, tally);
            }
            ExportRecord::Job(stored) => self.put_stored(*stored)?,
            ExportRecord::Paused { queue } => {
                self.tables.paused.insert(queue.as_str(), ());
                self.cache.lanes.set_paused(&queue, true);
            }
            ExportRecord::Worker { worker, registration } => {
                self.tables.workers.insert(worker.worker_id.as_str(), encode(&worker)?.as_slice());
                if let Some(registration) = registration {
                    self.tables.registrations.insert(worker.worker_id.as_str(), registration.as_str());
                }
            }
            ExportRecord::Key { key, number, content, expires_at_ms } => {
                let entry = KeyEntry { content, expires_at: expires_at_ms.map(Timestamp) };
                self.put_numbered(&key, number, entry);
            }
            ExportRecord::Item { key, place, item } => {
                self.tables.list_items.insert((&key[..], place), &item[..]);
            }
            ExportRecord::Score { key, member, score } => {
                let score: f64 = score.parse().with_context(|| format!("{score} is not a score"))?;
                self.put_score(&key, &member, ordered(score))?;
            }
            ExportRecord::Note { kind, id, json } => {
                let kind = DocumentKind::parse(&kind)
                    .with_context(|| format!("{kind} is not a kind of document"))?;
                self.put_note(kind, &id, &json);
            }
            ExportRecord::Totals(totals) => *self.totals_mut() = totals,
        }
        Ok(())
    }

    fn put_stored(&mut self, stored: StoredJob) -> Result<(), Error> {
        let StoredJob { mut job, queue, needs, input, results } = stored;
        job.lane = self.cache.lanes.number(LaneKey { queue, needs });
        self.cache.lanes.observe_seq(job.seq);
        let id = job.job_id.as_str();
        self.tables.action_jobs.insert((job.action_id.as_str(), job.index), id);
        self.tables.inputs.insert(id, input.as_str());
        if let Some(results) = results {
            self.tables.results.insert(id, results.as_str());
        }
        self.put_job(None, &job)
    }
}
