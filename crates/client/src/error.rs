//! Errors of calls, divided by the reaction that helps.

use agenix_protocol::errors::ErrorKind;

use crate::tls;

/// Error of a call.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ClientError {
    /// agq is not reachable, or the connection was lost.
    #[error("cannot reach agq at {address}: {reason}")]
    Unreachable { address: String, reason: String },
    /// TLS with agq fails for a reason that the start of another agq does not fix.
    #[error("cannot reach agq at {address}: {reason}")]
    Tls { address: String, reason: String, help: &'static str },
    /// agq does not accept the session key.
    #[error("agq at {address} refused the session key: {reason}")]
    Unauthenticated { address: String, reason: String },
    /// agq rejected the command. The text is the error of agq without `ERR`.
    #[error("{0}")]
    Rejected(String),
    /// The store of agq failed, which may be temporary. The reason is the error without `ERR`.
    #[error("{reason}")]
    StoreFailed { address: String, reason: String },
    /// The reply of agq does not have the expected form.
    #[error("agq answered something unexpected: {0}")]
    Unexpected(String),
}

impl ClientError {
    /// Returns true if a new connection may help.
    pub fn is_connection(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Tls { .. })
    }

    /// Returns true if agq or its database is away, so that an idempotent call may succeed later. A
    /// record that cannot be read stays unreadable.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::StoreFailed { reason, .. } => !reason.contains(" cannot be read: "),
            other => other.is_connection(),
        }
    }

    /// Returns the error as text for a person who waits until agq or its database is back.
    pub fn outage_text(&self) -> String {
        match self {
            Self::StoreFailed { address, reason } => {
                format!("the database of agq at {address} is away or fails: {reason}")
            }
            other => other.to_string(),
        }
    }

    /// Returns the advice if agq refuses this client for its many connections or commands.
    pub fn limit_help(&self) -> Option<&'static str> {
        let Self::Unreachable { reason, .. } = self else { return None };
        match ErrorKind::of(reason) {
            ErrorKind::TooManyConnections => Some(
                "close some of them, or raise agq's --max-connections-per-ip; over a Unix socket there is no limit",
            ),
            ErrorKind::TooManyCommands => Some("try again, or raise agq's --max-commands-per-second"),
            _ => None,
        }
    }

    /// Converts the error of an attempt to connect.
    pub(crate) fn of_opening(address: &str, error: &redis::RedisError) -> Self {
        match tls::problem(error) {
            Some(tls::TlsProblem { reason, help }) => Self::Tls { address: address.to_owned(), reason, help },
            None => Self::from_redis(address, error),
        }
    }

    pub(crate) fn from_redis(address: &str, error: &redis::RedisError) -> Self {
        let lost = |reason: String| Self::Unreachable { address: address.to_owned(), reason };
        match (error.kind(), error.code()) {
            (redis::ErrorKind::Server(_) | redis::ErrorKind::Extension, code) => {
                let (code, detail) = (code.unwrap_or("ERR"), error.detail().unwrap_or_default());
                let text = if code == "ERR" { detail.to_owned() } else { format!("{code} {detail}") };
                match ErrorKind::of(&text) {
                    ErrorKind::NotAuthenticated => {
                        Self::Unauthenticated { address: address.to_owned(), reason: text }
                    }
                    // agq closes the connection after these errors.
                    ErrorKind::TooManyConnections
                    | ErrorKind::TooManyCommands
                    | ErrorKind::CommandIncomplete => lost(text),
                    ErrorKind::StoreFailed => Self::StoreFailed { address: address.to_owned(), reason: text },
                    _ => Self::Rejected(text),
                }
            }
            (redis::ErrorKind::AuthenticationFailed, _) => {
                Self::Unauthenticated { address: address.to_owned(), reason: error.to_string() }
            }
            _ if error.is_timeout() => lost("it did not answer in time".into()),
            // The request did not reach agq.
            (redis::ErrorKind::Io | redis::ErrorKind::InvalidClientConfig | redis::ErrorKind::Client, _) => {
                lost(error.to_string())
            }
            _ if error.is_connection_dropped() => lost("the connection was closed".into()),
            // The connection was closed in the middle of a reply.
            (redis::ErrorKind::Parse, _) if error.to_string().contains("Unexpected end of input") => {
                lost("the connection was closed in the middle of an answer".into())
            }
            _ => Self::Unexpected(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClientError;

    fn of(line: &str) -> ClientError {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
        ClientError::from_redis("a:1", &reply.and_then(redis::Value::extract_error).unwrap_err())
    }

    #[test]
    fn failure_of_the_store_is_an_outage_with_a_sound_connection() {
        let away =
            of("ERR the store failed: the database cannot be reached (refused); try again in a moment");
        assert!(away.is_outage() && !away.is_connection(), "{away:?}");
        let expected = "the database of agq at a:1 is away or fails: the store failed: the database cannot be \
            reached (refused); try again in a moment";
        assert_eq!(away.outage_text(), expected);
        let lost = of("ERR Too many connections from ::1: max 2");
        assert!(lost.is_outage(), "{lost:?}");
        assert_eq!(lost.outage_text(), lost.to_string());
        assert!(!of("ERR the blob store failed: the disk is full").is_outage());
        assert!(!of("ERR Job not found: j").is_outage());
        let unreadable = of("ERR the store failed: job j cannot be read: EOF while parsing an object");
        assert!(!unreadable.is_outage(), "a repetition cannot help");
    }

    #[test]
    fn error_before_agq_closes_the_connection_counts_as_a_lost_connection() {
        for line in [
            "ERR a command was not complete within 5 seconds",
            "ERR Too many connections from ::1: max 2",
            "ERR Too many commands: max 100 a second",
        ] {
            let error = of(line);
            assert!(error.is_connection(), "{error:?}");
            let is_incomplete = line.contains("complete");
            assert_eq!(error.limit_help().is_none(), is_incomplete, "{error:?}");
        }
        assert!(
            matches!(of("ERR Job not found: j"), ClientError::Rejected(text) if text == "Job not found: j")
        );
    }
}
