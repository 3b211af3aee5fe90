//! BACKUP and its subcommands.

use bytes::Bytes;

use crate::blob::BlobHash;

use super::{
    Request, RequestError,
    arguments::{count, id_of, text},
    encode::words,
};

/// BACKUP and its subcommands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum BackupCommand {
    /// Makes a snapshot of all data as a copy.
    Begin,
    /// Reads a chunk of the copy from an offset in bytes.
    Read { backup_id: String, offset: u64 },
    /// Reads a chunk of a blob that the copy names, from an offset in bytes.
    Blob { backup_id: String, hash: BlobHash, offset: u64 },
    /// Removes the copy.
    End { backup_id: String },
}

pub(super) fn parse(args: &[Bytes]) -> Result<Request, RequestError> {
    let Some((sub, rest)) = args.split_first() else { return Err(RequestError::Syntax) };
    let command = match (sub.to_ascii_uppercase().as_slice(), rest) {
        (b"BEGIN", []) => BackupCommand::Begin,
        (b"READ", [id, offset]) => {
            BackupCommand::Read { backup_id: text(id)?, offset: count(offset)? as u64 }
        }
        (b"BLOB", [id, hash, offset]) => {
            BackupCommand::Blob { backup_id: text(id)?, hash: id_of(hash)?, offset: count(offset)? as u64 }
        }
        (b"END", [id]) => BackupCommand::End { backup_id: text(id)? },
        _ => return Err(RequestError::Syntax),
    };
    Ok(Request::Backup(command))
}

impl BackupCommand {
    pub(super) fn encode(&self) -> Vec<Bytes> {
        match self {
            Self::Begin => words(["BACKUP", "BEGIN"]),
            Self::Read { backup_id, offset } => words(["BACKUP", "READ", backup_id, &offset.to_string()]),
            Self::Blob { backup_id, hash, offset } => {
                words(["BACKUP", "BLOB", backup_id, &hash.to_string(), &offset.to_string()])
            }
            Self::End { backup_id } => words(["BACKUP", "END", backup_id]),
        }
    }
}
