//! Export format: all records of a store as lines of JSON, which any store can import.
//!
//! The first line names the format. One record a line follows, in the order of [`ExportRecord`],
//! and within a kind in the order of their ids. Equal contents give equal lines, whichever store
//! they come from. The last line has the number of records of each kind and the SHA-256 of their
//! lines. A file without the last line is incomplete.

use std::{
    collections::BTreeMap,
    io::{BufRead, Write},
};

use agenix_protocol::{blob::BlobHash, time::Timestamp};
use agenix_rules::{
    action::{Action, JobCounts},
    blob::StoredBlob,
    worker::Worker,
};
use anyhow::{Context, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{DocumentKind, StoredJob, StoredPlan, StoredValue, Totals};

const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExportRecord {
    Plan(StoredPlan),
    Action {
        action: Box<Action>,
        #[serde(rename = "tally")]
        counts: JobCounts,
    },
    /// Job with lane 0, because every store numbers its lanes itself.
    Job(Box<StoredJob>),
    Paused {
        queue: String,
    },
    Worker {
        worker: Worker,
        registration: Option<String>,
    },
    /// User's key. Elements of lists and members of sorted sets are records of their own.
    Key {
        #[serde(with = "text")]
        key: Bytes,
        number: u64,
        content: StoredValue,
        /// Milliseconds since 1970; may be later than any date.
        expires_at_ms: Option<u64>,
    },
    Item {
        #[serde(with = "text")]
        key: Bytes,
        place: i64,
        #[serde(with = "text")]
        item: Bytes,
    },
    /// Member of a sorted set, with the score as text, because JSON has no infinity.
    Score {
        #[serde(with = "text")]
        key: Bytes,
        #[serde(with = "text")]
        member: Bytes,
        score: String,
    },
    /// Document of a [`DocumentKind`](super::DocumentKind). An unknown kind is refused.
    Note {
        kind: String,
        id: String,
        json: String,
    },
    Totals(Totals),
}

impl ExportRecord {
    fn kind(&self) -> &'static str {
        match self {
            Self::Plan(_) => "plans",
            Self::Action { .. } => "actions",
            Self::Job(_) => "jobs",
            Self::Paused { .. } => "paused_queues",
            Self::Worker { .. } => "workers",
            Self::Key { .. } => "keys",
            Self::Item { .. } => "items",
            Self::Score { .. } => "scores",
            Self::Note { .. } => "notes",
            Self::Totals(_) => "totals",
        }
    }

    /// Returns the blob of a record, if it is that of a blob.
    pub(crate) fn blob(&self) -> anyhow::Result<Option<(BlobHash, StoredBlob)>> {
        let Self::Note { kind, id, json } = self else { return Ok(None) };
        if *kind != DocumentKind::Blob.as_str() {
            return Ok(None);
        }
        let blob = serde_json::from_str(json).with_context(|| format!("the blob {id} cannot be read"))?;
        Ok(Some((id.parse()?, blob)))
    }

    fn line(&self) -> anyhow::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

pub(crate) type RecordSink<'s> = dyn FnMut(ExportRecord) -> anyhow::Result<()> + 's;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KindChecksum {
    count: u64,
    sha256: String,
}

pub(crate) type Checksums = BTreeMap<String, KindChecksum>;

pub(crate) fn shown(sums: &Checksums) -> String {
    let all: Vec<String> = sums.iter().map(|(kind, sum)| format!("{} {kind}", sum.count)).collect();
    if all.is_empty() { "nothing".into() } else { all.join(", ") }
}

#[derive(Default)]
struct ChecksumBuilder(BTreeMap<&'static str, (u64, Sha256)>);

impl ChecksumBuilder {
    fn add(&mut self, record: &ExportRecord) -> anyhow::Result<Vec<u8>> {
        let line = record.line()?;
        self.add_line(record.kind(), &line);
        Ok(line)
    }

    fn add_line(&mut self, kind: &'static str, line: &[u8]) {
        let (count, hash) = self.0.entry(kind).or_default();
        *count += 1;
        hash.update(line);
    }

    fn sums(self) -> Checksums {
        let hex = |hash: Sha256| hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let sum = |(count, hash)| KindChecksum { count, sha256: hex(hash) };
        self.0.into_iter().map(|(kind, sums)| (kind.to_owned(), sum(sums))).collect()
    }
}

/// First and last line of an export.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExportFrame {
    AgqExport { version: u32, agq: String, exported_at: Timestamp },
    End(Checksums),
}

pub(crate) struct Exporter<W> {
    to: W,
    checksums: ChecksumBuilder,
}

impl<W: Write> Exporter<W> {
    pub(crate) fn begin(to: W, now: Timestamp) -> anyhow::Result<Self> {
        let mut exporter = Self { to, checksums: ChecksumBuilder::default() };
        let agq = env!("CARGO_PKG_VERSION").to_owned();
        exporter.frame(&ExportFrame::AgqExport { version: VERSION, agq, exported_at: now })?;
        Ok(exporter)
    }

    pub(crate) fn put(&mut self, record: &ExportRecord) -> anyhow::Result<()> {
        let line = self.checksums.add(record)?;
        Ok(self.to.write_all(&line)?)
    }

    pub(crate) fn end(mut self) -> anyhow::Result<Checksums> {
        let sums = std::mem::take(&mut self.checksums).sums();
        self.frame(&ExportFrame::End(sums.clone()))?;
        self.to.flush()?;
        Ok(sums)
    }

    fn frame(&mut self, frame: &ExportFrame) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(frame)?;
        line.push(b'\n');
        Ok(self.to.write_all(&line)?)
    }
}

/// Reader of an export. Checks the checksums once all records have been read.
pub(crate) struct Importer<R> {
    from: R,
    number: u64,
    line: Vec<u8>,
    /// Checksums of the lines as they are.
    read: ChecksumBuilder,
    /// Checksums of the records as this agq writes them, which may have more fields than the lines.
    expected: ChecksumBuilder,
    end: Option<Checksums>,
}

impl<R: BufRead> Importer<R> {
    pub(crate) fn begin(from: R) -> anyhow::Result<Self> {
        let (read, expected) = (ChecksumBuilder::default(), ChecksumBuilder::default());
        let mut importer = Self { from, number: 0, line: Vec::new(), read, expected, end: None };
        importer.next_line()?;
        match serde_json::from_slice(&importer.line) {
            Ok(ExportFrame::AgqExport { version, .. }) if version <= VERSION => Ok(importer),
            Ok(ExportFrame::AgqExport { version, agq, .. }) => {
                bail!(
                    "agq {agq} wrote it, in version {version} of the format, and this agq reads version {VERSION}: use a newer agq"
                )
            }
            _ => bail!("its first line is not that of a file which `agq export` wrote"),
        }
    }

    pub(crate) fn take(&mut self) -> anyhow::Result<Option<ExportRecord>> {
        if self.end.is_some() {
            return Ok(None);
        }
        self.next_line()?;
        if self.line.starts_with(br#"{"end":"#) {
            return self.close().map(|()| None);
        }
        let record: ExportRecord = serde_json::from_slice(&self.line)
            .with_context(|| format!("line {} is no record that this agq knows", self.number))?;
        self.read.add_line(record.kind(), &self.line);
        self.expected.add(&record)?;
        Ok(Some(record))
    }

    /// Returns the number of bytes of the line that was read last.
    pub(crate) fn line_bytes(&self) -> usize {
        self.line.len()
    }

    fn close(&mut self) -> anyhow::Result<()> {
        let ExportFrame::End(written) =
            serde_json::from_slice(&self.line).context("its last line cannot be read")?
        else {
            bail!("line {} is not in the order of the format", self.number);
        };
        compare(&written, &std::mem::take(&mut self.read).sums())
            .context("it was damaged, or changed since it was written")?;
        if self.from.fill_buf()?.is_empty() {
            self.end = Some(std::mem::take(&mut self.expected).sums());
            return Ok(());
        }
        bail!("something follows its last line, {}", self.number)
    }

    /// Compares the records that were read with those that `read_back` reads from the store.
    pub(crate) fn verify(
        &mut self,
        read_back: impl FnOnce(&mut RecordSink<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Checksums> {
        let Some(expected) = self.end.take() else { bail!("the export was not read to its end") };
        let mut found = ChecksumBuilder::default();
        read_back(&mut |record| found.add(&record).map(drop))?;
        compare(&expected, &found.sums()).context("the imported records differ from the file")?;
        Ok(expected)
    }

    fn next_line(&mut self) -> anyhow::Result<()> {
        self.line.clear();
        self.number += 1;
        self.from.read_until(b'\n', &mut self.line).context("it cannot be read")?;
        if !self.line.ends_with(b"\n") {
            bail!("it ends within line {}: it is not whole", self.number);
        }
        Ok(())
    }
}

fn compare(expected: &Checksums, found: &Checksums) -> anyhow::Result<()> {
    for kind in expected.keys().chain(found.keys()) {
        let [expected, found] = [expected, found].map(|sums| sums.get(kind));
        if expected != found {
            let [expected, found] = [expected, found].map(|sum| sum.map_or(0, |sum| sum.count));
            if expected == found {
                bail!("{kind}: the {found} records are not the expected ones");
            }
            bail!("{kind}: expected {expected} records, found {found}");
        }
    }
    Ok(())
}

/// Serialises bytes as text if they are UTF-8, otherwise as an array of numbers.
pub(crate) mod text {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(in crate::store) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => text.serialize(to),
            Err(_) => bytes.as_ref().serialize(to),
        }
    }

    pub(in crate::store) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        Ok(match Either::deserialize(from)? {
            Either::Text(text) => text.into(),
            Either::Bytes(bytes) => bytes.into(),
        })
    }
}
