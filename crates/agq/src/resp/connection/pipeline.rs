//! Start of commands. The commands that start together submit their writes together.

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
    pipeline_state::PipelineState,
};
use crate::{
    net::throttle::{ClientTimeouts, RateDecision},
    resp::{
        dispatch,
        outcome::{CommandOutcome, Effect},
        session::SessionAction,
    },
    store::writes_submitted,
};

/// Maximum number of writes of users' keys that are merged into one write of the store. Each
/// separate write would cost a submission and a wake-up.
const MAX_WRITES_TOGETHER: usize = 16;

impl RespConnection {
    /// Accepts a command that has been read.
    pub(crate) fn accept(&mut self, args: Vec<Bytes>, now: Timestamp) {
        // The next frame has a timeout of its own.
        self.timeouts.frame_ended();
        if std::mem::take(&mut self.is_quiet) {
            // A client that sends a command after a pause has received all replies before it.
            self.session.unacked_claims.clear();
        }
        match self.rate.take(now) {
            RateDecision::Now => {}
            RateDecision::After(delay) => self.throttled_until = Some(Instant::now() + delay),
            // The connection ends, because an error among other replies would break a transaction.
            RateDecision::Refused => return self.is_refused = true,
        }
        self.unanswered_bytes += size_of_command(&args);
        self.read_ahead.push_back(args);
    }

    /// Starts every command that may start now. Returns true if a command started.
    pub(crate) async fn start_ready(&mut self) -> bool {
        self.refresh_state();
        if self.read_ahead.is_empty() && self.held.is_none() {
            return false;
        }
        let submitted_before = writes_submitted();
        let has_started = self.start_each();
        if writes_submitted() != submitted_before
            && let Some(group_commit) = &self.app.group_commit
        {
            // The writes share a batch. If no other connection writes, this thread commits the
            // batch.
            group_commit.commit(Some(self.session.caller.number)).await;
        }
        has_started
    }

    /// Resets the state when no command is in flight.
    fn refresh_state(&mut self) {
        if self.running.is_empty() {
            self.state = PipelineState::Resolved;
        }
    }

    fn start_each(&mut self) -> bool {
        let (mut has_started, now) = (false, self.app.clock.now());
        loop {
            self.refresh_state();
            if !self.state.accepts_commands() {
                return has_started;
            }
            let Some(ready) = self.next_command() else { return has_started };
            let may_start = match ready.request.concurrency(ready.command) {
                Concurrency::Write | Concurrency::Claim => self.keeps_order(&ready),
                Concurrency::Read => self.state == PipelineState::Resolved,
                Concurrency::Alone => self.running.is_empty(),
            };
            if !may_start {
                self.held = Some(ready);
                return has_started;
            }
            has_started = true;
            self.start(ready, now);
        }
    }

    /// Returns true if a write may start behind the writes in flight. A store that writes users'
    /// keys separately has two orders. A client that sends writes of both kinds expects that an
    /// earlier write is done when a later one is.
    fn keeps_order(&self, ready: &ReadyCommand) -> bool {
        self.state == PipelineState::Resolved
            || self.is_on_keys == is_on_keys(&ready.request)
            || !self.app.store.writes_keys_apart()
    }

    /// Returns the next command that the session authorizes. Adds an error reply for each other
    /// command.
    fn next_command(&mut self) -> Option<ReadyCommand> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        loop {
            let args = self.read_ahead.pop_front()?;
            match self.authorize(&args) {
                Ok(ready) => return Some(ready),
                Err((size, reply)) => {
                    self.push_reply_slot(size, InFlight::done(CommandOutcome::plain(reply)));
                }
            }
        }
    }

    /// Parses and authorizes a command. Returns the size of the command and the error reply if the
    /// session refuses the command.
    fn authorize(&mut self, args: &[Bytes]) -> Result<ReadyCommand, (usize, Reply)> {
        let size = size_of_command(args);
        let (command, request) = self.session.authorize(args).map_err(|reply| (size, reply))?;
        Ok(ReadyCommand { size, command, request })
    }

    fn start(&mut self, ReadyCommand { size, command, request }: ReadyCommand, now: Timestamp) {
        let concurrency = request.concurrency(command);
        self.is_on_keys = is_on_keys(&request);
        self.state = self.state.started(concurrency, command.kind == CommandKind::Blocking);
        let was_authenticated = self.session.is_authenticated();
        let gate = self.session.handle(command, request);
        let (app, caller) = (Arc::clone(&self.app), Arc::clone(&self.session.caller));
        match (was_authenticated, self.session.is_authenticated()) {
            (false, true) => {
                self.timeouts.logged_in();
                self.reader.decoder_mut().set_limits(&self.app.settings.limits);
            }
            // After RESET the client has to log in again, within the login timeout.
            (true, false) => {
                self.timeouts = ClientTimeouts::new(self.app.clock.now(), false, bounds(&self.app));
                self.reader.decoder_mut().set_limits(&self.app.settings.limits.before_login());
            }
            _ => {}
        }
        let running = match gate {
            SessionAction::Answer(reply) => InFlight::done(CommandOutcome::plain(reply)),
            SessionAction::AfterWrites(reply) => {
                self.state = PipelineState::Confirming;
                InFlight::Pending(Box::pin(async move {
                    // A change that is being written is not published to a new subscriber. After
                    // this wait, every read of the client contains the change.
                    let _confirmed_anyway = app.store.wait_until_applied().await;
                    CommandOutcome::plain(reply)
                }))
            }
            SessionAction::Quit(reply) => InFlight::done(CommandOutcome::with(reply, Effect::Quit)),
            SessionAction::Delay(reply, delay) if delay.is_zero() => {
                InFlight::done(CommandOutcome::plain(reply))
            }
            SessionAction::Delay(reply, delay) => {
                self.timeouts.answer_delayed(delay);
                InFlight::Pending(Box::pin(async move {
                    tokio::time::sleep(delay).await;
                    CommandOutcome::plain(reply)
                }))
            }
            SessionAction::Pass(command, request) => match dispatch::at_once(&app, &request, now) {
                Some(done) => InFlight::done(done),
                None => match dispatch::write_of_keys(request) {
                    Ok(write) => return self.start_writes(size, write),
                    Err(request) => InFlight::Pending(Box::pin(dispatch::run(app, caller, command, request))),
                },
            },
            SessionAction::Transaction(queued) => InFlight::Pending(Box::pin(dispatch::exec(app, queued))),
        };
        self.spawn(size, running, concurrency);
    }

    /// Starts a write of users' keys together with the writes of users' keys directly behind it.
    fn start_writes(&mut self, size: usize, first: KeyCommand) {
        let (mut writes, mut sizes, mut refused) = (vec![first], Vec::new(), None);
        while writes.len() < MAX_WRITES_TOGETHER
            && refused.is_none()
            && self.held.is_none()
            && let Some(args) = self.read_ahead.pop_front()
        {
            match self.authorize(&args) {
                Ok(ready) => match dispatch::write_of_keys(ready.request) {
                    Ok(write) => {
                        writes.push(write);
                        sizes.push(ready.size);
                    }
                    Err(request) => self.held = Some(ReadyCommand { request, ..ready }),
                },
                Err(refusal) => refused = Some(refusal),
            }
        }
        let running = InFlight::Pending(Box::pin(dispatch::write_keys(Arc::clone(&self.app), writes)));
        self.spawn(size, running, Concurrency::Write);
        for size in sizes {
            self.push_reply_slot(size, InFlight::Merged);
        }
        if let Some((size, reply)) = refused {
            self.push_reply_slot(size, InFlight::done(CommandOutcome::plain(reply)));
        }
    }

    fn spawn(&mut self, size: usize, mut running: InFlight, concurrency: Concurrency) {
        // The first poll determines the order among the writes of the store. A wake-up is not
        // needed, because the command is polled again when it is the first in flight.
        let submitted_before = writes_submitted();
        match Pin::new(&mut running).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => {
                self.state = self.state.answered_at_once();
                self.push_reply_slot(size, InFlight::done(done));
            }
            Poll::Pending => {
                // A pending read must not see the writes behind it. A command that has not
                // submitted its write yet, because it reads first, has no place in the order of
                // writes.
                if concurrency == Concurrency::Read || writes_submitted() == submitted_before {
                    self.state = self.state.exclusive();
                }
                self.push_reply_slot(size, running);
            }
        }
    }

    fn push_reply_slot(&mut self, size: usize, running: InFlight) {
        if !running.is_resolved() {
            self.state = self.state.unresolved();
        }
        self.running.push_back((size, running));
    }
}

/// Returns true if a request is on users' keys. A pop of a queue claims a job instead.
fn is_on_keys(request: &Request) -> bool {
    matches!(request, Request::Key(_)) && !request.is_claim()
}

/// Returns the number of bytes that a command takes in memory. Each argument counts, even an empty
/// one.
fn size_of_command(args: &[Bytes]) -> usize {
    args.iter().map(|arg| arg.len() + size_of::<Bytes>()).sum()
}
