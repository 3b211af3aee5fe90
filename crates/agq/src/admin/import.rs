//! `agq import`: reads the output of `agq export` into an empty store.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::{Context, bail};

use crate::{
    admin::{
        blob_copy::{Copied, restore_blobs},
        partial_file::PartialFile,
        say,
    },
    config::{DataLocation, ImportArgs, blobs_beside},
    store::{
        export::{Checksums, Importer, shown},
        postgres, redb,
    },
    synced_directory,
};

pub(super) fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let file = args.file.display();
    let cannot = || format!("cannot import {file}");
    if blobs_beside(&args.file).exists() {
        import_blobs(args).with_context(cannot)?;
    }
    let from: Box<dyn BufRead> = if args.file == Path::new("-") {
        Box::new(agenix_cli::stdin()?)
    } else {
        Box::new(BufReader::new(File::open(&args.file).with_context(cannot)?))
    };
    let mut from = Importer::begin(from).with_context(cannot)?;
    let sums = match &args.to {
        DataLocation::Path(dir) => into_directory(dir, &mut from),
        DataLocation::Postgres(url) => postgres::import(url, &mut from),
    };
    say(&format!("imported {file}: {}; start agq", shown(&sums.with_context(cannot)?)))
}

/// Copies the blobs from the directory beside the file. The blobs come first, because records
/// without blobs would be incomplete.
fn import_blobs(args: &ImportArgs) -> anyhow::Result<()> {
    let (mut records, mut blobs) = (Importer::begin(BufReader::new(File::open(&args.file)?))?, Vec::new());
    while let Some(record) = records.take()? {
        blobs.extend(record.blob()?);
    }
    let to = args.blob_dir()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    if let Some(copied) = runtime.block_on(restore_blobs(&args.file, &blobs, &to))? {
        let Copied { blobs, bytes, .. } = copied;
        say(&format!(
            "imported {}: {blobs} large outputs of {bytes} bytes",
            blobs_beside(&args.file).display()
        ))?;
    }
    Ok(())
}

fn into_directory(dir: &Path, from: &mut Importer<impl BufRead>) -> anyhow::Result<Checksums> {
    synced_directory::create_all(dir)
        .with_context(|| format!("cannot create the data directory {}", dir.display()))?;
    let part = PartialFile::create(&dir.join("agq.redb"))?;
    let sums = redb::import(part.path(), from)?;
    if let Some(first) = redb::examine(part.path())?.inconsistencies.first() {
        bail!("the imported records are inconsistent: {first}");
    }
    part.put()?;
    Ok(sums)
}
