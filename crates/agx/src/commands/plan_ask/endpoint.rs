//! The server of the model: its address, and requests over HTTP.

use std::{io, net::IpAddr, time::Duration};

use agenix_client::{TlsDefectKind, tls_defect};
use ureq::{
    Agent,
    http::{HeaderMap, HeaderName, HeaderValue, Uri, header},
    tls::{RootCerts, TlsConfig},
};

use super::{
    AskArgs,
    completion::{Completion, completion, error_text, max_answer_bytes},
    key::{KEY, ServerKey},
};
use crate::{
    error::{CliError, Result},
    util::{printable::one_line, shorten::shortened},
};

/// Advice about the address of the server.
const URL_HELP: &str = "set AGX_ASK_URL to a server with an API like that of OpenAI, and AGX_ASK_MODEL to one of its models: for an ollama on this \
                        machine, AGX_ASK_URL=http://127.0.0.1:11434/v1 AGX_ASK_MODEL=qwen3:8b; llama-server of llama.cpp listens on \
                        http://127.0.0.1:8080/v1";
/// Advice if the server cannot be reached.
const NO_CONNECTION: &str = "start the server of the model, or correct AGX_ASK_URL; agx uses no proxy";
/// Environment variable with the address.
const URL: &str = "AGX_ASK_URL";
/// Environment variable with the model.
const MODEL: &str = "AGX_ASK_MODEL";
/// Path of the operation, below the address of the server.
const OPERATION: &str = "/chat/completions";

/// Server that is asked, and the model there.
pub(super) struct Endpoint {
    uri: Uri,
    /// Host with its port, as the address has it.
    pub(super) host: String,
    pub(super) model: String,
    pub(super) key: ServerKey,
    /// Header with the key.
    authorization: Option<HeaderValue>,
    timeout: Duration,
}

/// Response of the server.
struct Response {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Endpoint {
    pub(super) fn new(args: &AskArgs) -> Result<Self> {
        let missing = |requirement: &str| CliError::usage(format!("--ask needs {requirement}"), URL_HELP);
        let url =
            set(args.ask_url.as_deref(), URL)?.ok_or_else(|| missing("a server: AGX_ASK_URL is not set"))?;
        let model = set(args.ask_model.as_deref(), MODEL)?
            .ok_or_else(|| missing("a model: AGX_ASK_MODEL is not set"))?;
        Self::at(&url, model, ServerKey::of_environment()?, Duration::from_secs(args.timeout_secs()))
    }

    fn at(url: &str, model: String, key: ServerKey, timeout: Duration) -> Result<Self> {
        let (uri, host) = address(url)
            .map_err(|reason| CliError::usage(format!("the address of the model {reason}"), URL_HELP))?;
        let authorization = key.header()?;
        Ok(Self { uri, host, model, key, authorization, timeout })
    }

    /// Returns what the user should know before the request.
    pub(super) fn warning(&self) -> Option<String> {
        let is_plain = self.uri.scheme_str() == Some("http") && !is_loopback(self.uri.host()?);
        let sent = if self.authorization.is_some() {
            "the text of --ask and the key go"
        } else {
            "the text of --ask goes"
        };
        is_plain.then(|| format!("{sent} to {} without encryption: use https if you can", self.host))
    }

    /// Sends the body of a request, and returns the completion.
    pub(super) async fn complete(&self, body: String) -> Result<Completion> {
        agenix_client::choose_cryptography();
        let (uri, authorization, agent) = (self.uri.clone(), self.authorization.clone(), agent(self.timeout));
        let sent = tokio::task::spawn_blocking(move || send(&agent, &uri, authorization, body));
        let response = match sent.await {
            Ok(sent) => sent.map_err(|error| self.failure(&error))?,
            Err(error) => return Err(no_answer(format!("the request failed: {error}"), "try again")),
        };
        if !(200..300).contains(&response.status) {
            return Err(self.status_failure(&response));
        }
        completion(&response.body).map_err(|failure| {
            let media =
                response.header(&header::CONTENT_TYPE).map(|media| format!(" ({})", self.shown(media)));
            let (media, reason) = (media.unwrap_or_default(), self.shown(&failure.reason));
            no_answer(format!("the answer of {}{media} {reason}", self.host), failure.help)
        })
    }

    /// Returns a text of the server for a message: its beginning, on one line and without the key.
    fn shown(&self, text: &str) -> String {
        shortened(&one_line(&self.key.masked(text)))
    }

    fn failure(&self, error: &ureq::Error) -> CliError {
        let host = &self.host;
        match error {
            ureq::Error::Timeout(_) => no_answer(
                format!("{host} has not answered within {} s", self.timeout.as_secs()),
                "give it longer with --ask-timeout TIME, or ask a smaller model",
            ),
            ureq::Error::BodyExceedsLimit(_) => no_answer(
                format!("the answer of {host} has more than {} bytes", max_answer_bytes()),
                "a plan is much shorter: is AGX_ASK_URL the address of a model?",
            ),
            ureq::Error::Io(error) => self.io_failure(error),
            error => self.no_connection(&error.to_string(), NO_CONNECTION),
        }
    }

    fn io_failure(&self, error: &io::Error) -> CliError {
        match tls_defect(&self.host, error) {
            Some(defect) => self.no_connection(&defect.reason, tls_help(defect.kind)),
            None => self.no_connection(&error.to_string(), NO_CONNECTION),
        }
    }

    fn no_connection(&self, reason: &str, help: &str) -> CliError {
        no_answer(format!("cannot ask the model at {}: {}", self.host, self.shown(reason)), help)
    }

    fn status_failure(&self, response: &Response) -> CliError {
        let host = &self.host;
        let reason =
            error_text(&response.body).map(|text| format!(": {}", self.shown(&text))).unwrap_or_default();
        let problem = format!("{host} answered with the status {}{reason}", response.status);
        match (response.status, response.header(&header::LOCATION)) {
            (300..400, Some(location)) => {
                let location = self.shown(location);
                no_answer(
                    problem,
                    format!("agx follows no redirection, and this one is to {location}: correct AGX_ASK_URL"),
                )
            }
            (401 | 403, _) => no_answer(problem, format!("set {KEY} to a key that {host} knows")),
            (404 | 405, _) => no_answer(
                problem,
                format!(
                    "AGX_ASK_MODEL has to be a model of {host}, and AGX_ASK_URL mostly ends with /v1; the request went to {}",
                    self.uri.path()
                ),
            ),
            (429, _) => no_answer(problem, "try again later"),
            (400..500, _) => no_answer(
                problem,
                "the server may lack structured outputs (response_format json_schema), or the context of the model is too short",
            ),
            _ => no_answer(problem, "look at the log of the model's server, and try again"),
        }
    }
}

impl Response {
    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Returns the value of an option, or else of its environment variable. An empty value counts as
/// not set.
fn set(option: Option<&str>, variable: &str) -> Result<Option<String>> {
    let value = match (option, std::env::var_os(variable).map(std::ffi::OsString::into_string)) {
        (Some(value), _) => Some(value.to_owned()),
        (None, None) => None,
        (None, Some(Ok(value))) => Some(value),
        (None, Some(Err(_))) => {
            return Err(CliError::usage(format!("{variable} is not UTF-8"), URL_HELP));
        }
    };
    Ok(value.filter(|value| !value.trim().is_empty()))
}

fn tls_help(kind: TlsDefectKind) -> &'static str {
    match kind {
        TlsDefectKind::NoTls => "for a server without TLS, AGX_ASK_URL begins with http://",
        TlsDefectKind::UnknownIssuer => {
            "add the CA to those of the system; on Linux, SSL_CERT_FILE names a file with the CAs to use instead"
        }
        TlsDefectKind::Time => "renew the server's certificate, and compare the clocks of both machines",
        TlsDefectKind::OtherName => "use a name of the certificate in AGX_ASK_URL",
        TlsDefectKind::Authority | TlsDefectKind::Certificate => "make another certificate for the server",
        TlsDefectKind::Handshake => "look at the certificate and the log of the model's server",
    }
}

fn no_answer(problem: String, help: impl Into<String>) -> CliError {
    CliError::NoAnswer { problem, help: help.into() }
}

/// Error of an address with another scheme, or without one.
const NO_SCHEME: &str = "does not begin with http:// or https://";

/// Returns the address of the operation, and the host with its port. The error is the end of a
/// sentence about the address, and does not quote it, because it may have a password.
fn address(url: &str) -> std::result::Result<(Uri, String), &'static str> {
    let base = url.trim().trim_end_matches('/');
    let base = base.strip_suffix(OPERATION).unwrap_or(base);
    if base.contains(['?', '#']) {
        return Err("has a query, and agx appends the path to it");
    }
    let (scheme, rest) = base.split_once("://").ok_or(NO_SCHEME)?;
    let scheme = scheme.to_ascii_lowercase();
    if !["http", "https"].contains(&scheme.as_str()) {
        return Err(NO_SCHEME);
    }
    let uri: Uri = format!("{scheme}://{rest}{OPERATION}").parse().map_err(|_| "is not a URL")?;
    let host =
        uri.authority().map(ToString::to_string).filter(|host| !host.is_empty()).ok_or("has no host")?;
    if host.contains('@') {
        return Err("has a user or a key: the key belongs in AGX_ASK_KEY");
    }
    Ok((uri, host))
}

fn is_loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Returns a client that contacts the host of the address and no other: it uses no proxy, and
/// follows no redirection.
fn agent(timeout: Duration) -> Agent {
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(timeout))
        .tls_config(tls)
        .user_agent(concat!("agx/", env!("CARGO_PKG_VERSION")));
    config.build().into()
}

fn send(
    agent: &Agent,
    uri: &Uri,
    authorization: Option<HeaderValue>,
    body: String,
) -> std::result::Result<Response, ureq::Error> {
    let mut request = agent.post(uri).header(header::CONTENT_TYPE, "application/json");
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let mut response = request.send(body)?;
    let status = response.status();
    let body = response.body_mut().with_config().limit(max_answer_bytes()).read_to_vec();
    // The status of a failure is more specific than an error in its text.
    let body = if status.is_success() { body? } else { body.unwrap_or_default() };
    Ok(Response { status: status.as_u16(), headers: response.headers().clone(), body })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Endpoint, ServerKey, address, is_loopback};

    #[test]
    fn operation_is_below_the_address() {
        for (url, uri, host) in [
            ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/chat/completions", "127.0.0.1:11434"),
            ("http://[::1]:8080/v1/ ", "http://[::1]:8080/v1/chat/completions", "[::1]:8080"),
            ("HTTP://LOCALHOST:1/v1", "http://LOCALHOST:1/v1/chat/completions", "LOCALHOST:1"),
            ("https://llm.example", "https://llm.example/chat/completions", "llm.example"),
            (
                "https://llm.example/v1/chat/completions",
                "https://llm.example/v1/chat/completions",
                "llm.example",
            ),
        ] {
            let (found, its_host) = address(url).unwrap();
            assert_eq!((found.to_string().as_str(), its_host.as_str()), (uri, host));
        }
    }

    #[test]
    fn wrong_addresses_are_refused_without_a_quotation() {
        for (url, reason) in [
            ("", "does not begin with http:// or https://"),
            ("127.0.0.1:11434", "does not begin with http:// or https://"),
            ("localhost/v1", "does not begin with http:// or https://"),
            ("http:///v1", "is not a URL"),
            ("ftp://host/v1", "does not begin with http:// or https://"),
            ("http://user:secret@host/v1", "has a user or a key"),
            ("http://host/v1?key=secret", "has a query"),
            ("http://ho st/v1", "is not a URL"),
        ] {
            let found = address(url).unwrap_err();
            assert!(found.starts_with(reason), "{url}: {found}");
            assert!(!found.contains("secret"));
        }
    }

    #[test]
    fn loopback_hosts_need_no_encryption() {
        assert!(
            ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]"]
                .into_iter()
                .all(is_loopback)
        );
        assert!(
            !["llm.example", "10.0.0.1", "localhost.example", "[::2]", "[::ffff:10.0.0.1]"]
                .into_iter()
                .any(is_loopback)
        );
    }

    #[test]
    fn warning_is_about_text_that_goes_elsewhere_without_encryption() {
        let of = |url: &str, key: &str| {
            Endpoint::at(url, "small".into(), ServerKey::new(key), Duration::from_secs(1)).unwrap().warning()
        };
        let text = "the text of --ask goes to llm.example without encryption: use https if you can";
        assert_eq!(of("http://llm.example/v1", "").as_deref(), Some(text));
        let both = of("HTTP://llm.example/v1", "sk-secret-1").unwrap();
        assert!(both.starts_with("the text of --ask and the key go to llm.example without"), "{both}");
        for url in ["https://llm.example/v1", "http://127.0.0.1:1/v1", "http://[::ffff:127.0.0.1]/v1"] {
            assert_eq!(of(url, "sk-secret-1"), None, "{url}");
        }
    }
}
