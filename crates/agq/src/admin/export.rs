//! `agq export`: writes everything that a store remembers as lines that any store can read.

use std::{
    io::{BufWriter, Write},
    path::Path,
};

use crate::{
    admin::{database, partial_file::Part, say},
    clock::Clock,
    config::{ExportArgs, Holding},
    store::{
        export::{Exporter, Sums, shown},
        postgres, redb,
    },
};

pub(super) fn export(args: &ExportArgs) -> anyhow::Result<()> {
    if args.file == Path::new("-") {
        write(&args.from(), agenix_cli::stdout()?)?;
        return Ok(());
    }
    let part = Part::create(&args.file)?;
    let sums = write(&args.from(), &part.file)?;
    part.put()?;
    say(&format!("wrote {}: {}", args.file.display(), shown(&sums)))
}

fn write(from: &Holding, to: impl Write) -> anyhow::Result<Sums> {
    let mut exporter = Exporter::begin(BufWriter::new(to), Clock::default().now())?;
    let mut sink = |record| exporter.put(&record);
    match from {
        Holding::Path(path) => redb::export(&database(path), &mut sink)?,
        Holding::Postgres(url) => postgres::export(url, &mut sink)?,
    }
    exporter.end()
}
