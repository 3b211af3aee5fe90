//! RESP commands, one file a group. A handler reads the arguments and shapes the reply.

pub(crate) mod backup;
pub(crate) mod capability;
pub(crate) mod challenge;
pub(crate) mod info;
pub(crate) mod keyspace;
pub(crate) mod output;
pub(crate) mod queue;
pub(crate) mod virtual_keys;
