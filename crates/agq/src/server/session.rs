//! What a connection has said about itself, and the commands that only concern that: AUTH, HELLO, CLIENT, MULTI, SUBSCRIBE.

use std::{net::IpAddr, sync::Arc, time::Duration};

use agenix_protocol::{
    ids::WorkerId,
    names::is_reserved,
    request::{ClientCommand, Command, Request, RequestError},
    resp::{Reply, RespVersion},
};
use bytes::Bytes;
use tracing::warn;

use super::{
    auth_errors::{AuthError, NO_KEY, WRONG_KEY},
    door::Door,
    listen::Accepted,
    subscriptions::Subscriptions,
    transaction::Transaction,
    unproven::{Unproven, UnprovenClaims},
};
use crate::{
    app::{Caller, House, connection_name, is_connection},
    auth::{
        audit_log,
        keyring::{Identity, Role},
    },
    commands::{self, Effect, Queued},
    registry::{connections, pubsub::By},
};

/// The state of one connection.
pub(super) struct Session {
    house: Arc<House>,
    door: Arc<Door>,
    ip: Option<IpAddr>,
    pub(super) caller: Arc<Caller>,
    /// The RESP to answer in.
    pub(super) version: RespVersion,
    /// Claims of which it is not known yet whether their replies arrived.
    pub(super) unproven: UnprovenClaims,
    pub(super) subscriptions: Subscriptions,
    transaction: Option<Transaction>,
    name: Bytes,
    /// Who it is by its certificate: it is that again after RESET.
    certified: Option<Identity>,
}

/// What to do with a command.
pub(super) enum Gate {
    /// This is its reply.
    Answer(Reply),
    /// This is its reply, after a while.
    Delay(Reply, Duration),
    /// This is its reply, when every change that is under way has been made.
    Settled(Reply),
    /// This is the last reply.
    Quit(Reply),
    /// Carry it out.
    Pass(&'static Command, Request),
    /// Carry all of these out as one.
    Transaction(Vec<Queued>),
}

impl Session {
    pub(super) fn new(accepted: &mut Accepted, number: u64, house: Arc<House>, door: Arc<Door>) -> Self {
        let caller = Caller {
            connection: connection_name(house.store.node(), number),
            number,
            from: accepted.shown.as_str().into(),
            identity: accepted.certified.clone(),
            registered: None,
            name: None,
            is_introduced: false,
        };
        let user = caller.identity.as_ref().map(|identity| Arc::clone(&identity.name)).unwrap_or_default();
        let from = Arc::clone(&caller.from);
        let entry =
            connections::Entry { from, user, resp: 2, since: house.clock.now(), ..Default::default() };
        house.directory.enter(number, entry);
        Self {
            subscriptions: Subscriptions::new(number),
            house,
            door,
            ip: accepted.ip,
            caller: Arc::new(caller),
            version: RespVersion::Two,
            unproven: UnprovenClaims::default(),
            transaction: None,
            name: Bytes::new(),
            certified: accepted.certified.take(),
        }
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.caller.identity.is_some()
    }

    /// Reads a command and decides whether this connection may give it. Before AUTH only AUTH and HELLO are answered
    /// (RESP spec §4).
    pub(super) fn gate(&mut self, args: &[Bytes]) -> Result<(&'static Command, Request), Reply> {
        let known = Command::of(args);
        let name = known.map_or("", |command| command.name);
        self.house.directory.count_command();
        // The specification's AUTH has no user name.
        let has_user_name = name == "AUTH" && args.len() == 3 && args[1].eq_ignore_ascii_case(b"default");
        if name == "HELLO" || name == "CLIENT" || has_user_name {
            // Client libraries introduce themselves, whatever becomes of it; from then on they get Redis' shapes.
            self.change(|caller| caller.is_introduced = true);
        }
        if !self.is_authenticated() && !matches!(name, "AUTH" | "HELLO" | "QUIT" | "RESET") {
            return Err(Reply::Error(self.text_of(&NO_KEY).into()));
        }
        let parsed = Request::parse_known(known, args).map_err(|error: RequestError| error.line());
        let allowed = parsed.and_then(|(command, request)| match self.allow(command, &request) {
            Ok(()) => Ok((command, request)),
            Err(line) => {
                commands::record_refusal(&self.house, &self.caller, command, &request, &line);
                Err(line)
            }
        });
        allowed.map_err(|line| match &mut self.transaction {
            Some(transaction) => transaction.refuse(known, args, line),
            None => Reply::Error(line),
        })
    }

    /// Whether this key may use this command, and may do so now.
    fn allow(&self, command: &Command, request: &Request) -> Result<(), String> {
        if let Some(identity) = &self.caller.identity
            && !identity.role.allows(command.access)
        {
            let whose = identity.role.with_article();
            return Err(format!("NOPERM This key is {whose}'s and may not use {}", command.name));
        }
        if self.caller.identity.as_ref().is_some_and(|identity| identity.role == Role::Worker)
            && let Some(key) = users_key(request)
        {
            let key = String::from_utf8_lossy(key).escape_debug().to_string();
            return Err(format!("NOPERM This key is a worker's and may not use {} on {key}", command.name));
        }
        if self.version == RespVersion::Two
            && self.subscriptions.is_listening()
            && !is_fit_for_listener(command.name)
        {
            let name = command.name.to_ascii_lowercase();
            return Err(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
            ));
        }
        Ok(())
    }

    /// Answers the commands that concern the session alone.
    pub(super) fn admit(&mut self, command: &'static Command, request: Request) -> Gate {
        if let Some(transaction) = &mut self.transaction
            && let Some(reply) = transaction.take(command, &request)
        {
            return Gate::Answer(reply);
        }
        match request {
            Request::Auth { key } => match self.authenticate(&key.0) {
                Ok(()) => Gate::Answer(Reply::ok()),
                Err(delay) => self.wrong_key(delay),
            },
            Request::Hello { version, auth, name } => {
                self.hello(version, auth.as_ref().map(|key| &key.0), name.as_ref())
            }
            Request::Client(client) => Gate::Answer(self.client(client)),
            Request::Select => Gate::Answer(Reply::ok()),
            Request::Quit => Gate::Quit(Reply::ok()),
            Request::Reset => Gate::Answer(self.reset()),
            Request::Multi => Gate::Answer(self.begin_transaction()),
            Request::Discard => Gate::Answer(match self.transaction.take() {
                Some(_) => Reply::ok(),
                None => Reply::Error("ERR DISCARD without MULTI".into()),
            }),
            Request::Exec => match self.transaction.take().map(Transaction::end) {
                None => Gate::Answer(Reply::Error("ERR EXEC without MULTI".into())),
                Some(Err(line)) => Gate::Answer(Reply::Error(line)),
                Some(Ok(queued)) => Gate::Transaction(queued),
            },
            Request::Ping { message }
                if self.version == RespVersion::Two && self.subscriptions.is_listening() =>
            {
                Gate::Answer(Reply::bulks([Bytes::from("pong"), message.unwrap_or_default()]))
            }
            Request::Ping { message } => Gate::Answer(commands::pong(message)),
            Request::Subscribe { channels } => {
                Gate::Settled(self.subscriptions.subscribe(&self.house, By::Name, channels))
            }
            Request::PSubscribe { patterns } => {
                Gate::Settled(self.subscriptions.subscribe(&self.house, By::Pattern, patterns))
            }
            Request::Unsubscribe { channels } => {
                Gate::Answer(self.subscriptions.unsubscribe(&self.house, By::Name, channels))
            }
            Request::PUnsubscribe { patterns } => {
                Gate::Answer(self.subscriptions.unsubscribe(&self.house, By::Pattern, patterns))
            }
            other => Gate::Pass(command, other),
        }
    }

    /// Proves who the client is; on a wrong key, how long its answer waits. A right key passes at once, whatever was tried
    /// before: one misconfigured client must not lock out every worker of its machine.
    fn authenticate(&mut self, key: &[u8]) -> Result<(), Duration> {
        let Some(identity) = self.door.keyring.identify(key) else {
            let now = self.house.clock.now();
            let delay = self.door.auth_guard.wrong_key(self.ip, now);
            if !delay.is_zero() {
                warn!(from = %self.caller.from, delay_ms = delay.as_millis(), "many wrong session keys come from here");
            }
            self.house.audit.record(&audit_log::Entry {
                at: now,
                who: None,
                role: None,
                from: &self.caller.from,
                command: "AUTH",
                target: None,
                outcome: WRONG_KEY.plain,
            });
            return Err(delay);
        };
        self.identify(Some(identity));
        Ok(())
    }

    fn text_of(&self, error: &AuthError) -> &'static str {
        error.text(self.house.settings.auth_errors, self.caller.is_introduced)
    }

    fn wrong_key(&self, delay: Duration) -> Gate {
        Gate::Delay(Reply::Error(self.text_of(&WRONG_KEY).into()), delay)
    }

    fn identify(&mut self, identity: Option<Identity>) {
        let user = identity.as_ref().map(|identity| Arc::clone(&identity.name)).unwrap_or_default();
        self.house.directory.note(self.caller.number, |entry| entry.user = user);
        self.change(|caller| caller.identity = identity);
    }

    fn hello(&mut self, version: Option<RespVersion>, auth: Option<&Bytes>, name: Option<&Bytes>) -> Gate {
        if let Some(key) = auth
            && let Err(delay) = self.authenticate(key)
        {
            return self.wrong_key(delay);
        }
        if let Some(name) = name
            && let Err(reply) = self.take_name(name)
        {
            return Gate::Answer(reply);
        }
        self.version = version.unwrap_or(self.version);
        let proto = if self.version == RespVersion::Three { 3 } else { 2 };
        self.house.directory.note(self.caller.number, |entry| entry.resp = proto);
        let field = |name: &'static str, value| (Reply::bulk(name), value);
        Gate::Answer(Reply::Map(vec![
            field("server", Reply::bulk("agq")),
            field("version", Reply::bulk(env!("CARGO_PKG_VERSION"))),
            field("proto", Reply::Integer(proto.into())),
            field("id", Reply::Integer(self.caller.number.cast_signed())),
            field("mode", Reply::bulk("standalone")),
            field("role", Reply::bulk("master")),
            field("modules", Reply::Array(Vec::new())),
        ]))
    }

    fn client(&mut self, client: ClientCommand) -> Reply {
        let (number, now) = (self.caller.number, self.house.clock.now());
        match client {
            ClientCommand::SetName(name) => match self.take_name(&name) {
                Ok(()) => Reply::ok(),
                Err(refusal) => refusal,
            },
            ClientCommand::GetName if self.name.is_empty() => Reply::Nil,
            ClientCommand::GetName => Reply::Bulk(self.name.clone()),
            ClientCommand::Id => Reply::Integer(number.cast_signed()),
            ClientCommand::Info => Reply::bulk(self.house.directory.lines(Some(number), now)),
            ClientCommand::List => {
                let is_admin =
                    self.caller.identity.as_ref().is_some_and(|identity| identity.role == Role::Admin);
                // Who else is there is the business of those who may do everything.
                Reply::bulk(self.house.directory.lines((!is_admin).then_some(number), now))
            }
            ClientCommand::SetInfo { attribute, value } => self.set_info(&attribute, &value),
        }
    }

    fn set_info(&self, attribute: &[u8], value: &[u8]) -> Reply {
        let Some(value) = printable(value) else {
            return Reply::Error(
                "ERR lib-name cannot contain spaces, newlines or special characters.".into(),
            );
        };
        self.house.directory.note(self.caller.number, |entry| {
            match attribute.to_ascii_lowercase().as_slice() {
                b"lib-name" => entry.library = value,
                b"lib-ver" => entry.library_version = value,
                _ => {}
            }
        });
        Reply::ok()
    }

    /// A name that could be a worker's makes the connection speak for that worker (ADR 1); any other is just a name.
    fn take_name(&mut self, name: &Bytes) -> Result<(), Reply> {
        let Some(shown) = printable(name) else {
            let text = "ERR Client names cannot contain spaces, newlines or special characters.";
            return Err(Reply::Error(text.into()));
        };
        self.name = name.clone();
        let worker = WorkerId::new(shown.as_str()).ok();
        self.house.directory.note(self.caller.number, |entry| entry.name = shown);
        self.change(|caller| caller.name = worker);
        Ok(())
    }

    fn begin_transaction(&mut self) -> Reply {
        if self.transaction.is_some() {
            return Reply::Error("ERR MULTI calls can not be nested".into());
        }
        self.transaction = Some(Transaction::new(self.house.settings.limits.max_message_bytes));
        Reply::ok()
    }

    /// RESET: as new, but for the worker that registered here.
    fn reset(&mut self) -> Reply {
        self.transaction = None;
        self.subscriptions.leave(&self.house);
        self.version = RespVersion::Two;
        self.name = Bytes::new();
        self.identify(self.certified.clone());
        self.house.directory.note(self.caller.number, |entry| {
            (entry.name, entry.resp) = (String::new(), 2);
        });
        self.change(|caller| (caller.name, caller.is_introduced) = (None, false));
        Reply::Simple("RESET".into())
    }

    /// What a command that was carried out means for the session.
    pub(super) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::None | Effect::Quit => {}
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

    /// The connection is closed.
    pub(super) fn close(&mut self) {
        self.subscriptions.leave(&self.house);
        self.house.directory.leave(self.caller.number);
    }

    fn change(&mut self, how: impl FnOnce(&mut Caller)) {
        how(Arc::make_mut(&mut self.caller));
    }
}

/// The first key of users that a request names: a worker has no business there.
fn users_key(request: &Request) -> Option<&Bytes> {
    match request {
        Request::Key(command) => command.keys().find(|key| !is_reserved(key)),
        Request::BlockingPop(pop) => pop.keys.iter().find(|key| !is_reserved(key)),
        _ => None,
    }
}

/// What a connection may do in RESP2 while it listens: there, nothing would tell a reply from a message.
fn is_fit_for_listener(name: &str) -> bool {
    const FIT: [&str; 7] =
        ["SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "PING", "QUIT", "RESET"];
    FIT.contains(&name)
}

/// A name as Redis allows it: printable, without spaces.
fn printable(name: &[u8]) -> Option<String> {
    let is_fine = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    is_fine.then(|| String::from_utf8_lossy(name).into_owned())
}
