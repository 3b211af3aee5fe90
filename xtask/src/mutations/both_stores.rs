//! Mutations that no seed on redb alone can notice: of PostgreSQL, of several nodes, and of unused
//! limits in both stores.

use super::Mutation;

/// Mutations that seeds on both stores, or on two nodes, notice.
pub(super) static BOTH_STORES: [Mutation; 4] = [
    Mutation {
        name: "redb keeps limits that no job uses",
        file: "crates/agq/src/store/redb/txn/documents.rs",
        from: "if self.tables.documents.get(place)?.is_some_and(|document| document.value() == version) {",
        to: "if false {",
    },
    Mutation {
        name: "PostgreSQL keeps limits that no job uses",
        file: "crates/agq/src/store/postgres/txn/unused_lanes.rs",
        from: "if !unused.limits.is_empty() {",
        to: "if false && !unused.limits.is_empty() {",
    },
    Mutation {
        name: "PostgreSQL keeps lanes without jobs",
        file: "crates/agq/src/store/postgres/txn/unused_lanes.rs",
        from: "if !unused.lanes.is_empty() {",
        to: "if false && !unused.lanes.is_empty() {",
    },
    Mutation {
        name: "a claim does not lock the limits under which it counts",
        file: "crates/agq/src/store/postgres/txn/locked_rows.rs",
        from: "locking!(\"agq_lock_free_documents\", \" FOR UPDATE SKIP LOCKED\")",
        to: "locking!(\"agq_lock_free_documents\", \"\")",
    },
];
