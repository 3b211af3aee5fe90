//! Export of a database file as records that every store can import, and import of such records.

use std::{collections::BTreeMap, io::BufRead, path::Path};

use agenix_protocol::time::Timestamp;
use anyhow::{Context, anyhow};
use redb::{Database, Durability, Error};

use crate::store::{
    DocumentKind, KeyEntry, StoredJob, Totals,
    export::{Checksums, ExportRecord, Importer, RecordSink},
    redb::{
        engine::{Snapshot, Versions},
        file::{backup, migrations, open_readonly},
        queries::records,
        schema::{KeyRecord, LaneKey, Result, decode, encode, ordered, score_of},
        txn::{WriteTxn, tables::Tables, writer_cache::WriterCache},
    },
};

const IMPORT_BATCH: usize = 2_000;

pub(crate) fn export(file: &Path, sink: &mut RecordSink<'_>) -> anyhow::Result<()> {
    hand_out(&open_readonly(file)?.kept.snapshot(), sink)
}

fn hand_out(snapshot: &Snapshot<'_>, sink: &mut RecordSink<'_>) -> anyhow::Result<()> {
    let tables = Tables::open(snapshot);
    tables.plans.for_each(|_, plan| sink(ExportRecord::Plan(decode(plan)?)))?;
    tables.actions.for_each(|id, action| {
        let counts = tables.job_counts.get(id)?.map(|counts| decode(counts.value()));
        let counts = counts.transpose()?.unwrap_or_default();
        sink(ExportRecord::Action { action: Box::new(decode(action)?), counts })
    })?;
    jobs(&tables, sink)?;
    tables.paused.for_each(|queue, ()| sink(ExportRecord::Paused { queue: queue.to_owned() }))?;
    tables.workers.for_each(|id, worker| {
        let registration = tables.registrations.get(id)?.map(|registration| registration.value().to_owned());
        sink(ExportRecord::Worker { worker: decode(worker)?, registration })
    })?;
    keys(&tables, sink)?;
    tables.documents.for_each(|(kind, id), json| {
        sink(ExportRecord::Note { kind: kind.to_owned(), id: id.to_owned(), json: json.to_owned() })
    })?;
    let totals = records::totals(snapshot)?;
    if totals == Totals::default() { Ok(()) } else { sink(ExportRecord::Totals(totals)) }
}

fn jobs(tables: &Tables<'_>, sink: &mut RecordSink<'_>) -> anyhow::Result<()> {
    let mut lanes: BTreeMap<u32, LaneKey> = BTreeMap::new();
    tables.lane_keys.for_each(|number, key| {
        lanes.insert(number, decode(key)?);
        Ok::<_, Error>(())
    })?;
    tables.jobs.for_each(|id, record| {
        let mut job: agenix_rules::job::Job = decode(record)?;
        let lane = lanes.get(&job.lane).ok_or_else(|| anyhow!("{} has no lane", job.job_id))?;
        job.lane = 0;
        let input = tables.inputs.get(id)?.map(|input| input.value().to_owned()).unwrap_or_default();
        let results = tables.results.get(id)?.map(|results| results.value().to_owned());
        let LaneKey { queue, needs } = lane.clone();
        sink(ExportRecord::Job(Box::new(StoredJob { job, queue, needs, input, results })))
    })
}

fn keys(tables: &Tables<'_>, sink: &mut RecordSink<'_>) -> anyhow::Result<()> {
    let bytes = |bytes: &[u8]| bytes.to_vec().into();
    tables.keys.table().for_each(|key, KeyRecord { number, entry }| {
        let KeyEntry { content, expires_at } = entry;
        let expires_at_ms = expires_at.map(|at| at.0);
        sink(ExportRecord::Key { key: bytes(key), number, content, expires_at_ms })
    })?;
    tables.list_items.table().for_each(|(key, place), item| {
        sink(ExportRecord::Item { key: bytes(key), place, item: bytes(item) })
    })?;
    tables.scores.for_each(|(key, member), score| {
        let score = score_of(score).to_string();
        sink(ExportRecord::Score { key: bytes(key), member: bytes(member), score })
    })
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

/// Inserts records. All records are durable when the last record is.
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
            ExportRecord::Action { action, counts } => {
                self.put_action(&action)?;
                self.put_job_counts(&action.action_id, counts);
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
                self.put_document(kind, &id, &json);
            }
            ExportRecord::Totals(totals) => *self.totals_mut() = totals,
        }
        Ok(())
    }

    fn put_stored(&mut self, stored: StoredJob) -> Result<()> {
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
