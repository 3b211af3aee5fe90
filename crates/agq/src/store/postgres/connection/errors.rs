//! Meaning of database errors for the connection on which they occurred, and for people.

use sqlx::Error;

use crate::store::StoreError;

/// Codes of errors that come from the connection or the server as a whole, not from the statement.
///
/// - 08: connection exceptions.
/// - 57P0: shutdown, startup and ended sessions.
/// - 25006: read-only.
/// - 25P03, 25P04: ended transactions that waited.
/// - 28: refused logins.
/// - 3D000: no such database.
/// - 53300: too many connections.
const OF_THE_CONNECTION: [&str; 8] = ["08", "57P0", "25006", "25P03", "25P04", "28", "3D000", "53300"];

/// Returns true if the connection is gone, was never there, or leads to a server that cannot do the
/// work. Such a connection is closed and never used again.
pub(crate) fn is_disconnect(error: &Error) -> bool {
    match error {
        Error::Io(_)
        | Error::Tls(_)
        | Error::PoolTimedOut
        | Error::PoolClosed
        | Error::WorkerCrashed
        | Error::Protocol(_) => true,
        Error::Database(error) => {
            error.code().is_some_and(|code| is_of_the_connection(&code, error.message()))
        }
        _ => false,
    }
}

fn is_of_the_connection(code: &str, message: &str) -> bool {
    // A standby refuses unlogged tables with a code that other refusals have, too.
    OF_THE_CONNECTION.iter().any(|prefix| code.starts_with(prefix))
        || code == "0A000" && message.contains("recovery")
}

/// Returns true if the server takes no writes. Another server may take them.
pub(crate) fn is_read_only(error: &Error) -> bool {
    let Error::Database(database) = error else { return false };
    database.code().is_some_and(|code| code == "25006" || code == "0A000") && is_disconnect(error)
}

impl From<&Error> for StoreError {
    fn from(error: &Error) -> Self {
        let text = message(error);
        if is_disconnect(error) {
            return Self(format!("the database cannot be reached ({text}); try again in a moment"));
        }
        Self(text)
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

/// Returns the text of an error, without the place in PostgreSQL's source that raised it.
pub(crate) fn message(error: &Error) -> String {
    match error {
        Error::Database(error) => error.message().to_owned(),
        Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_of_the_connection;

    #[test]
    fn server_errors_close_the_connection() {
        let read_only = "cannot execute UPDATE in a read-only transaction";
        let recovery = "cannot access temporary or unlogged relations during recovery";
        for (code, message) in [
            ("25006", read_only),
            ("0A000", recovery),
            ("57P01", "terminating connection due to administrator command"),
            ("57P03", "the database system is starting up"),
            ("57P05", "terminating connection due to idle-session timeout"),
            ("08006", "connection failure"),
            ("25P03", "terminating connection due to idle-in-transaction timeout"),
            ("28P01", "password authentication failed"),
            ("3D000", "database does not exist"),
            ("53300", "too many connections"),
        ] {
            assert!(is_of_the_connection(code, message), "{code}");
        }
    }

    #[test]
    fn statement_errors_keep_the_connection() {
        for (code, message) in [
            ("0A000", "cached plan must not change result type"),
            ("23505", "duplicate key value violates unique constraint"),
            ("40P01", "deadlock detected"),
            ("57014", "canceling statement due to statement timeout"),
            ("53200", "out of shared memory"),
        ] {
            assert!(!is_of_the_connection(code, message), "{code}");
        }
    }
}
