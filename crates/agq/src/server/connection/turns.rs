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
    Connection, bounds,
    running::{Passed, Running},
};
use crate::{
    commands::{self, Done, Effect},
    server::{
        session::Gate,
        throttle::{Pace, Patience},
    },
    store::{at_once, hand_ins},
};

/// Most commands that are carried out together with one that says the same. Their replies, of any size, are in memory until they
/// are sent.
const MOST_TWINS: usize = 15;

/// Most writes of keys that are one write of the store: each by itself would be handed in, answered and waited for by itself.
const MOST_TOGETHER: usize = 16;

impl Connection {
    /// Takes a command that was read; its turn comes.
    pub(super) fn accept(&mut self, args: Vec<Bytes>, now: Timestamp) {
        // A whole command has come: the next has its own time.
        self.patience.frame_ended();
        if std::mem::take(&mut self.is_quiet) {
            // Whoever sends something after a silence has got what was sent before it.
            self.session.unproven.clear();
        }
        match self.rate.take(now) {
            Pace::Now => {}
            Pace::After(delay) => self.slowed_until = Some(Instant::now() + delay),
            // It ends: an error among other replies would tear a transaction apart.
            Pace::Refused => return self.is_refused = true,
        }
        self.taken_bytes += size_of_command(&args);
        self.ahead.push_back(args);
    }

    /// Starts every command that may start now; whether any did.
    pub(super) async fn start_what_may(&mut self) -> bool {
        self.look_who_is_under_way();
        if self.ahead.is_empty() && self.held.is_none() {
            return false;
        }
        let (house, number, mut has_started) = (Arc::clone(&self.house), self.session.caller.number, false);
        // Their writes share a batch, and nobody is called for it where nobody else is at it.
        at_once(&*house.store, Some(number), &mut || has_started = self.start_each()).await;
        has_started
    }

    /// Where nobody is, nobody is alone or waited for.
    fn look_who_is_under_way(&mut self) {
        if self.running.is_empty() {
            (self.is_alone, self.is_waiting, self.is_confirming) = (false, false, false);
            self.is_settled = true;
        }
    }

    fn start_each(&mut self) -> bool {
        let (mut has_started, now) = (false, self.house.clock.now());
        loop {
            self.look_who_is_under_way();
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
    fn keeps_order(&self, passed: &Passed) -> bool {
        self.is_settled
            || self.is_on_keys == is_on_keys(&passed.request)
            || !self.house.store.writes_keys_apart()
    }

    /// The next command that the session lets pass; what it refuses is answered.
    fn next_command(&mut self) -> Option<Passed> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        loop {
            let args = self.ahead.pop_front()?;
            match self.pass(&args) {
                Ok(passed) => return Some(passed),
                Err((size, reply)) => self.line_up(size, Running::done(Done::plain(reply))),
            }
        }
    }

    /// A command that the session lets pass; or its size, and what it is answered.
    fn pass(&mut self, args: &[Bytes]) -> Result<Passed, (usize, Reply)> {
        let size = size_of_command(args);
        let (command, request) = self.session.gate(args).map_err(|reply| (size, reply))?;
        let twins = if command.kind == CommandKind::Blocking { self.twins_of(args) } else { 0 };
        Ok(Passed { size, command, request, twins })
    }

    /// How many commands that say the same have come right behind this one.
    fn twins_of(&self, args: &[Bytes]) -> usize {
        self.ahead.iter().take(MOST_TWINS).take_while(|other| *other == args).count()
    }

    /// A command that came behind its twin was carried out with it.
    pub(super) fn leave_out_twin(&mut self) {
        if let Some(args) = self.ahead.pop_front() {
            self.taken_bytes = self.taken_bytes.saturating_sub(size_of_command(&args));
            self.house.directory.count_command();
        }
    }

    fn start(&mut self, Passed { size, command, request, twins }: Passed, now: Timestamp) {
        let flow = request.flow(command);
        self.is_on_keys = is_on_keys(&request);
        self.is_alone = matches!(flow, Concurrency::Alone | Concurrency::Claim);
        self.is_waiting = command.kind == CommandKind::Blocking;
        let was_authenticated = self.session.is_authenticated();
        let gate = self.session.admit(command, request);
        let (house, caller) = (Arc::clone(&self.house), Arc::clone(&self.session.caller));
        match (was_authenticated, self.session.is_authenticated()) {
            (false, true) => {
                self.patience.logged_in();
                self.reader.decoder_mut().set_limits(&self.house.settings.limits);
            }
            // RESET: it has to log in again, in time.
            (true, false) => {
                self.patience = Patience::new(self.house.clock.now(), false, bounds(&self.house));
                self.reader.decoder_mut().set_limits(&self.house.settings.limits.before_login());
            }
            _ => {}
        }
        let running = match gate {
            Gate::Answer(reply) => Running::done(Done::plain(reply)),
            Gate::Settled(reply) => {
                self.is_confirming = true;
                Running::Going(Box::pin(async move {
                    // A change that is being written now is not told to who comes now; it is in what is read after this.
                    let _confirmed_anyway = house.store.settled().await;
                    Done::plain(reply)
                }))
            }
            Gate::Quit(reply) => Running::done(Done::with(reply, Effect::Quit)),
            Gate::Delay(reply, delay) if delay.is_zero() => Running::done(Done::plain(reply)),
            Gate::Delay(reply, delay) => {
                self.patience.answer_delayed(delay);
                Running::Going(Box::pin(async move {
                    tokio::time::sleep(delay).await;
                    Done::plain(reply)
                }))
            }
            Gate::Pass(command, request) => match commands::at_once(&house, &request, now) {
                Some(done) => Running::done(done),
                None => match commands::write_of_keys(request) {
                    Ok(write) => return self.start_writes(size, write),
                    Err(request) => {
                        Running::Going(Box::pin(commands::run(house, caller, command, request, twins)))
                    }
                },
            },
            Gate::Transaction(queued) => Running::Going(Box::pin(commands::transact(house, queued))),
        };
        self.set_going(size, running, flow);
    }

    /// Starts a write of keys, and those right behind it together with it.
    fn start_writes(&mut self, size: usize, first: KeyCommand) {
        let (mut writes, mut sizes, mut refused) = (vec![first], Vec::new(), None);
        while writes.len() < MOST_TOGETHER
            && refused.is_none()
            && self.held.is_none()
            && let Some(args) = self.ahead.pop_front()
        {
            match self.pass(&args) {
                Ok(passed) => match commands::write_of_keys(passed.request) {
                    Ok(write) => {
                        writes.push(write);
                        sizes.push(passed.size);
                    }
                    Err(request) => self.held = Some(Passed { request, ..passed }),
                },
                Err(refusal) => refused = Some(refusal),
            }
        }
        let running = Running::Going(Box::pin(commands::write_keys(Arc::clone(&self.house), writes)));
        self.set_going(size, running, Concurrency::Write);
        for size in sizes {
            self.line_up(size, Running::Along);
        }
        if let Some((size, reply)) = refused {
            self.line_up(size, Running::done(Done::plain(reply)));
        }
    }

    fn set_going(&mut self, size: usize, mut running: Running, flow: Concurrency) {
        // The first poll puts its write in the store's order.
        // Nobody is told when it can go on: it is polled again when it is the first.
        let handed_in = hand_ins();
        match Pin::new(&mut running).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => {
                self.is_waiting = false;
                self.line_up(size, Running::done(done));
            }
            Poll::Pending => {
                // A read that goes on must not see the writes behind it; and a write that has to look at something first, in a store
                // that is elsewhere, has no place in the order yet.
                self.is_alone |= flow == Concurrency::Read || hand_ins() == handed_in;
                self.line_up(size, running);
            }
        }
    }

    fn line_up(&mut self, size: usize, running: Running) {
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
