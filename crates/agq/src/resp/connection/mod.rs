//! One RESP connection: reads commands, and sends replies in the order of the commands.
//!
//! A command starts as soon as the commands in flight permit, so that the writes of a pipeline
//! share a group commit. [`pipeline_state`] has the table of which command may start when. Commands
//! behind a command that runs alone are read ahead, so that a closed connection is noticed.
//! Backpressure: the connection reads no more when the commands without a reply exceed
//! [`MAX_READ_AHEAD_BYTES`] or `max_pipeline`, or when the client exceeds its rate.
//!
//! `pipeline` starts commands, `in_flight` is a started command, and `shutdown` ends the
//! connection.

mod in_flight;
mod pipeline;
mod pipeline_state;
mod shutdown;

use std::{collections::VecDeque, sync::Arc, task::Poll, time::Duration};

use agenix_protocol::{
    resp::{CommandDecoder, FrameError, Reply, ReplyEncoder},
    time::Timestamp,
};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, SinkExt, StreamExt, poll};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};
use tokio_util::codec::{FramedRead, FramedWrite};
use tracing::debug;

use self::{
    in_flight::{InFlight, ReadyCommand, next_done},
    pipeline_state::PipelineState,
    shutdown::LINGER,
};
use super::{
    outcome::{CommandOutcome, Effect},
    session::RespSession,
    subscriptions::delivery,
};
use crate::{
    app::AppState,
    net::{
        access_control::AccessControl,
        connection_limit::ConnectionPermit,
        listener::ClientStream,
        read_notify::NotifyOnRead,
        throttle::{ClientTimeouts, CommandRate, TimedOut, TimeoutLimits},
        write_timeout::{SlowClient, TimeoutWriter},
    },
};

/// Maximum number of bytes of commands without a reply. One command may exceed the number.
const MAX_READ_AHEAD_BYTES: usize = 16 * 1024 * 1024;

/// Maximum number of commands that are read before the first of them starts.
const MAX_FRAMES_AT_ONCE: usize = 256;

/// Time after which a connection ends if its only command is blocked and its read-ahead is full.
const FULL_AFTER: Duration = Duration::from_secs(1);

struct RespConnection {
    app: Arc<AppState>,
    session: RespSession,
    reader: FramedRead<NotifyOnRead, CommandDecoder>,
    /// Notified when bytes have been received.
    readable: Arc<Notify>,
    /// Writer with a bounded buffer: a reply is added when most of the earlier replies have been
    /// sent. No command is read or started meanwhile.
    writer: FramedWrite<TimeoutWriter, ReplyEncoder>,
    /// Commands that have been read and not parsed.
    read_ahead: VecDeque<Vec<Bytes>>,
    /// Bytes of all commands without a reply.
    unanswered_bytes: usize,
    /// The next command, if it is authorized and may not start yet.
    held: Option<ReadyCommand>,
    /// Commands in flight with their sizes, in the order of their replies.
    running: VecDeque<(usize, InFlight)>,
    state: PipelineState,
    /// True if the command that started last is on users' keys. [`PipelineState::Pipelining`] uses
    /// the value.
    is_on_keys: bool,
    /// True if all replies have been sent and nothing has been read since.
    is_quiet: bool,
    timeouts: ClientTimeouts,
    rate: CommandRate,
    /// Time until which nothing is read, because the client exceeds its rate.
    throttled_until: Option<Instant>,
    /// True if the client has exceeded its rate for too long. Earlier commands are still answered,
    /// except a blocked command and those behind it.
    is_refused: bool,
    /// Counts as one connection of the address until it is dropped.
    _permit: Option<ConnectionPermit>,
}

/// Reason for the end of a connection.
enum Disconnect {
    /// The client closed the connection, or agq stops.
    Closed,
    /// The client sent QUIT, and its reply has been sent.
    Quit,
    /// A frame is invalid.
    Broken(FrameError),
    /// The client exceeded the time for its login or for a frame.
    Overdue(TimedOut),
    /// The client exceeded its rate for too long.
    TooFast,
    /// The read-ahead behind a blocked command is full, so that a closed connection cannot be
    /// noticed.
    BufferFull,
}

/// Serves one connection until it closes or `stop` becomes true.
pub(crate) async fn serve(
    mut accepted: ClientStream,
    number: u64,
    app: Arc<AppState>,
    access_control: Arc<AccessControl>,
    mut stop: watch::Receiver<bool>,
) {
    let (now, limits) = (app.clock.now(), app.settings.limits);
    let session = RespSession::new(&mut accepted, number, Arc::clone(&app), access_control);
    let (reader, readable) = NotifyOnRead::new(accepted.reader);
    let send = Duration::from_millis(app.settings.send_timeout_ms);
    let admitted = if session.is_authenticated() { limits } else { limits.before_login() };
    let mut connection = RespConnection {
        timeouts: ClientTimeouts::new(now, session.is_authenticated(), bounds(&app)),
        rate: CommandRate::new(limits.max_commands_per_sec, now),
        session,
        reader: FramedRead::new(reader, CommandDecoder::new(&admitted)),
        readable,
        writer: FramedWrite::new(TimeoutWriter::new(accepted.writer, send), ReplyEncoder::default()),
        app,
        read_ahead: VecDeque::new(),
        unanswered_bytes: 0,
        held: None,
        running: VecDeque::new(),
        state: PipelineState::Resolved,
        is_on_keys: false,
        is_quiet: false,
        throttled_until: None,
        is_refused: false,
        _permit: accepted.permit,
    };
    let (stopped, cut) = (stop.clone(), connection.session.subscriptions.cut());
    let end = tokio::select! {
        end = connection.converse(&mut stop) => end,
        () = cut.notified() => Err(SlowClient::Messages.into()),
        () = stuck(stopped) => Err(std::io::Error::other("the client does not read its replies")),
    };
    if timeout(LINGER * 2, connection.shut_down(end)).await.is_err() {
        debug!("a client did not read its last replies");
    }
    connection.close().await;
}

impl RespConnection {
    async fn converse(&mut self, stop: &mut watch::Receiver<bool>) -> Result<Disconnect, std::io::Error> {
        loop {
            if *stop.borrow() {
                return Ok(Disconnect::Closed);
            }
            if self.answer_ready().await? {
                self.flush().await?;
                return Ok(Disconnect::Quit);
            }
            if self.start_ready().await {
                continue;
            }
            if self.is_refused && (self.running.is_empty() || self.is_only_blocked()) {
                return Ok(Disconnect::TooFast);
            }
            let now = self.app.clock.now();
            if let Some(overdue) = self.timeouts.overdue(now) {
                return Ok(Disconnect::Overdue(overdue));
            }
            match self.take_input(now) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(end) => return Ok(end),
            }
            self.flush().await?;
            self.is_quiet = self.running.is_empty();
            if let Some(end) = self.wait(stop).await? {
                return Ok(end);
            }
        }
    }

    /// Accepts the commands that have been received, at most [`MAX_FRAMES_AT_ONCE`]. Returns true
    /// if there was a command. The commands start together.
    fn take_input(&mut self, now: Timestamp) -> Result<bool, Disconnect> {
        let mut count = 0;
        while count < MAX_FRAMES_AT_ONCE
            && self.may_read()
            && let Some(frame) = self.reader.next().now_or_never()
        {
            match frame {
                None => return Err(Disconnect::Closed),
                Some(Err(error)) => return Err(Disconnect::Broken(error)),
                Some(Ok(args)) => self.accept(args, now),
            }
            count += 1;
        }
        Ok(count > 0)
    }

    /// Waits for the next event. Returns the reason if the event ends the connection.
    async fn wait(&mut self, stop: &mut watch::Receiver<bool>) -> Result<Option<Disconnect>, std::io::Error> {
        let (may_read, now) = (self.may_read(), self.app.clock.now());
        let has_begun =
            may_read && (self.reader.decoder().has_begun() || !self.reader.read_buffer().is_empty());
        if has_begun {
            self.timeouts.frame_began(now);
        } else {
            self.timeouts.frame_ended();
        }
        let time_left = self.timeouts.left(now);
        let is_full = self.is_only_blocked() && !may_read && self.throttled_until.is_none();
        let is_confirming = self.state == PipelineState::Confirming;
        tokio::select! {
            done = next_done(&mut self.running) => drop(self.answer(done).await?),
            _ = stop.changed() => return Ok(Some(Disconnect::Closed)),
            frame = self.reader.next(), if may_read => match frame {
                None => return Ok(Some(Disconnect::Closed)),
                Some(Err(error)) => return Ok(Some(Disconnect::Broken(error))),
                Some(Ok(args)) => {
                    let now = self.app.clock.now();
                    self.accept(args, now);
                    // Commands that were received together start together.
                    if let Err(end) = self.take_input(now) {
                        return Ok(Some(end));
                    }
                }
            },
            message = self.session.subscriptions.next(), if !is_confirming => match message {
                Some(message) => self.reply(delivery(message)).await?,
                None => return Err(SlowClient::Messages.into()),
            },
            // A part of a frame has been received: from now on the timeout of a frame counts.
            () = self.readable.notified(), if may_read && !has_begun => {}
            () = after(FULL_AFTER), if is_full => return Ok(Some(Disconnect::BufferFull)),
            () = until(self.throttled_until) => self.throttled_until = None,
            () = after(time_left.unwrap_or_default()), if time_left.is_some() => {
                return Ok(self.timeouts.overdue(self.app.clock.now()).map(Disconnect::Overdue));
            }
        }
        Ok(None)
    }

    /// Returns true if a blocked command is the only command in flight.
    fn is_only_blocked(&self) -> bool {
        self.state == PipelineState::Blocked && self.running.len() == 1
    }

    fn may_read(&self) -> bool {
        let max = self.app.settings.limits.max_pipeline;
        // The blocked command does not count, because the next frame is read to notice a closed
        // connection.
        let count = (self.running.len() + self.read_ahead.len())
            .saturating_sub(usize::from(self.state == PipelineState::Blocked));
        // Frames behind a login are read after the login, because the limits before a login are
        // lower.
        let is_logging_in = !self.session.is_authenticated() && count > 0;
        !self.is_refused
            && !is_logging_in
            && self.throttled_until.is_none()
            && self.unanswered_bytes < MAX_READ_AHEAD_BYTES
            && (max == 0 || count < max)
    }

    /// Sends the replies that are known, in order, up to the first that is not. Returns true after
    /// the reply to QUIT.
    async fn answer_ready(&mut self) -> Result<bool, std::io::Error> {
        while let Some((_, first)) = self.running.front_mut() {
            match poll!(first) {
                Poll::Pending => break,
                Poll::Ready(done) => {
                    if self.answer(done).await? {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Sends the replies to the first command in flight and to the commands merged with it. Returns
    /// true if the command was QUIT.
    async fn answer(
        &mut self,
        CommandOutcome { reply, effect, merged }: CommandOutcome,
    ) -> Result<bool, std::io::Error> {
        self.pop_running();
        let is_quit = effect == Effect::Quit;
        // The effect comes first, because claims have to be recorded even if the reply cannot be
        // sent.
        self.session.apply(effect);
        self.reply(reply).await?;
        for reply in merged {
            self.pop_running();
            self.reply(reply).await?;
        }
        Ok(is_quit)
    }

    /// Removes the first command in flight.
    fn pop_running(&mut self) {
        if let Some((size, _)) = self.running.pop_front() {
            self.unanswered_bytes = self.unanswered_bytes.saturating_sub(size);
        }
    }

    async fn reply(&mut self, reply: Reply) -> Result<(), std::io::Error> {
        self.writer.encoder_mut().version = self.session.version;
        let bound = self.login_time();
        within(bound, self.writer.feed(reply)).await
    }

    async fn flush(&mut self) -> Result<(), std::io::Error> {
        let bound = self.login_time();
        within(bound, self.writer.flush()).await?;
        // Frees the buffer, because it may have the capacity of a large reply.
        *self.writer.write_buffer_mut() = BytesMut::new();
        Ok(())
    }

    /// Returns the time left to send a reply if the client has not logged in.
    fn login_time(&self) -> Option<Duration> {
        if self.session.is_authenticated() { None } else { self.timeouts.left(self.app.clock.now()) }
    }
}

async fn within(
    bound: Option<Duration>,
    sending: impl Future<Output = Result<(), std::io::Error>>,
) -> Result<(), std::io::Error> {
    match bound {
        Some(bound) => timeout(bound, sending).await?,
        None => sending.await,
    }
}

fn bounds(app: &AppState) -> TimeoutLimits {
    let ms = Duration::from_millis;
    TimeoutLimits { login: ms(app.settings.login_timeout_ms), frame: ms(app.settings.frame_timeout_ms) }
}

/// Returns [`LINGER`] after agq begins to stop. The connection still exists then if its client does
/// not read its replies.
async fn stuck(mut stop: watch::Receiver<bool>) {
    // An error means that agq has stopped already.
    let _stopped = stop.wait_for(|stop| *stop).await.is_ok();
    tokio::time::sleep(LINGER).await;
}

/// Sleeps for `time`. The timer is created at the first poll, because `select!` also creates the
/// futures of its disabled branches.
async fn after(time: Duration) {
    tokio::time::sleep(time).await;
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
