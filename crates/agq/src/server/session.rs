//! What a connection has said about itself, and the commands that only concern that: AUTH, HELLO, CLIENT.

use std::sync::Arc;

use agenix_protocol::{
    ids::{JobId, WorkerId},
    request::{Request, RequestError, name_of},
    resp::{Reply, RespVersion},
};
use bytes::Bytes;

use crate::{
    commands::Effect,
    house::{Caller, is_connection},
    key::SessionKey,
};

const NOAUTH: &str = "ERR NOAUTH Authentication required";
const WRONG_KEY: &str = "ERR Invalid session key";

/// The state of one connection.
pub(super) struct Session {
    key: Arc<SessionKey>,
    is_authenticated: bool,
    pub(super) caller: Arc<Caller>,
    /// The RESP to answer in.
    pub(super) version: RespVersion,
    /// Claims of which it is not known yet whether their replies arrived.
    pub(super) unproven: Vec<Unproven>,
}

/// A claim of which nobody knows whether it reached its claimant.
#[derive(Debug, Clone)]
pub(super) struct Unproven {
    pub(super) job_id: JobId,
    pub(super) holder: Arc<str>,
    pub(super) attempt: u32,
}

/// What to do with a command.
pub(super) enum Gate {
    /// This is its reply.
    Answer(Reply),
    /// Carry it out.
    Pass(Request),
}

impl Session {
    pub(super) fn new(connection: Arc<str>, key: Arc<SessionKey>) -> Self {
        let caller = Caller { connection, registered: None, name: None, is_introduced: false };
        let caller = Arc::new(caller);
        Self { key, is_authenticated: false, caller, version: RespVersion::Two, unproven: Vec::new() }
    }

    /// Reads a command and decides whether this connection may give it. Before AUTH only AUTH and HELLO are answered
    /// (seed 003 §4).
    pub(super) fn gate(&mut self, args: &[Bytes]) -> Result<Request, Reply> {
        let name = name_of(args);
        if name == "HELLO" || name == "CLIENT" {
            // Client libraries introduce themselves, whatever becomes of it; from then on they get Redis' shapes.
            self.change(|caller| caller.is_introduced = true);
        }
        if !self.is_authenticated && name != "AUTH" && name != "HELLO" {
            return Err(Reply::Error(NOAUTH.into()));
        }
        Request::parse(args).map_err(|error: RequestError| Reply::Error(error.line()))
    }

    /// Answers the commands that concern the session alone.
    pub(super) fn admit(&mut self, request: Request) -> Gate {
        Gate::Answer(match request {
            Request::Auth { key } => self.authenticate(&key),
            Request::Hello { version, auth, name } => self.hello(version, auth.as_ref(), name.as_ref()),
            Request::ClientSetName { name } => {
                self.take_name(&name);
                Reply::ok()
            }
            Request::ClientSetInfo => Reply::ok(),
            other => return Gate::Pass(other),
        })
    }

    fn authenticate(&mut self, key: &[u8]) -> Reply {
        if !self.key.matches(key) {
            return Reply::Error(WRONG_KEY.into());
        }
        self.is_authenticated = true;
        Reply::ok()
    }

    fn hello(&mut self, version: Option<RespVersion>, auth: Option<&Bytes>, name: Option<&Bytes>) -> Reply {
        if let Some(key) = auth
            && let refused @ Reply::Error(_) = self.authenticate(key)
        {
            return refused;
        }
        if let Some(name) = name {
            self.take_name(name);
        }
        self.version = version.unwrap_or(self.version);
        let proto = if self.version == RespVersion::Three { 3 } else { 2 };
        let field = |name: &'static str, value| (Reply::bulk(name), value);
        Reply::Map(vec![
            field("server", Reply::bulk("agq")),
            field("version", Reply::bulk(env!("CARGO_PKG_VERSION"))),
            field("proto", Reply::Integer(proto)),
            field("mode", Reply::bulk("standalone")),
            field("role", Reply::bulk("master")),
            field("modules", Reply::Array(Vec::new())),
        ])
    }

    /// A name that could be a worker's makes the connection speak for that worker (ADR 1); any other is just a name.
    fn take_name(&mut self, name: &[u8]) {
        let worker = std::str::from_utf8(name).ok().and_then(|name| WorkerId::new(name).ok());
        self.change(|caller| caller.name = worker);
    }

    /// What a command that was carried out means for the session.
    pub(super) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Registered(worker_id) => self.change(|caller| caller.registered = Some(worker_id)),
            Effect::Unregistered(worker_id) => self.change(|caller| {
                caller.registered = caller.registered.take().filter(|own| *own != worker_id);
            }),
            Effect::Claimed { job_id, holder, attempt } => {
                if let Some(worker) = WorkerId::new(&*holder).ok().filter(|_| !is_connection(&holder)) {
                    // Who has claimed as a worker never again claims as nobody.
                    self.change(|caller| caller.registered = Some(worker));
                }
                self.unproven.push(Unproven { job_id, holder, attempt });
            }
        }
    }

    fn change(&mut self, how: impl FnOnce(&mut Caller)) {
        how(Arc::make_mut(&mut self.caller));
    }
}
