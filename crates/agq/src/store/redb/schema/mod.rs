//! The tables of the database, the order of their keys, and the encoding of their records.

pub(crate) mod codec;
pub(crate) mod index_keys;
pub(crate) mod key_order;
pub(crate) mod tables;

pub(crate) use self::{codec::*, index_keys::*, key_order::*, tables::*};

/// Result of an access to the tables.
pub(crate) type Result<T, E = redb::Error> = std::result::Result<T, E>;
