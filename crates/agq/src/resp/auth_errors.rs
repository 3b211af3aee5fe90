//! Errors of clients that have not authenticated, and of clients with a wrong key.

use bytes::Bytes;

use crate::settings::AuthErrors;

/// `plain` is of the RESP specification (§4); Redis clients recognise `redis` by its first word.
pub(crate) struct AuthError {
    pub(crate) plain: &'static str,
    redis: &'static str,
}

const NO_KEY: AuthError =
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

/// Returns the error of the command `args` before login.
pub(crate) fn no_key(setting: AuthErrors, is_introduced: bool, args: &[Bytes]) -> &'static str {
    NO_KEY.text(setting, is_introduced && !is_library_announcement(args))
}

/// Returns true for commands that a library sends by itself when it connects, and whose refusal it
/// ignores. An authentication error would end the connection before the user of the library can
/// send AUTH (RESP spec §9).
fn is_library_announcement(args: &[Bytes]) -> bool {
    let is =
        |at: usize, word: &str| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    is(0, "CLIENT") && (is(1, "SETINFO") || is(1, "MAINT_NOTIFICATIONS"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{AuthErrors, no_key};

    const PLAIN: &str = "ERR NOAUTH Authentication required";
    const REDIS: &str = "NOAUTH Authentication required.";

    fn of_introduced(setting: AuthErrors, line: &'static str) -> &'static str {
        let args: Vec<Bytes> = line.split(' ').map(|word| Bytes::from_static(word.as_bytes())).collect();
        no_key(setting, true, &args)
    }

    #[test]
    fn announcement_of_a_library_is_refused_without_an_authentication_error() {
        for line in [
            "CLIENT SETINFO LIB-NAME redis-py",
            "client setinfo lib-ver 5.3.1",
            "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-fqdn",
        ] {
            assert_eq!(of_introduced(AuthErrors::Auto, line), PLAIN, "{line}");
            assert_eq!(of_introduced(AuthErrors::Redis, line), REDIS, "{line}");
        }
        for line in ["GET k", "CLIENT ID", "CLIENT SETNAME SETINFO", "CLIENT", "SETINFO SETINFO"] {
            assert_eq!(of_introduced(AuthErrors::Auto, line), REDIS, "{line}");
            assert_eq!(of_introduced(AuthErrors::Plain, line), PLAIN, "{line}");
        }
    }
}
