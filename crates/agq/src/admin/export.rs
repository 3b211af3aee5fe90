//! `agq export`: writes all records of a store in the export format, which every store can import.

use std::{
    io::{BufWriter, Write},
    path::Path,
};

use agenix_protocol::blob::BlobHash;
use agenix_rules::blob::StoredBlob;

use crate::{
    admin::{
        blob_copy::{PartialDirectory, copy_from, say_copied},
        database,
        partial_file::PartialFile,
        say,
    },
    clock::Clock,
    config::{DataLocation, ExportArgs, blobs_beside},
    store::{
        export::{Checksums, ExportRecord, Exporter, shown},
        postgres, redb,
    },
};

pub(super) fn export(args: &ExportArgs) -> anyhow::Result<()> {
    if args.file == Path::new("-") {
        write(&args.from, agenix_cli::stdout()?)?;
        return Ok(());
    }
    let part = PartialFile::create(&args.file)?;
    let directory = PartialDirectory::create(blobs_beside(&args.file))?;
    let (sums, blobs) = write(&args.from, &part.file)?;
    let copied = match args.blob_dir() {
        Some(from) if !blobs.is_empty() => {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            let copied = runtime.block_on(copy_from(&from, &blobs, &directory.storage()?))?;
            directory.put(&copied)?;
            Some(copied)
        }
        _ => None,
    };
    part.put()?;
    let file = args.file.display();
    say(&format!("wrote {file}: {}", shown(&sums)))?;
    match copied {
        Some(copied) => say_copied(&args.file, &copied),
        None if blobs.is_empty() => Ok(()),
        None => {
            let count = blobs.len();
            say(&format!(
                "{file} is without its {count} large outputs: copy them yourself, or give --blob-dir"
            ))
        }
    }
}

/// Writes the records, and returns those of blobs.
fn write(from: &DataLocation, to: impl Write) -> anyhow::Result<(Checksums, Vec<(BlobHash, StoredBlob)>)> {
    let mut exporter = Exporter::begin(BufWriter::new(to), Clock::default().now())?;
    let mut blobs = Vec::new();
    let mut sink = |record: ExportRecord| {
        blobs.extend(record.blob()?);
        exporter.put(&record)
    };
    match from {
        DataLocation::Path(path) => redb::export(&database(path), &mut sink)?,
        DataLocation::Postgres(url) => postgres::export(url, &mut sink)?,
    }
    Ok((exporter.end()?, blobs))
}
