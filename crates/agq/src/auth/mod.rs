//! Session keys, the keyring of known keys, and the audit log.

pub(crate) mod audit_log;
pub(crate) mod keyring;
pub(crate) mod session_key;
