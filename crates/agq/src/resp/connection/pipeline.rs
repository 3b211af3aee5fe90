//! Whose turn it is: commands are taken as they come, and started as soon as they may.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use agenix_protocol::{
    request::{CommandKind, Concurrency, KeyCommand, Request},
    resp::Reply,
    time::Timestamp,
};
use bytes::Bytes;
use tokio::time::Instant;

use super::{
    RespConnection, bounds,
    in_flight::{InFlight, ReadyCommand},
};
use crate::{
    net::throttle::{ClientTimeouts, RateDecision},
    resp::{
        dispatch,
        outcome::{CommandOutcome, Effect},
        session::SessionAction,
    },
    store::{at_once, writes_submitted},
};

/// Most commands that are carried out together with one that says the same. Their replies, of any size, are in memory until they
/// are sent.
const MOST_TWINS: usize = 15;

/// Most writes of keys that are one write of the store: each by itself would be handed in, answered and waited for by itself.
const MOST_TOGETHER: usize = 16;

impl RespConnection {
    /// Takes a command that was read; its turn comes.
    pub(crate) fn accept(&mut self, args: Vec<Bytes>, now: Timestamp) {
        // A whole command has come: the next has its own time.
        self.patience.frame_ended();
        if std::mem::take(&mut self.is_quiet) {
            // Whoever sends something after a silence has got what was sent before it.
            self.session.unproven.clear();
        }
        match self.rate.take(now) {
            RateDecision::Now => {}
            RateDecision::After(delay) => self.slowed_until = Some(Instant::now() + delay),
            // It ends: an error among other replies would tear a transaction apart.
            RateDecision::Refused => return self.is_refused = true,
        }
        self.taken_bytes += size_of_command(&args);
        self.ahead.push_back(args);
    }

    /// Starts every command that may start now; whether any did.
    pub(crate) async fn start_ready(&mut self) -> bool {
        self.refresh_state();
        if self.ahead.is_empty() && self.held.is_none() {
            return false;
        }
        let (app, number, mut has_started) = (Arc::clone(&self.app), self.session.caller.number, false);
        // Their writes share a batch, and nobody is called for it where nobody else is at it.
        at_once(&*app.store, Some(number), &mut || has_started = self.start_each()).await;
        has_started
    }

    /// Where nobody is, nobody is alone or waited for.
    fn refresh_state(&mut self) {
        if self.running.is_empty() {
            (self.is_alone, self.is_waiting, self.is_confirming) = (false, false, false);
            self.is_settled = true;
        }
    }

    fn start_each(&mut self) -> bool {
        let (mut has_started, now) = (false, self.app.clock.now());
        loop {
            self.refresh_state();
            if self.is_alone {
                return has_started;
            }
            let Some(passed) = self.next_command() else { return has_started };
            let may_start = match passed.request.flow(passed.command) {
                Concurrency::Write | Concurrency::Claim => self.keeps_order(&passed),
                Concurrency::Read => self.is_settled,
                Concurrency::Alone => self.running.is_empty(),
            };
            if !may_start {
                self.held = Some(passed);
                return has_started;
            }
            has_started = true;
            self.start(passed, now);
        }
    }

    /// Returns whether a write may start behind the writes under way. A store that writes users'
    /// keys apart has two orders, and a client that sends a write of one kind behind a write of the
    /// other kind expects the first write to be done once the second is.
    fn keeps_order(&self, passed: &ReadyCommand) -> bool {
        self.is_settled
            || self.is_on_keys == is_on_keys(&passed.request)
            || !self.app.store.writes_keys_apart()
    }

    /// The next command that the session lets pass; what it refuses is answered.
    fn next_command(&mut self) -> Option<ReadyCommand> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        loop {
            let args = self.ahead.pop_front()?;
            match self.authorize(&args) {
                Ok(passed) => return Some(passed),
                Err((size, reply)) => {
                    self.push_reply_slot(size, InFlight::done(CommandOutcome::plain(reply)))
                }
            }
        }
    }

    /// A command that the session lets pass; or its size, and what it is answered.
    fn authorize(&mut self, args: &[Bytes]) -> Result<ReadyCommand, (usize, Reply)> {
        let size = size_of_command(args);
        let (command, request) = self.session.authorize(args).map_err(|reply| (size, reply))?;
        let twins = if command.kind == CommandKind::Blocking { self.identical_claims(args) } else { 0 };
        Ok(ReadyCommand { size, command, request, twins })
    }

    /// How many commands that say the same have come right behind this one.
    fn identical_claims(&self, args: &[Bytes]) -> usize {
        self.ahead.iter().take(MOST_TWINS).take_while(|other| *other == args).count()
    }

    /// A command that came behind its twin was carried out with it.
    pub(crate) fn merge_identical_claim(&mut self) {
        if let Some(args) = self.ahead.pop_front() {
            self.taken_bytes = self.taken_bytes.saturating_sub(size_of_command(&args));
            self.app.connections.count_command();
        }
    }

    fn start(&mut self, ReadyCommand { size, command, request, twins }: ReadyCommand, now: Timestamp) {
        let flow = request.flow(command);
        self.is_on_keys = is_on_keys(&request);
        self.is_alone = matches!(flow, Concurrency::Alone | Concurrency::Claim);
        self.is_waiting = command.kind == CommandKind::Blocking;
        let was_authenticated = self.session.is_authenticated();
        let gate = self.session.handle(command, request);
        let (app, caller) = (Arc::clone(&self.app), Arc::clone(&self.session.caller));
        match (was_authenticated, self.session.is_authenticated()) {
            (false, true) => {
                self.patience.logged_in();
                self.reader.decoder_mut().set_limits(&self.app.settings.limits);
            }
            // RESET: it has to log in again, in time.
            (true, false) => {
                self.patience = ClientTimeouts::new(self.app.clock.now(), false, bounds(&self.app));
                self.reader.decoder_mut().set_limits(&self.app.settings.limits.before_login());
            }
            _ => {}
        }
        let running = match gate {
            SessionAction::Answer(reply) => InFlight::done(CommandOutcome::plain(reply)),
            SessionAction::Settled(reply) => {
                self.is_confirming = true;
                InFlight::Going(Box::pin(async move {
                    // A change that is being written now is not told to who comes now; it is in what is read after this.
                    let _confirmed_anyway = app.store.wait_until_applied().await;
                    CommandOutcome::plain(reply)
                }))
            }
            SessionAction::Quit(reply) => InFlight::done(CommandOutcome::with(reply, Effect::Quit)),
            SessionAction::Delay(reply, delay) if delay.is_zero() => {
                InFlight::done(CommandOutcome::plain(reply))
            }
            SessionAction::Delay(reply, delay) => {
                self.patience.answer_delayed(delay);
                InFlight::Going(Box::pin(async move {
                    tokio::time::sleep(delay).await;
                    CommandOutcome::plain(reply)
                }))
            }
            SessionAction::Pass(command, request) => match dispatch::at_once(&app, &request, now) {
                Some(done) => InFlight::done(done),
                None => match dispatch::write_of_keys(request) {
                    Ok(write) => return self.start_writes(size, write),
                    Err(request) => {
                        InFlight::Going(Box::pin(dispatch::run(app, caller, command, request, twins)))
                    }
                },
            },
            SessionAction::Transaction(queued) => InFlight::Going(Box::pin(dispatch::exec(app, queued))),
        };
        self.spawn(size, running, flow);
    }

    /// Starts a write of keys, and those right behind it together with it.
    fn start_writes(&mut self, size: usize, first: KeyCommand) {
        let (mut writes, mut sizes, mut refused) = (vec![first], Vec::new(), None);
        while writes.len() < MOST_TOGETHER
            && refused.is_none()
            && self.held.is_none()
            && let Some(args) = self.ahead.pop_front()
        {
            match self.authorize(&args) {
                Ok(passed) => match dispatch::write_of_keys(passed.request) {
                    Ok(write) => {
                        writes.push(write);
                        sizes.push(passed.size);
                    }
                    Err(request) => self.held = Some(ReadyCommand { request, ..passed }),
                },
                Err(refusal) => refused = Some(refusal),
            }
        }
        let running = InFlight::Going(Box::pin(dispatch::write_keys(Arc::clone(&self.app), writes)));
        self.spawn(size, running, Concurrency::Write);
        for size in sizes {
            self.push_reply_slot(size, InFlight::Along);
        }
        if let Some((size, reply)) = refused {
            self.push_reply_slot(size, InFlight::done(CommandOutcome::plain(reply)));
        }
    }

    fn spawn(&mut self, size: usize, mut running: InFlight, flow: Concurrency) {
        // The first poll puts its write in the store's order.
        // Nobody is told when it can go on: it is polled again when it is the first.
        let handed_in = writes_submitted();
        match Pin::new(&mut running).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => {
                self.is_waiting = false;
                self.push_reply_slot(size, InFlight::done(done));
            }
            Poll::Pending => {
                // A read that goes on must not see the writes behind it; and a write that has to look at something first, in a store
                // that is elsewhere, has no place in the order yet.
                self.is_alone |= flow == Concurrency::Read || writes_submitted() == handed_in;
                self.push_reply_slot(size, running);
            }
        }
    }

    fn push_reply_slot(&mut self, size: usize, running: InFlight) {
        self.is_settled &= running.is_settled();
        self.running.push_back((size, running));
    }
}

/// Tells whether a request writes users' keys. A pop of a queue claims a job instead.
fn is_on_keys(request: &Request) -> bool {
    matches!(request, Request::Key(_)) && !request.is_claim()
}

fn size_of_command(args: &[Bytes]) -> usize {
    args.iter().map(Bytes::len).sum()
}
