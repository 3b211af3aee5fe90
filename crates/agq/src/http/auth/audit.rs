//! Audit entries of requests.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{MatchedPath, RawPathParams},
    http::{Request, Response},
};

use crate::{
    app::AppState,
    auth::{
        audit_log::{AuditEntry, AuditedDecision, UNKNOWN_OUTCOME},
        keyring::Identity,
    },
    http::{
        form::may_change,
        peer::Peer,
        response::{ApiError, ChangedRecord},
    },
};

/// Entry of a request that may change something, but for reports of workers, as over RESP. Records
/// [`UNKNOWN_OUTCOME`] if it is dropped before the response.
pub(super) struct RequestAudit {
    app: Arc<AppState>,
    identity: Identity,
    command: String,
    /// Changed record, if the path names it.
    target: Option<String>,
    from: String,
    is_written: bool,
}

/// Maximum number of characters of a path in an entry. A longer path names no record, because an
/// id has at most 128 characters.
const MAX_PATH_CHARS: usize = 1024;

/// Routes, not paths, because a name in a path may be any of these words.
const WORKER_ROUTES: [&str; 12] = [
    "/ojs/v1/jobs/fetch",
    "/ojs/v1/jobs/{id}/ack",
    "/ojs/v1/jobs/{id}/nack",
    "/ojs/v1/jobs/{id}/fail",
    "/ojs/v1/jobs/{id}/progress",
    "/ojs/v1/workers/register",
    "/ojs/v1/workers/fetch",
    "/ojs/v1/workers/ack",
    "/ojs/v1/workers/nack",
    "/ojs/v1/workers/progress",
    "/ojs/v1/workers/heartbeat",
    "/ojs/v1/workers/beat",
];

impl RequestAudit {
    /// Returns the entry of `request`, or `None` for a request that is not recorded. The first of
    /// `params`, the parameters of the path, names the changed record.
    pub(super) fn of(
        app: &Arc<AppState>,
        identity: &Identity,
        request: &Request<Body>,
        params: Option<&RawPathParams>,
    ) -> Option<Self> {
        let shortened = |text: &str| text.chars().take(MAX_PATH_CHARS).collect::<String>();
        let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        let is_change =
            may_change(request.method()) && !route.is_some_and(|route| WORKER_ROUTES.contains(&route));
        (app.audit.is_on() && is_change).then(|| Self {
            app: Arc::clone(app),
            identity: identity.clone(),
            command: format!("{} {}", request.method(), shortened(request.uri().path())),
            target: params.and_then(|params| params.iter().next()).map(|(_, value)| shortened(value)),
            from: request.extensions().get::<Peer>().map_or_else(String::new, |peer| peer.shown.clone()),
            is_written: false,
        })
    }

    /// Appends the entry with the outcome. The response names the changed record if the path does
    /// not, as for a new job.
    pub(super) fn write(mut self, response: &Response<Body>) {
        let extensions = response.extensions();
        let refusal = extensions.get::<ApiError>();
        let outcome = refusal.map_or_else(|| "OK".to_owned(), |refusal| format!("ERR {}", refusal.message));
        let named = extensions.get::<ChangedRecord>().map(|record| record.0.as_str());
        self.is_written = true;
        self.put(named, &outcome, extensions.get::<AuditedDecision>());
    }

    fn put(&self, named: Option<&str>, outcome: &str, decision: Option<&AuditedDecision>) {
        self.app.audit.record(&AuditEntry {
            at: self.app.clock.now(),
            who: Some(&self.identity.name),
            role: Some(self.identity.role),
            from: &self.from,
            command: &self.command,
            target: self.target.as_deref().or(named),
            outcome,
            decision,
        });
    }
}

impl Drop for RequestAudit {
    fn drop(&mut self) {
        if !self.is_written {
            self.put(None, UNKNOWN_OUTCOME, None);
        }
    }
}
