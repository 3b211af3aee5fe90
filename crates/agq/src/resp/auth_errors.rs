//! Errors of clients that have not authenticated, and of clients with a wrong key.

use crate::settings::AuthErrors;

/// `plain` is of the RESP specification (§4); Redis clients recognise `redis` by its first word.
pub(crate) struct AuthError {
    pub(crate) plain: &'static str,
    redis: &'static str,
}

pub(crate) const NO_KEY: AuthError =
    AuthError { plain: "ERR NOAUTH Authentication required", redis: "NOAUTH Authentication required." };
pub(crate) const WRONG_KEY: AuthError =
    AuthError { plain: "ERR Invalid session key", redis: "WRONGPASS Invalid session key." };

impl AuthError {
    /// `is_introduced` is true if the client has sent a command that only Redis libraries send.
    pub(crate) fn text(&self, setting: AuthErrors, is_introduced: bool) -> &'static str {
        let is_redis_client = match setting {
            AuthErrors::Auto => is_introduced,
            AuthErrors::Plain => false,
            AuthErrors::Redis => true,
        };
        if is_redis_client { self.redis } else { self.plain }
    }
}
