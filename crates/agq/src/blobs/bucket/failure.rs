//! Kinds of failures of a bucket, and their texts. The texts have no credentials, and no key id
//! that a server repeats.

use std::{error::Error, io};

use object_store::client::{HttpError, HttpErrorKind};

/// Maximum number of characters of a text that another program wrote.
const MAX_CHARS: usize = 200;

/// Returns the reason of a failure in one line: the code and the message of the server, or the
/// innermost cause of a connection that failed.
pub(super) fn failure(error: &object_store::Error) -> String {
    let causes: Vec<String> = anyhow::Chain::new(error).map(ToString::to_string).collect();
    if let Some(answer) = causes.iter().rev().find_map(|cause| of_server(cause)) {
        return answer;
    }
    if matches!(error, object_store::Error::NotFound { .. }) {
        return "there is no such object".to_owned();
    }
    // The text of a reply without a body ends with a colon.
    in_one_line(causes.last().map_or("", |cause| cause.trim_end().trim_end_matches(':')))
}

/// Returns true if the server has no such object, or an object without the bytes of a range. A
/// missing bucket may exist again later.
pub(super) fn is_lost_object(error: &object_store::Error) -> bool {
    let reason = failure(error);
    let is_missing = matches!(error, object_store::Error::NotFound { .. });
    is_missing && !reason.starts_with("NoSuchBucket") || reason.starts_with("InvalidRange")
}

/// Returns the code and the message of an error document of S3.
fn of_server(text: &str) -> Option<String> {
    let code = element(text, "Code")?;
    Some(in_one_line(&match element(text, "Message") {
        Some(message) => format!("{code}: {message}"),
        None => code.to_owned(),
    }))
}

fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, from) = text.split_once(&format!("<{name}>"))?;
    Some(from.split_once(&format!("</{name}>"))?.0)
}

fn in_one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

/// Beginning of the crate's text for a reply of the server, before the status code.
const STATUS: &str = "Server returned non-2xx status code: ";
/// Status codes of a server that cannot work at the moment.
const AWAY: [&str; 5] = ["429", "500", "502", "503", "504"];
/// Addresses at which machines and containers of AWS have their credentials.
const METADATA: [&str; 2] = ["169.254.169.254", "169.254.170."];

/// Returns true if a server could not be reached or cannot work at the moment, so that the same
/// request may succeed later.
pub(super) fn is_away(error: &object_store::Error) -> bool {
    !asks_for_credentials(error) && anyhow::Chain::new(error).any(is_cause_away)
}

/// Returns true if a request for the role of this machine has failed, and so there are no
/// credentials.
fn asks_for_credentials(error: &object_store::Error) -> bool {
    let text = error.to_string();
    METADATA.iter().any(|address| text.contains(address))
}

fn is_cause_away(cause: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind as E;
    if let Some(error) = cause.downcast_ref::<HttpError>() {
        use HttpErrorKind as H;
        if matches!(error.kind(), H::Timeout | H::Interrupted | H::Request) {
            return true;
        }
    }
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        // The standard library has no kind for a failed resolution of a name.
        let is_resolver_away =
            || ["Temporary failure", "Try again"].iter().any(|text| error.to_string().contains(text));
        return is_resolver_away()
            || matches!(
                error.kind(),
                E::ConnectionRefused
                    | E::ConnectionReset
                    | E::ConnectionAborted
                    | E::BrokenPipe
                    | E::TimedOut
                    | E::UnexpectedEof
                    | E::HostUnreachable
                    | E::NetworkUnreachable
                    | E::NetworkDown
                    | E::AddrNotAvailable
            );
    }
    let text = cause.to_string();
    text.strip_prefix(STATUS).is_some_and(|rest| AWAY.iter().any(|code| rest.starts_with(code)))
}

const BUCKET: &str = "create the bucket, or correct its name in --blobs";
const CREDENTIALS: &str = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which have to permit reads, writes, deletions and listings";

/// Codes of a server for credentials that it does not accept.
const OF_CREDENTIALS: [&str; 5] =
    ["AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"];

/// Returns what a person can do about a failure of the start. The kind of the error is not enough,
/// because a failed listing always has the same kind.
pub(super) fn advice(error: &object_store::Error, reason: &str) -> &'static str {
    use object_store::Error as E;
    match error {
        _ if reason.starts_with("NoSuchBucket") => BUCKET,
        E::NotFound { .. } => BUCKET,
        _ if OF_CREDENTIALS.iter().any(|code| reason.starts_with(code)) => CREDENTIALS,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => CREDENTIALS,
        _ if asks_for_credentials(error) => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, because this machine has no role of AWS"
        }
        _ if reason.contains("scheme is not allowed") => {
            "give an https:// address in AWS_ENDPOINT_URL, or set AWS_ALLOW_HTTP=true on a network that is trusted as a whole"
        }
        _ => "check AWS_ENDPOINT_URL, AWS_REGION and the credentials, and whether the server can be reached",
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{advice, failure, is_away, is_lost_object};

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: Box::new(io::Error::other(text.to_owned())) }
    }

    #[test]
    fn failure_of_a_bucket_shows_code_and_message_without_the_key_id() {
        let body = "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?>\n<Error><Code>InvalidAccessKeyId</Code><Message>The key\ndoes not exist.</Message><AWSAccessKeyId>AKIASECRET</AWSAccessKeyId></Error>";
        assert_eq!(failure(&generic(body)), "InvalidAccessKeyId: The key does not exist.");
        assert_eq!(failure(&generic("<Code>SlowDown</Code>")), "SlowDown");
        assert_eq!(
            failure(&generic("Connection refused\r\n (os error 111)")),
            "Connection refused (os error 111)"
        );
        assert_eq!(failure(&generic(&"a".repeat(1000))).len(), 200);
    }

    #[test]
    fn failure_of_a_bucket_comes_with_advice() {
        let missing = object_store::Error::NotFound { path: "p".into(), source: "none".into() };
        assert_eq!(failure(&missing), "there is no such object");
        assert!(advice(&missing, "").starts_with("create the bucket"));
        assert!(advice(&generic("a"), "NoSuchBucket: none").starts_with("create the bucket"));
        assert!(advice(&generic("a"), "AccessDenied: no").starts_with("check AWS_ACCESS_KEY_ID"));
        let without_tls = "builder error: URL scheme is not allowed";
        assert!(advice(&generic(without_tls), without_tls).contains("AWS_ALLOW_HTTP=true"));
        assert!(advice(&generic("a"), "a").contains("AWS_ENDPOINT_URL"));
    }

    /// Returns an error with `cause` below it, as the crate has them.
    fn caused(cause: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: Box::new(cause) }
    }

    #[test]
    fn failure_of_a_bucket_that_is_away_differs_from_a_refusal() {
        use io::ErrorKind as E;
        for kind in [E::ConnectionRefused, E::ConnectionReset, E::TimedOut, E::HostUnreachable] {
            assert!(is_away(&caused(io::Error::from(kind))), "{kind}");
        }
        for code in ["500 Internal Server Error", "503 Service Unavailable", "429 Too Many Requests"] {
            let text = format!("Server returned non-2xx status code: {code}: <html>");
            assert!(is_away(&caused(Told(text))), "{code}");
        }
        for code in ["301 Moved Permanently", "400 Bad Request", "403 Forbidden", "501 Not Implemented"] {
            let text = format!("Server returned non-2xx status code: {code}: 503 <html>");
            assert!(!is_away(&caused(Told(text))), "{code}");
        }
        let resolver = |text: &str| {
            is_away(&caused(io::Error::other(format!("failed to lookup address information: {text}"))))
        };
        assert!(resolver("Temporary failure in name resolution"));
        assert!(!resolver("Name or service not known"), "the address is wrong");
        assert!(!is_away(&caused(io::Error::from(E::InvalidData))), "no TLS, or a wrong certificate");
        assert!(!is_away(&object_store::Error::NotFound { path: "p".into(), source: "none".into() }));
    }

    #[test]
    fn failure_of_a_lost_object_differs_from_that_of_a_missing_bucket() {
        let missing = |text: &str| {
            let source = Box::new(Told(text.to_owned()));
            is_lost_object(&object_store::Error::NotFound { path: "p".into(), source })
        };
        assert!(missing("<Code>NoSuchKey</Code>") && missing("404 Not Found"));
        assert!(!missing("<Code>NoSuchBucket</Code>"));
        assert!(is_lost_object(&generic("<Code>InvalidRange</Code>")));
        assert!(!is_lost_object(&generic("503 Service Unavailable")));
    }

    #[test]
    fn failure_of_a_machine_without_a_role_asks_for_credentials() {
        let text = "Error performing PUT http://169.254.169.254/latest/api/token in 5s";
        let error = object_store::Error::Generic { store: "S3", source: Box::new(Told(text.to_owned())) };
        assert!(advice(&error, "operation timed out").starts_with("set AWS_ACCESS_KEY_ID"));
        assert!(!is_away(&error));
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Told(String);
}
