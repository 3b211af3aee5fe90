//! `agq import`: puts what `agq export` wrote into a store that is empty.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::{Context, bail};

use crate::{
    admin::{partial_file::Part, say},
    config::{Holding, ImportArgs},
    store::{
        export::{Importer, Sums, shown},
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
    let sums = match args.to() {
        Holding::Path(dir) => into_directory(&dir, &mut from),
        Holding::Postgres(url) => postgres::import(&url, &mut from),
    };
    say(&format!("imported {file}: {}; start agq", shown(&sums.with_context(cannot)?)))
}

fn into_directory(dir: &Path, from: &mut Importer<impl BufRead>) -> anyhow::Result<Sums> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create the data directory {}", dir.display()))?;
    let part = Part::create(&dir.join("agq.redb"))?;
    let sums = redb::import(part.path(), from)?;
    if let Some(first) = redb::examine(part.path())?.inconsistencies.first() {
        bail!("what it says contradicts itself: {first}");
    }
    part.put()?;
    Ok(sums)
}
