//! Read queries on a snapshot.

pub(crate) mod documents;
pub(crate) mod keys;
pub(crate) mod records;
