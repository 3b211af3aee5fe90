//! Backups: a copy of all data of agq, read in chunks.

use serde::{Deserialize, Serialize};

/// Maximum number of bytes that one `BACKUP READ` returns.
pub const BACKUP_CHUNK_BYTES: usize = 1 << 20;

/// Answer of `BACKUP BEGIN`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupBegun {
    /// Id of the copy, for `BACKUP READ` and `BACKUP END`.
    pub backup_id: String,
    /// Number of bytes of the copy.
    pub bytes: u64,
}
