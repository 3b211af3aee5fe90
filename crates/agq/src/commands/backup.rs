//! BACKUP: a copy of everything as it is at one moment, made beside the database and read piece by piece.

use std::sync::Arc;

use agenix_protocol::{documents::BackupBegun, request::BackupCommand, resp::Reply};

use super::{Outcome, json};
use crate::{app::House, error::CommandError, registry::backups::piece, store::StoreError};

pub(super) async fn run(house: &Arc<House>, command: BackupCommand) -> Outcome {
    match command {
        BackupCommand::Begin => begin(house).await,
        BackupCommand::Read { backup_id, offset } => read(house, &backup_id, offset).await,
        BackupCommand::End { backup_id } => {
            house.backups.end(&backup_id)?;
            Ok(Reply::ok())
        }
    }
}

/// BACKUP BEGIN
async fn begin(house: &Arc<House>) -> Outcome {
    let backup_id = house.clock.backup_id();
    let path = house.backups.begin(house.clock.now())?;
    let copied = house.store.backup(path.clone());
    let house = Arc::clone(house);
    // Whoever asked may go meanwhile: somebody has to know when it is there.
    let made = tokio::spawn(async move {
        match copied.await {
            Ok(bytes) => {
                house.backups.made(&backup_id, &path, house.clock.now())?;
                Ok(BackupBegun { backup_id, bytes })
            }
            Err(error) => {
                house.backups.failed(&path);
                Err(CommandError::from(error))
            }
        }
    });
    let begun = made.await.map_err(|error| StoreError(error.to_string()))??;
    Ok(json(&begun))
}

/// BACKUP READ
async fn read(house: &House, backup_id: &str, offset: u64) -> Outcome {
    let file = house.backups.file(backup_id, house.clock.now())?;
    let read = tokio::task::spawn_blocking(move || piece(&file, offset));
    let piece = read.await.map_err(|error| StoreError(error.to_string()))??;
    Ok(Reply::bulk(piece))
}
