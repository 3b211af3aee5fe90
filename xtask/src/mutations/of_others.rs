//! Mutations that no seed on redb alone can notice: of PostgreSQL, of several nodes, of the
//! listeners, and of the programs besides agq.

use super::Mutation;

/// Mutations that seeds on both stores, or on two nodes, notice.
pub(super) static OF_STORES: [Mutation; 4] = [
    Mutation {
        name: "limits that nobody uses are kept on redb",
        file: "crates/agq/src/store/redb/txn/documents.rs",
        from: "if self.tables.notes.get(place)?.is_some_and(|note| note.value() == version) {",
        to: "if false {",
    },
    Mutation {
        name: "limits that nobody uses are kept on PostgreSQL",
        file: "crates/agq/src/store/postgres/txn/unused_lanes.rs",
        from: "if !unused.limits.is_empty() {",
        to: "if false && !unused.limits.is_empty() {",
    },
    Mutation {
        name: "lanes without jobs are kept on PostgreSQL",
        file: "crates/agq/src/store/postgres/txn/unused_lanes.rs",
        from: "if !unused.lanes.is_empty() {",
        to: "if false && !unused.lanes.is_empty() {",
    },
    Mutation {
        name: "a claim does not lock the limits that it counts under",
        file: "crates/agq/src/store/postgres/txn/held_rows.rs",
        from: "locking!(\"agq_hold_free_notes\", \" FOR UPDATE SKIP LOCKED\")",
        to: "locking!(\"agq_hold_free_notes\", \"\")",
    },
];

/// Mutations that chaos notices.
pub(super) static OF_CHAOS: [Mutation; 2] = [
    Mutation {
        name: "agw panics where a line of its log cannot be written",
        file: "crates/agw/src/main.rs",
        from: ".log_internal_errors(false)",
        to: "",
    },
    Mutation {
        name: "each door numbers its own connections",
        file: "crates/agq/src/net/accept.rs",
        from: "    loop {\n        tokio::select! {\n            incoming = listeners.accept() => match incoming {\n                Ok(incoming) => {\n                    let number = acceptor.access_control.next_connection();",
        to: "    let mut number = 0;\n    loop {\n        tokio::select! {\n            incoming = listeners.accept() => match incoming {\n                Ok(incoming) => {\n                    number += 1;",
    },
];
