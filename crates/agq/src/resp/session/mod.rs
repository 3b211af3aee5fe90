//! Session of a RESP connection: identity, version, transaction and subscriptions. The session
//! answers the commands that concern only itself: AUTH, HELLO, CLIENT, MULTI, SUBSCRIBE.

mod introduction;

use std::{net::IpAddr, sync::Arc, time::Duration};

use agenix_protocol::{
    ids::WorkerId,
    request::{Command, Request, RequestError},
    reserved_keys::is_reserved,
    resp::{Reply, RespVersion},
};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;
use tracing::warn;

use super::{
    auth_errors::{WRONG_KEY, no_key},
    dispatch::{self, QueuedCommand},
    outcome::Effect,
    subscriptions::Subscriptions,
    transaction::Transaction,
    unacked_claims::UnackedClaims,
};
use crate::{
    app::{AppState, Caller, connection_name, is_connection},
    auth::{
        audit_log::AuditEntry,
        keyring::{Identity, Role},
    },
    net::{access_control::AccessControl, listener::ClientStream},
    registry::{connections, pubsub::SubscriptionKind},
};

pub(crate) struct RespSession {
    app: Arc<AppState>,
    access_control: Arc<AccessControl>,
    ip: Option<IpAddr>,
    pub(crate) caller: Arc<Caller>,
    pub(crate) version: RespVersion,
    pub(crate) unacked_claims: UnackedClaims,
    pub(crate) subscriptions: Subscriptions,
    transaction: Option<Transaction>,
    name: Bytes,
    /// Identity by the client's certificate, also after RESET.
    certified: Option<Identity>,
}

/// Next step for an authorized command.
pub(crate) enum SessionAction {
    Answer(Reply),
    Delay(Reply, Duration),
    /// Send the reply when all submitted writes have been applied.
    AfterWrites(Reply),
    Quit(Reply),
    Pass(&'static Command, Request),
    /// Carry out the commands in one write.
    Transaction(Vec<QueuedCommand>),
}

impl RespSession {
    pub(crate) fn new(
        accepted: &mut ClientStream,
        number: u64,
        app: Arc<AppState>,
        access_control: Arc<AccessControl>,
    ) -> Self {
        let (connection, certified) = (connection_name(app.store.node(), number), accepted.certified.take());
        let mut caller = Caller::new(connection, number, &accepted.shown, certified.clone());
        caller.process = accepted.process;
        let user = caller.identity.as_ref().map(|identity| Arc::clone(&identity.name)).unwrap_or_default();
        let from = Arc::clone(&caller.from);
        let entry =
            connections::ConnectionInfo { from, user, resp: 2, since: app.clock.now(), ..Default::default() };
        app.connections.add(number, entry);
        Self {
            subscriptions: Subscriptions::new(number),
            app,
            access_control,
            ip: accepted.ip,
            caller: Arc::new(caller),
            version: RespVersion::Two,
            unacked_claims: UnackedClaims::default(),
            transaction: None,
            name: Bytes::new(),
            certified,
        }
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.caller.identity.is_some()
    }

    /// Before the authentication, only AUTH, HELLO, QUIT and RESET are permitted (RESP spec §4).
    pub(crate) fn authorize(&mut self, args: &[Bytes]) -> Result<(&'static Command, Request), Reply> {
        let known = Command::of(args);
        let name = known.map_or("", |command| command.name);
        self.app.connections.count_command();
        // The specification's AUTH has no user name.
        let has_user_name = name == "AUTH" && args.len() == 3 && args[1].eq_ignore_ascii_case(b"default");
        if name == "HELLO" || name == "CLIENT" || has_user_name {
            // Client libraries send these commands, and get the replies of Redis from now on, even
            // after an error.
            self.change(|caller| caller.is_introduced = true);
        }
        if !self.is_authenticated() && !matches!(name, "AUTH" | "HELLO" | "QUIT" | "RESET") {
            let text = no_key(self.app.settings.auth_errors, self.caller.is_introduced, args);
            return Err(Reply::Error(text.into()));
        }
        let copied: Vec<Bytes>;
        let args = if self.transaction.is_some() {
            // Copy the bytes, because a slice in the transaction would keep the whole read buffer
            // alive.
            copied = args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect();
            copied.as_slice()
        } else {
            args
        };
        let parsed = Request::parse_known(known, args).map_err(|error: RequestError| error.line());
        let allowed = parsed.and_then(|(command, request)| match self.allow(command, &request) {
            Ok(()) => Ok((command, request)),
            Err(line) => {
                crate::resp::audit::record_refusal(&self.app, &self.caller, command, &request, &line);
                Err(line)
            }
        });
        allowed.map_err(|line| match &mut self.transaction {
            Some(transaction) => transaction.refuse(known, args, line),
            None => Reply::Error(line),
        })
    }

    /// Returns the error line if the role or the state of the session does not permit the command.
    fn allow(&self, command: &Command, request: &Request) -> Result<(), String> {
        if let Some(identity) = &self.caller.identity
            && !identity.role.may_use(command)
        {
            return Err(identity.role.refusal(command).line());
        }
        if self.caller.identity.as_ref().is_some_and(|identity| identity.role == Role::Worker)
            && let Some(key) = users_key(request)
        {
            let key = String::from_utf8_lossy(key).escape_debug().to_string();
            let text = format!("This key is a worker's and may not use {} on {key}", command.name);
            return Err(Rejection::NotPermitted(text).line());
        }
        if self.version == RespVersion::Two
            && self.subscriptions.is_listening()
            && !is_permitted_for_subscriber(command.name)
        {
            let name = command.name.to_ascii_lowercase();
            return Err(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
            ));
        }
        Ok(())
    }

    /// Answers a command that concerns the session alone, and passes any other command on.
    pub(crate) fn handle(&mut self, command: &'static Command, request: Request) -> SessionAction {
        if let Some(transaction) = &mut self.transaction
            && let Some(reply) = transaction.take(command, &request)
        {
            return SessionAction::Answer(reply);
        }
        match request {
            Request::Auth { key } => match self.authenticate(&key.0) {
                Ok(()) => SessionAction::Answer(Reply::ok()),
                Err(delay) => self.wrong_key(delay),
            },
            Request::Hello { version, auth, name } => {
                self.hello(version, auth.as_ref().map(|key| &key.0), name.as_ref())
            }
            Request::Client(client) => SessionAction::Answer(self.client(client)),
            Request::Select => SessionAction::Answer(Reply::ok()),
            Request::Quit => SessionAction::Quit(Reply::ok()),
            Request::Reset => SessionAction::Answer(self.reset()),
            Request::Multi => SessionAction::Answer(self.begin_transaction()),
            Request::Discard => SessionAction::Answer(match self.transaction.take() {
                Some(_) => Reply::ok(),
                None => Reply::Error("ERR DISCARD without MULTI".into()),
            }),
            Request::Exec => match self.transaction.take().map(Transaction::end) {
                None => SessionAction::Answer(Reply::Error("ERR EXEC without MULTI".into())),
                Some(Err(line)) => SessionAction::Answer(Reply::Error(line)),
                Some(Ok(queued)) => SessionAction::Transaction(queued),
            },
            Request::Ping { message }
                if self.version == RespVersion::Two && self.subscriptions.is_listening() =>
            {
                SessionAction::Answer(Reply::bulks([Bytes::from("pong"), message.unwrap_or_default()]))
            }
            Request::Ping { message } => SessionAction::Answer(dispatch::pong(message)),
            Request::Subscribe { channels } => self.subscribe(SubscriptionKind::Name, channels),
            Request::PSubscribe { patterns } => self.subscribe(SubscriptionKind::Pattern, patterns),
            Request::Unsubscribe { channels } => self.unsubscribe(SubscriptionKind::Name, channels),
            Request::PUnsubscribe { patterns } => self.unsubscribe(SubscriptionKind::Pattern, patterns),
            other => SessionAction::Pass(command, other),
        }
    }

    fn subscribe(&mut self, by: SubscriptionKind, names: Vec<Bytes>) -> SessionAction {
        SessionAction::AfterWrites(self.subscriptions.subscribe(&self.app, by, names))
    }

    fn unsubscribe(&mut self, by: SubscriptionKind, names: Vec<Bytes>) -> SessionAction {
        SessionAction::Answer(self.subscriptions.unsubscribe(&self.app, by, names))
    }

    /// Returns the delay of the reply to a wrong key. A valid key is accepted after any number of
    /// wrong keys, because one misconfigured client could otherwise lock out all workers of its
    /// machine.
    fn authenticate(&mut self, key: &[u8]) -> Result<(), Duration> {
        let Some(identity) = self.access_control.keyring.identify(key) else {
            let now = self.app.clock.now();
            let delay = self.access_control.auth_guard.wrong_key(self.ip, now);
            if !delay.is_zero() {
                warn!(from = %self.caller.from, delay_ms = delay.as_millis(), "many wrong session keys from one address");
            }
            self.app.audit.record(&AuditEntry::wrong_key(now, &self.caller.from));
            return Err(delay);
        };
        self.identify(Some(identity));
        Ok(())
    }

    fn wrong_key(&self, delay: Duration) -> SessionAction {
        let text = WRONG_KEY.text(self.app.settings.auth_errors, self.caller.is_introduced);
        SessionAction::Delay(Reply::Error(text.into()), delay)
    }

    fn identify(&mut self, identity: Option<Identity>) {
        let user = identity.as_ref().map(|identity| Arc::clone(&identity.name)).unwrap_or_default();
        self.app.connections.update(self.caller.number, |entry| entry.user = user);
        self.change(|caller| caller.identity = identity);
    }

    fn begin_transaction(&mut self) -> Reply {
        if self.transaction.is_some() {
            return Reply::Error("ERR MULTI calls can not be nested".into());
        }
        self.transaction = Some(Transaction::new(self.app.settings.limits));
        Reply::ok()
    }

    /// RESET: resets the session, except for the worker that registered on it.
    fn reset(&mut self) -> Reply {
        self.transaction = None;
        self.subscriptions.leave(&self.app);
        self.version = RespVersion::Two;
        self.name = Bytes::new();
        self.identify(self.certified.clone());
        self.app.connections.update(self.caller.number, |entry| {
            (entry.name, entry.resp) = (String::new(), 2);
        });
        self.change(|caller| (caller.name, caller.is_introduced) = (None, false));
        Reply::Simple("RESET".into())
    }

    pub(crate) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::None | Effect::Quit => {}
            Effect::Registered(worker_id) => self.change(|caller| caller.registered = Some(worker_id)),
            Effect::Unregistered(worker_id) => self.change(|caller| {
                caller.registered = caller.registered.take().filter(|own| *own != worker_id);
            }),
            Effect::Claimed(claims) => {
                // A connection that has claimed as a worker claims as that worker from now on.
                let holder = claims.first().map(|claim| &*claim.holder).filter(|name| !is_connection(name));
                if let Some(worker) = holder.and_then(|name| WorkerId::new(name).ok()) {
                    self.change(|caller| caller.registered = Some(worker));
                }
                claims.into_iter().for_each(|claim| self.unacked_claims.push(claim));
            }
        }
    }

    pub(crate) fn close(&mut self) {
        self.subscriptions.leave(&self.app);
        self.app.connections.remove(self.caller.number);
    }

    fn change(&mut self, change: impl FnOnce(&mut Caller)) {
        change(Arc::make_mut(&mut self.caller));
    }
}

/// Returns the user's key that a request names. Workers may not use users' keys.
fn users_key(request: &Request) -> Option<&Bytes> {
    match request {
        Request::Key(command) => command.keys().find(|key| !is_reserved(key)),
        Request::BlockingPop(pop) => pop.keys.iter().find(|key| !is_reserved(key)),
        _ => None,
    }
}

/// RESP2 cannot distinguish other replies from messages.
fn is_permitted_for_subscriber(name: &str) -> bool {
    const PERMITTED: [&str; 7] =
        ["SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "PING", "QUIT", "RESET"];
    PERMITTED.contains(&name)
}
