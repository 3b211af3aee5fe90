//! The errors of a client that has no key, and of one that has a wrong key.

use crate::house::AuthErrors;

/// The text of one error: that of the RESP specification (§4), and that which client libraries of Redis recognise by
/// its first word.
pub(super) struct AuthError {
    pub(super) plain: &'static str,
    redis: &'static str,
}

/// The client has not logged in.
pub(super) const NO_KEY: AuthError =
    AuthError { plain: "ERR NOAUTH Authentication required", redis: "NOAUTH Authentication required." };
/// The client sent a key that is nobody's.
pub(super) const WRONG_KEY: AuthError =
    AuthError { plain: "ERR Invalid session key", redis: "WRONGPASS Invalid session key." };

impl AuthError {
    /// Returns the text for a client, which `is_introduced` where it sent what only client libraries of Redis send.
    pub(super) fn text(&self, setting: AuthErrors, is_introduced: bool) -> &'static str {
        let is_redis_client = match setting {
            AuthErrors::Auto => is_introduced,
            AuthErrors::Plain => false,
            AuthErrors::Redis => true,
        };
        if is_redis_client { self.redis } else { self.plain }
    }
}
