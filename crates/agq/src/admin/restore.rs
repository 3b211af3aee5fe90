//! `agq restore`: copies a backup to a data directory without a database.

use std::{
    fs::{self, File},
    io,
};

use anyhow::{Context, bail};

use crate::{
    admin::{
        partial_file::{PartialFile, shown},
        say,
    },
    config::RestoreArgs,
    store::redb::examine,
};

pub(super) fn restore(args: &RestoreArgs) -> anyhow::Result<()> {
    let (backup, dir) = (args.file.display(), args.data_dir()?);
    let examined = examine(&args.file)
        .with_context(|| format!("{backup} cannot be restored; take another backup, or an older one"))?;
    let count = examined.inconsistencies.len();
    if count > 0 {
        bail!(
            "{backup} is not sound: it contradicts itself in {count} places, which `agq check {backup}` names; take an older backup"
        );
    }
    fs::create_dir_all(&dir)
        .with_context(|| format!("cannot create the data directory {}", dir.display()))?;
    let place = dir.join("agq.redb");
    let mut part = PartialFile::create(&place)?;
    File::open(&args.file)
        .and_then(|mut from| io::copy(&mut from, &mut part.file))
        .with_context(|| format!("cannot copy {backup} to {}: is the disk full?", dir.display()))?;
    let found = part.put_database()?;
    say(&format!("restored {} from {backup}: {}; start agq", place.display(), shown(&found)))
}
