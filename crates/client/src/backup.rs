//! BACKUP, for clients that fetch a copy of the database.

use agenix_protocol::{
    blob::BlobHash,
    documents::{self, BackupBegun},
    request::{BackupCommand, Request},
};
use redis::{FromRedisValue, Value};

use crate::{connection::Connection, error::ClientError};

impl Connection {
    /// BACKUP BEGIN: makes a copy. A copy takes long: use [`Connection::open_without_timeout`].
    pub async fn begin_backup(&mut self) -> Result<BackupBegun, ClientError> {
        let reply = self.call(&Request::Backup(BackupCommand::Begin)).await?;
        documents::parse(&bytes_of(reply)?).map_err(|error| ClientError::Unexpected(error.to_string()))
    }

    /// BACKUP READ: returns bytes from `offset`, as many as agq sends, or none at the end.
    pub async fn read_backup(&mut self, backup_id: &str, offset: u64) -> Result<Vec<u8>, ClientError> {
        let command = BackupCommand::Read { backup_id: backup_id.to_owned(), offset };
        bytes_of(self.call(&Request::Backup(command)).await?)
    }

    /// BACKUP BLOB: returns bytes of a blob from `offset`, as many as agq sends, or none at its
    /// end.
    pub async fn read_backup_blob(
        &mut self,
        backup_id: &str,
        hash: BlobHash,
        offset: u64,
    ) -> Result<Vec<u8>, ClientError> {
        let command = BackupCommand::Blob { backup_id: backup_id.to_owned(), hash, offset };
        bytes_of(self.call(&Request::Backup(command)).await?)
    }

    /// BACKUP END: makes agq delete the copy.
    pub async fn end_backup(&mut self, backup_id: &str) -> Result<(), ClientError> {
        let command = BackupCommand::End { backup_id: backup_id.to_owned() };
        self.call(&Request::Backup(command)).await.map(drop)
    }
}

fn bytes_of(reply: Value) -> Result<Vec<u8>, ClientError> {
    Vec::<u8>::from_redis_value(reply).map_err(|error| ClientError::Unexpected(error.to_string()))
}
