//! MCP over HTTP: one path, one key, and no state between requests.
//!
//! The address is a loopback address, because the key would cross a network in the clear. rmcp
//! checks the header `Host`, so that no name that an attacker controls leads here (DNS rebinding),
//! and the header `Origin`, so that no page of another site is a client.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use agenix_client::Server;
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::{
    ServerHandler,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::sleep,
};

use crate::{
    ServeError,
    handler::{Handler, MAX_MESSAGE_BYTES},
    settings::McpServerSettings,
};

/// Path of the server.
const PATH: &str = "/mcp";

/// Pages that may be clients: those of this machine, such as inspectors, which need the key, too.
const ORIGINS: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];

/// Maximum number of connections. Further connections wait.
const MAX_CONNECTIONS: usize = 256;

/// Maximum time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a connection could not be accepted, because the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Service<H> = StreamableHttpService<H, NeverSessionManager>;

/// Listener of an MCP server, before it serves.
#[derive(Debug)]
pub struct HttpListener(TcpListener);

impl HttpListener {
    /// Listens on a loopback address.
    ///
    /// # Errors
    ///
    /// The address is no loopback address, or it is in use.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        if !address.ip().is_loopback() {
            return Err(ServeError(format!(
                "{address} is no loopback address, and the key would cross a network in the clear"
            )));
        }
        let listener = TcpListener::bind(address).await;
        listener.map(Self).map_err(|error| ServeError(format!("cannot listen on {address}: {error}")))
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        let address = self.0.local_addr().map_or_else(|_| String::new(), |address| address.to_string());
        format!("http://{address}{PATH}")
    }

    /// Serves until the process ends. `hosts` are further names that the header `Host` may have, as
    /// a proxy with TLS sends them.
    pub async fn serve(self, settings: McpServerSettings, hosts: Vec<String>) -> Infallible {
        let server = settings.server.clone();
        self.serve_handler(Handler::new(settings), Some(server), hosts).await
    }

    /// Serves with `handler`. Without a server, whose key clients send, clients need no key.
    pub(crate) async fn serve_handler<H>(
        self,
        handler: H,
        server: Option<Server>,
        hosts: Vec<String>,
    ) -> Infallible
    where
        H: ServerHandler + Clone,
    {
        let mut config = StreamableHttpServerConfig::default()
            .enforce_origin_validation()
            .with_allowed_origins(ORIGINS)
            .with_legacy_session_mode(false)
            .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
            .with_sse_retry(None);
        config.allowed_hosts.extend(hosts);
        let service = StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::new(NeverSessionManager::default()),
            config,
        );
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let permit = Arc::clone(&permits).acquire_owned().await;
            let Ok((stream, _peer)) = self.0.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (service, server) = (service.clone(), server.clone());
            tokio::spawn(async move {
                serve_connection(stream, service, server).await;
                drop(permit);
            });
        }
    }
}

async fn serve_connection<H: ServerHandler + Clone>(
    stream: TcpStream,
    service: Service<H>,
    server: Option<Server>,
) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let (service, refused) = (service.clone(), check(&request, server.as_ref()));
        async move {
            let reply = match refused {
                Ok(()) => service.handle(request).await,
                Err(status) => refusal(status),
            };
            Ok::<_, Infallible>(reply)
        }
    });
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    // A client that breaks its connection gets no reply.
    let _broken = connection.serve_connection(TokioIo::new(stream), answer).await;
}

/// Checks the path and the key of a request. The error is the status of the reply.
fn check(request: &Request<Incoming>, server: Option<&Server>) -> Result<(), StatusCode> {
    if request.uri().path() != PATH {
        return Err(StatusCode::NOT_FOUND);
    }
    let Some(server) = server else { return Ok(()) };
    let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    if bearer(given).is_some_and(|key| server.has_key(key)) { Ok(()) } else { Err(StatusCode::UNAUTHORIZED) }
}

/// Returns the key in `Bearer KEY`. The scheme may have any case (RFC 9110 §11.1).
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

fn refusal<B: Default>(status: StatusCode) -> Response<B> {
    let mut reply = Response::new(B::default());
    *reply.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::bearer;

    #[test]
    fn scheme_of_the_key_may_have_any_case() {
        for given in ["Bearer key", "bearer key", "BEARER  key"] {
            assert_eq!(bearer(given.as_bytes()), Some(&b"key"[..]), "{given}");
        }
        for given in ["", "Bearer", "Bearerkey", "Basic key", "key"] {
            assert_eq!(bearer(given.as_bytes()), None, "{given}");
        }
    }
}
