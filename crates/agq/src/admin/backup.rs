//! `agq backup`: fetches a backup of a running agq into a file, and a directory of blobs beside it.

use std::{io::Write, time::Duration};

use agenix_client::{ClientError, Connection, KEY_HELP};
use agenix_protocol::{blob::BlobHash, documents::BackupBegun, errors::ErrorKind};
use agenix_rules::blob::StoredBlob;
use anyhow::{Context, anyhow, bail};
use tokio::time::timeout;

use crate::{
    admin::{
        blob_copy::{Copied, PartialDirectory, copy_blobs, say_copied},
        partial_file::{PartialFile, shown},
        say,
    },
    config::{BackupArgs, blobs_beside},
    store::redb::{DatabaseReport, examine},
};

/// Time between two reads while the database is checked. agq ends a backup that nobody reads for a
/// minute.
const READ_INTERVAL: Duration = Duration::from_secs(15);

pub(super) fn backup(args: &BackupArgs) -> anyhow::Result<()> {
    let server = args.server.server()?;
    let mut part = PartialFile::create(&args.file)?;
    let blobs = PartialDirectory::create(blobs_beside(&args.file))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (found, copied) = runtime.block_on(async {
        // The reply takes long, because agq copies the whole database first.
        let mut connection =
            Connection::open_without_timeout(&server).await.map_err(|error| advised(&error))?;
        let begun = connection.begin_backup().await.map_err(|error| advised(&error))?;
        fetch(&mut connection, &begun, &mut part).await?;
        let found = examined(&mut connection, &begun, &part).await?;
        let copied = fetch_blobs(&mut connection, &begun, &found.blobs, &blobs).await?;
        // A failure does not matter, because the copy is complete, and agq ends it after a minute.
        let _ended = connection.end_backup(&begun.backup_id).await;
        anyhow::Ok((found, copied))
    })?;
    if !found.blobs.is_empty() {
        blobs.put(&copied)?;
    }
    part.put()?;
    let file = args.file.display();
    say(&format!("wrote {file}: {}", shown(&found)))?;
    if !found.blobs.is_empty() {
        say_copied(&args.file, &copied)?;
    }
    if !found.inconsistencies.is_empty() {
        bail!(
            "{file} is a complete copy, but it has {}, and so has the database of that agq: `agq check {file}` names them; keep your older backups",
            found.inconsistency_count()
        );
    }
    Ok(())
}

async fn fetch(
    connection: &mut Connection,
    begun: &BackupBegun,
    part: &mut PartialFile,
) -> anyhow::Result<()> {
    let mut done = 0;
    loop {
        let chunk = connection.read_backup(&begun.backup_id, done).await.map_err(|error| advised(&error))?;
        if chunk.is_empty() {
            break;
        }
        part.file.write_all(&chunk).context("cannot write the backup: is the disk full?")?;
        done += chunk.len() as u64;
    }
    if done != begun.bytes {
        bail!("agq sent {done} of {} bytes: try again", begun.bytes);
    }
    Ok(())
}

/// Checks the fetched database. Meanwhile, empty reads show agq that the backup is still under way.
async fn examined(
    connection: &mut Connection,
    begun: &BackupBegun,
    part: &PartialFile,
) -> anyhow::Result<DatabaseReport> {
    part.sync()?;
    let path = part.path().to_owned();
    let mut examining = tokio::task::spawn_blocking(move || examine(&path));
    loop {
        match timeout(READ_INTERVAL, &mut examining).await {
            Ok(examined) => return examined?,
            Err(_elapsed) => {
                let read = connection.read_backup(&begun.backup_id, begun.bytes).await;
                read.map_err(|error| advised(&error))?;
            }
        }
    }
}

/// Fetches the blobs that the copy of the database names. agq removes none until the backup ends.
async fn fetch_blobs(
    connection: &mut Connection,
    begun: &BackupBegun,
    blobs: &[(BlobHash, StoredBlob)],
    to: &PartialDirectory,
) -> anyhow::Result<Copied> {
    copy_blobs(blobs, &to.storage()?, async |hash, _, offset| {
        match connection.read_backup_blob(&begun.backup_id, hash, offset).await {
            Ok(chunk) => Ok(Ok(chunk.into())),
            Err(ClientError::Rejected(why)) if ErrorKind::of(&why) == ErrorKind::BlobStoreFailed => {
                Ok(Err(why))
            }
            Err(error) => Err(advised(&error)),
        }
    })
    .await
}

fn advised(error: &ClientError) -> anyhow::Error {
    let advice = match error {
        ClientError::Tls { help, .. } => help,
        ClientError::Unreachable { .. } => {
            "start it, or give its address with --agq or AGQ_ADDR; while it is stopped, you can copy agq.redb, agq.journal and blobs, always together"
        }
        ClientError::Unauthenticated { .. } => KEY_HELP,
        ClientError::Rejected(reason) if ErrorKind::of(reason) == ErrorKind::NotPermitted => {
            "use the session key, or the key of an admin"
        }
        ClientError::StoreFailed { .. } => {
            "read its log; its disk needs room for a second copy of the database"
        }
        ClientError::Rejected(_) => "docs/operations.md describes backups",
        ClientError::Unexpected(_) => "is it an agq, of the version of `agq --version`?",
    };
    anyhow!("{error}; {advice}")
}
