//! `agq restore`: copies a backup to a data directory without a database, and its blobs to theirs.

use std::{fs::File, io, path::Path};

use agenix_protocol::blob::BlobHash;
use agenix_rules::blob::StoredBlob;
use anyhow::{Context, bail};

use crate::{
    admin::{
        blob_copy::{Copied, restore_blobs},
        partial_file::{PartialFile, shown},
        say,
    },
    config::{RestoreArgs, blobs_beside},
    store::redb::examine,
    synced_directory,
};

pub(super) fn restore(args: &RestoreArgs) -> anyhow::Result<()> {
    let (backup, dir) = (args.file.display(), args.data_dir()?);
    let examined = examine(&args.file)
        .with_context(|| format!("{backup} cannot be restored; take another backup, or an older one"))?;
    if !examined.inconsistencies.is_empty() {
        bail!(
            "{backup} has {}, which `agq check {backup}` names; take an older backup",
            examined.inconsistency_count()
        );
    }
    synced_directory::create_all(&dir)
        .with_context(|| format!("cannot create the data directory {}", dir.display()))?;
    let place = dir.join("agq.redb");
    let mut part = PartialFile::create(&place)?;
    if !examined.blobs.is_empty() {
        // The blobs come first, because a database without them would be incomplete.
        put_blobs(args, &examined.blobs, &args.blob_dir(&dir)?)?;
    }
    File::open(&args.file)
        .and_then(|mut from| io::copy(&mut from, &mut part.file))
        .with_context(|| format!("cannot copy {backup} to {}: is the disk full?", dir.display()))?;
    let found = part.put_database()?;
    say(&format!("restored {} from {backup}: {}; start agq", place.display(), shown(&found)))
}

/// Restores the blobs, and prints the number of missing blobs.
fn put_blobs(args: &RestoreArgs, blobs: &[(BlobHash, StoredBlob)], to: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let copied = runtime.block_on(restore_blobs(&args.file, blobs, to))?;
    let (to, count, from) = (to.display(), blobs.len(), blobs_beside(&args.file));
    let from = from.display();
    match copied {
        None => say(&format!(
            "there is no {from}: copy the {count} large outputs of {} to {to} yourself, because without them their jobs have the first bytes only",
            args.file.display()
        )),
        Some(Copied { blobs, bytes, faults }) => {
            let lost = faults.len();
            let rest = if lost > 0 { format!("; {lost} were lost before the backup") } else { String::new() };
            say(&format!("restored {to} from {from}: {blobs} large outputs of {bytes} bytes{rest}"))
        }
    }
}
