//! Mutations that chaos notices: of the listeners, and of the programs besides agq.

use super::Mutation;

/// Mutations that chaos notices.
pub(super) static CHAOS: [Mutation; 2] = [
    Mutation {
        name: "agw panics if a line of its log cannot be written",
        file: "crates/agw/src/main.rs",
        from: ".log_internal_errors(false)",
        to: "",
    },
    Mutation {
        name: "each listener numbers its own connections",
        file: "crates/agq/src/net/accept.rs",
        from: "    loop {\n        tokio::select! {\n            incoming = listeners.accept() => match incoming {\n                Ok(incoming) => {\n                    let number = acceptor.access_control.next_connection();",
        to: "    let mut number = 0;\n    loop {\n        tokio::select! {\n            incoming = listeners.accept() => match incoming {\n                Ok(incoming) => {\n                    number += 1;",
    },
];
