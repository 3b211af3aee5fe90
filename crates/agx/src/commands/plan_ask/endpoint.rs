//! The server of the model: its address, and requests over HTTP.

use std::{net::IpAddr, time::Duration};

use ureq::{
    Agent,
    http::{HeaderMap, HeaderValue, Uri, header},
    tls::{RootCerts, TlsConfig},
};

use super::{
    AskArgs,
    answer::{Completion, completion, error_text},
};
use crate::{
    error::{CliError, Result},
    util::{printable::one_line, shorten::shortened},
};

/// Environment variable with the key for the server. There is no option for it, because other
/// users of the machine could read an option.
const KEY: &str = "AGX_ASK_KEY";
/// Advice about the address of the server.
const URL_HELP: &str = "set AGX_ASK_URL to a server with an API like that of OpenAI, and AGX_ASK_MODEL to one of its models: for an ollama on this \
                        machine, AGX_ASK_URL=http://127.0.0.1:11434/v1 AGX_ASK_MODEL=qwen3:8b; llama-server of llama.cpp listens on \
                        http://127.0.0.1:8080/v1";
/// Maximum number of bytes of an answer. A plan has at most as many.
const MAX_ANSWER_BYTES: u64 = 1024 * 1024;
/// Path of the operation, below the address of the server.
const OPERATION: &str = "/chat/completions";

/// Server that is asked, and the model there.
pub(super) struct Endpoint {
    uri: Uri,
    /// Host with its port, as the address has it.
    pub(super) host: String,
    pub(super) model: String,
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
        let missing = |what: &str| CliError::usage(format!("--ask needs {what}"), URL_HELP);
        let url = args.ask_url.as_deref().ok_or_else(|| missing("a server: AGX_ASK_URL is not set"))?;
        let model = args.ask_model.clone().ok_or_else(|| missing("a model: AGX_ASK_MODEL is not set"))?;
        let (uri, host) = address(url)
            .map_err(|reason| CliError::usage(format!("the address of the model {reason}"), URL_HELP))?;
        let key = std::env::var(KEY).ok().map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        let authorization = key.as_deref().map(bearer).transpose()?;
        let timeout = Duration::from_secs(args.timeout_secs());
        Ok(Self { uri, host, model, authorization, timeout })
    }

    /// Returns what the user should know before the request.
    pub(super) fn warning(&self) -> Option<String> {
        let is_plain = self.uri.scheme_str() == Some("http") && !is_loopback(self.uri.host()?);
        let what = if self.authorization.is_some() {
            "the text of --ask and the key go"
        } else {
            "the text of --ask goes"
        };
        is_plain.then(|| format!("{what} to {} without encryption: use https if you can", self.host))
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
        completion(&response.body).map_err(|reason| {
            let media = response.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
            let media = media.map(|media| format!(" ({})", shortened(&one_line(media)))).unwrap_or_default();
            no_answer(
                format!("the answer of {}{media} {reason}", self.host),
                "AGX_ASK_URL is the address of an API like that of OpenAI, which mostly ends with /v1; if it is, try again",
            )
        })
    }

    fn failure(&self, error: &ureq::Error) -> CliError {
        let host = &self.host;
        match error {
            ureq::Error::Timeout(_) => no_answer(
                format!("{host} has not answered within {} s", self.timeout.as_secs()),
                "give it longer with --ask-timeout TIME, or ask a smaller model",
            ),
            ureq::Error::BodyExceedsLimit(_) => no_answer(
                format!("the answer of {host} has more than {MAX_ANSWER_BYTES} bytes"),
                "a plan is much shorter: is AGX_ASK_URL the address of a model?",
            ),
            error => {
                let reason = match error {
                    ureq::Error::Io(error) => error.to_string(),
                    error => error.to_string(),
                };
                no_answer(
                    format!("cannot ask the model at {host}: {}", shortened(&one_line(&reason))),
                    "start the server of the model, or correct AGX_ASK_URL; agx uses no proxy",
                )
            }
        }
    }

    fn status_failure(&self, response: &Response) -> CliError {
        let host = &self.host;
        let reason = error_text(&response.body).map(|text| format!(": {text}")).unwrap_or_default();
        let what = format!("{host} answered with the status {}{reason}", response.status);
        let location = response.headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
        match (response.status, location) {
            (300..400, Some(location)) => {
                let location = shortened(&one_line(location));
                no_answer(
                    what,
                    format!("agx follows no redirection, and this one is to {location}: correct AGX_ASK_URL"),
                )
            }
            (401 | 403, _) => no_answer(what, format!("set {KEY} to a key that {host} knows")),
            (404 | 405, _) => no_answer(
                what,
                format!(
                    "AGX_ASK_MODEL has to be a model of {host}, and AGX_ASK_URL mostly ends with /v1; the request went to {}",
                    self.uri.path()
                ),
            ),
            (429, _) => no_answer(what, "try again later"),
            (400..500, _) => no_answer(
                what,
                "the server may lack structured outputs (response_format json_schema), or the context of the model is too short",
            ),
            _ => no_answer(what, "look at the log of the model's server, and try again"),
        }
    }
}

fn no_answer(what: String, help: impl Into<String>) -> CliError {
    CliError::NoAnswer { what, help: help.into() }
}

/// Returns the address of the operation, and the host with its port. The error is the end of a
/// sentence about the address, and does not quote it, because it may have a password.
fn address(url: &str) -> std::result::Result<(Uri, String), &'static str> {
    let base = url.trim().trim_end_matches('/');
    let base = base.strip_suffix(OPERATION).unwrap_or(base);
    if base.contains(['?', '#']) {
        return Err("has a query, and agx appends the path to it");
    }
    if !["http://", "https://"].iter().any(|scheme| base.starts_with(scheme)) {
        return Err("does not begin with http:// or https://");
    }
    let uri: Uri = format!("{base}{OPERATION}").parse().map_err(|_| "is not a URL")?;
    let host =
        uri.authority().map(ToString::to_string).filter(|host| !host.is_empty()).ok_or("has no host")?;
    if host.contains('@') {
        return Err("has a user or a key: the key belongs into AGX_ASK_KEY");
    }
    Ok((uri, host))
}

fn is_loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Returns the header with the key.
fn bearer(key: &str) -> Result<HeaderValue> {
    let header = HeaderValue::from_str(&format!("Bearer {key}"));
    let mut header = header.map_err(|_| {
        CliError::usage(
            format!("{KEY} has characters that no key has"),
            "set it to the key alone, in one line",
        )
    })?;
    header.set_sensitive(true);
    Ok(header)
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
    let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec()?;
    Ok(Response { status: response.status().as_u16(), headers: response.headers().clone(), body })
}

#[cfg(test)]
mod tests {
    use super::{address, bearer, is_loopback};

    #[test]
    fn operation_is_below_the_address() {
        for (url, uri, host) in [
            ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/chat/completions", "127.0.0.1:11434"),
            ("http://[::1]:8080/v1/ ", "http://[::1]:8080/v1/chat/completions", "[::1]:8080"),
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
        assert!(["localhost", "127.0.0.1", "127.1.2.3", "[::1]"].into_iter().all(is_loopback));
        assert!(!["llm.example", "10.0.0.1", "localhost.example", "[::2]"].into_iter().any(is_loopback));
    }

    #[test]
    fn key_is_not_shown() {
        let header = bearer("secret").unwrap();
        assert_eq!(format!("{header:?}"), "Sensitive");
        let error = bearer("sec\nret").unwrap_err();
        assert!(!format!("{error:?}").contains("ret\""), "{error:?}");
    }
}
