//! `agq import`: reads the output of `agq export` into an empty store.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::{Context, bail};

use crate::{
    admin::{partial_file::PartialFile, say},
    config::{DataLocation, ImportArgs},
    store::{
        export::{Checksums, Importer, shown},
        postgres, redb,
    },
};

pub(super) fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let file = args.file.display();
    let cannot = || format!("cannot import {file}");
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

fn into_directory(dir: &Path, from: &mut Importer<impl BufRead>) -> anyhow::Result<Checksums> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create the data directory {}", dir.display()))?;
    let part = PartialFile::create(&dir.join("agq.redb"))?;
    let sums = redb::import(part.path(), from)?;
    if let Some(first) = redb::examine(part.path())?.inconsistencies.first() {
        bail!("what it says contradicts itself: {first}");
    }
    part.put()?;
    Ok(sums)
}
