//! What can go wrong between us and agq, told apart by what helps.

use crate::tls;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// There is no agq, or not any more.
    #[error("cannot reach agq at {address}: {reason}")]
    Unreachable {
        /// Where it was looked for.
        address: String,
        /// What the system said.
        reason: String,
    },
    /// TLS with agq fails for a reason that the start of another agq does not fix.
    #[error("cannot reach agq at {address}: {reason}")]
    Tls {
        /// Where it was looked for.
        address: String,
        /// What is wrong.
        reason: String,
        /// What to do about it.
        help: &'static str,
    },
    /// It does not know our key.
    #[error("agq at {address} refused the session key: {reason}")]
    Unauthenticated {
        /// Where it was asked.
        address: String,
        /// What it said.
        reason: String,
    },
    /// It understood and said no; the text is agq's own, without `ERR`.
    #[error("{0}")]
    Rejected(String),
    /// It could not do it, through nobody's fault; the same may work later. The text is agq's own, without `ERR`.
    #[error("{0}")]
    StoreFailed(String),
    /// It answered something that this version does not understand.
    #[error("agq answered something unexpected: {0}")]
    Unexpected(String),
}

impl ClientError {
    /// Whether connecting again may help.
    pub fn is_connection(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Tls { .. })
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
                let is_refused_login = ["NOAUTH", "WRONGPASS", "Invalid session key"];
                if is_refused_login.iter().any(|start| text.starts_with(start)) {
                    return Self::Unauthenticated { address: address.to_owned(), reason: text };
                }
                if text.starts_with("Too many connections") {
                    return lost(text);
                }
                if text.starts_with("the store failed") {
                    Self::StoreFailed(text)
                } else {
                    Self::Rejected(text)
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
            // Cut in the middle of an answer.
            (redis::ErrorKind::Parse, _) if error.to_string().contains("Unexpected end of input") => {
                lost("the connection was closed in the middle of an answer".into())
            }
            _ => Self::Unexpected(error.to_string()),
        }
    }
}
