//! Texts for failures of a bucket. They have no credentials, and no key id that a server repeats.

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
    in_one_line(causes.last().map_or("", String::as_str))
}

/// Returns what an error document of S3 says: its code, and its message.
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

const BUCKET: &str = "create the bucket, or correct its name in --blobs";
const CREDENTIALS: &str = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which have to permit reads, writes, deletions and listings";

/// Codes of a server for credentials that it does not accept.
const OF_CREDENTIALS: [&str; 5] =
    ["AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"];

/// Returns what a person can do about a failure of the start. The kind of the error does not tell
/// enough, because that of a listing is always the same.
pub(super) fn advice(error: &object_store::Error, reason: &str) -> &'static str {
    use object_store::Error as E;
    match error {
        _ if reason.starts_with("NoSuchBucket") => BUCKET,
        E::NotFound { .. } => BUCKET,
        _ if OF_CREDENTIALS.iter().any(|code| reason.starts_with(code)) => CREDENTIALS,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => CREDENTIALS,
        _ if reason.contains("scheme is not allowed") => {
            "give an https:// address in AWS_ENDPOINT_URL, or set AWS_ALLOW_HTTP=true on a network that is trusted as a whole"
        }
        _ => "check AWS_ENDPOINT_URL, AWS_REGION and the credentials, and whether the server can be reached",
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{advice, failure};

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
}
