//! A backup: a copy of everything that agq remembers, read piece by piece.

use serde::{Deserialize, Serialize};

/// Most bytes of a backup that `BACKUP READ` answers.
pub const BACKUP_PIECE_BYTES: usize = 1 << 20;

/// What `BACKUP BEGIN` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupBegun {
    /// The copy, for `BACKUP READ` and `BACKUP END`.
    pub backup_id: String,
    /// How many bytes it has.
    pub bytes: u64,
}
