//! `agq export`: writes all records of a store in the export format, which every store can import.

use std::{
    io::{BufWriter, Write},
    path::Path,
};

use crate::{
    admin::{database, partial_file::PartialFile, say},
    clock::Clock,
    config::{DataLocation, ExportArgs},
    store::{
        export::{Checksums, Exporter, shown},
        postgres, redb,
    },
};

pub(super) fn export(args: &ExportArgs) -> anyhow::Result<()> {
    if args.file == Path::new("-") {
        write(&args.from, agenix_cli::stdout()?)?;
        return Ok(());
    }
    let part = PartialFile::create(&args.file)?;
    let sums = write(&args.from, &part.file)?;
    part.put()?;
    say(&format!("wrote {}: {}", args.file.display(), shown(&sums)))
}

fn write(from: &DataLocation, to: impl Write) -> anyhow::Result<Checksums> {
    let mut exporter = Exporter::begin(BufWriter::new(to), Clock::default().now())?;
    let mut sink = |record| exporter.put(&record);
    match from {
        DataLocation::Path(path) => redb::export(&database(path), &mut sink)?,
        DataLocation::Postgres(url) => postgres::export(url, &mut sink)?,
    }
    exporter.end()
}
