//! `agq backup`: fetches a backup of a running agq into a file.

use std::io::Write;

use agenix_client::{ClientError, Connection, KEY_HELP};
use agenix_protocol::errors::ErrorKind;
use anyhow::{Context, anyhow, bail};

use crate::{
    admin::{
        partial_file::{PartialFile, shown},
        say,
    },
    config::BackupArgs,
};

pub(super) fn backup(args: &BackupArgs) -> anyhow::Result<()> {
    let server = args.server.server()?;
    let mut part = PartialFile::create(&args.file)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // The reply takes long, because agq copies the whole database first.
        let mut connection = Connection::open_patiently(&server).await.map_err(|error| advised(&error))?;
        fetch(&mut connection, &mut part).await
    })?;
    let found = part.put_database()?;
    let (file, count) = (args.file.display(), found.inconsistencies.len());
    say(&format!("wrote {file}: {}", shown(&found)))?;
    if count > 0 {
        bail!(
            "{file} is a complete copy, but it contradicts itself in {count} places, and so does the database of that agq: `agq check {file}` names them; keep your older backups"
        );
    }
    Ok(())
}

async fn fetch(connection: &mut Connection, part: &mut PartialFile) -> anyhow::Result<()> {
    let begun = connection.begin_backup().await.map_err(|error| advised(&error))?;
    let mut done = 0;
    loop {
        let piece = connection.read_backup(&begun.backup_id, done).await.map_err(|error| advised(&error))?;
        if piece.is_empty() {
            break;
        }
        part.file.write_all(&piece).context("cannot write the backup: is the disk full?")?;
        done += piece.len() as u64;
    }
    if done != begun.bytes {
        bail!("agq sent {done} of {} bytes: try again", begun.bytes);
    }
    // A failure does not matter, because the copy is complete and expires at agq after a minute.
    let _ended = connection.end_backup(&begun.backup_id).await;
    Ok(())
}

fn advised(error: &ClientError) -> anyhow::Error {
    let advice = match error {
        ClientError::Tls { help, .. } => help,
        ClientError::Unreachable { .. } => {
            "start it, or give its address with --addr or AGQ_ADDR; while it is stopped, you can copy agq.redb and agq.journal, always both together"
        }
        ClientError::Unauthenticated { .. } => KEY_HELP,
        ClientError::Rejected(reason) if ErrorKind::of(reason) == ErrorKind::NotPermitted => {
            "use the session key, or the key of an admin"
        }
        ClientError::StoreFailed(_) => "read its log; its disk needs room for a second copy of the database",
        ClientError::Rejected(_) => "docs/operations.md describes backups",
        ClientError::Unexpected(_) => "is it an agq, of the version of `agq --version`?",
    };
    anyhow!("{error}; {advice}")
}
