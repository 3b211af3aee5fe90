//! One connection: commands in, replies out in their order, with many writes on their way at once.
//!
//! A command starts as soon as it may, so that the writes of a pipeline share a group commit. A read waits for the writes
//! before it, and what waits or changes the session runs alone; what comes behind is read ahead, so that a client that goes
//! away is noticed. `turns` says which command may start, `running` what one is then, `parting` how the connection
//! ends.

mod in_flight;
mod pipeline;
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

/// Most bytes of commands that are not answered yet; one command may pass it.
const READ_AHEAD: usize = 16 * 1024 * 1024;

/// Most commands that are read before any of them starts.
const MOST_AT_ONCE: usize = 256;

/// How long a command may wait with so much behind it that nothing more can be read.
const CROWDED_AFTER: Duration = Duration::from_secs(1);

struct RespConnection {
    app: Arc<AppState>,
    session: RespSession,
    reader: FramedRead<NotifyOnRead, CommandDecoder>,
    /// Told when bytes have come.
    heard: Arc<Notify>,
    /// What waits here to be sent is bounded: a reply is put into it when the ones before it have all but gone, and while that takes
    /// its time no other command is read or started.
    writer: FramedWrite<TimeoutWriter, ReplyEncoder>,
    /// Commands that were read and not started.
    ahead: VecDeque<Vec<Bytes>>,
    /// The bytes of all commands that are not answered yet.
    taken_bytes: usize,
    /// The next of them, which may be given and waits until nothing is under way.
    held: Option<ReadyCommand>,
    /// Commands under way with their sizes, in the order of their replies.
    running: VecDeque<(usize, InFlight)>,
    /// Whether all that is under way is settled: then a read may start.
    is_settled: bool,
    /// Whether what is under way runs alone.
    is_alone: bool,
    /// Tells whether the writes under way are of users' keys.
    is_on_keys: bool,
    /// Whether the last that is under way waits for something to come.
    is_waiting: bool,
    /// Whether every reply was sent and nothing has been read since.
    is_quiet: bool,
    patience: ClientTimeouts,
    rate: CommandRate,
    /// Until then nothing is read: the client is faster than it may be.
    slowed_until: Option<Instant>,
    /// It went on being too fast: what came before is answered, and no more.
    is_refused: bool,
    /// Whether a subscription is being confirmed: no message comes before that.
    is_confirming: bool,
    /// Its place among the connections of its address.
    _guest: Option<ConnectionPermit>,
}

/// Why a connection ends.
enum Disconnect {
    /// The other side closed it, or it broke.
    Closed,
    /// The client said QUIT, and has its answer.
    Quit,
    /// A frame could not be read.
    Broken(FrameError),
    /// The client was waited for too long.
    Overdue(TimedOut),
    /// The client was too fast for too long.
    TooFast,
    /// So much came behind a command that waits that nothing more can be read, not even that the client has gone.
    Crowded,
}

/// Serves one connection until it closes, or `stop` says so.
pub(crate) async fn serve(
    mut accepted: ClientStream,
    number: u64,
    app: Arc<AppState>,
    access_control: Arc<AccessControl>,
    mut stop: watch::Receiver<bool>,
) {
    let (now, limits) = (app.clock.now(), app.settings.limits);
    let session = RespSession::new(&mut accepted, number, Arc::clone(&app), access_control);
    let (reader, heard) = NotifyOnRead::new(accepted.reader);
    let send = Duration::from_millis(app.settings.send_timeout_ms);
    let admitted = if session.is_authenticated() { limits } else { limits.before_login() };
    let mut connection = RespConnection {
        patience: ClientTimeouts::new(now, session.is_authenticated(), bounds(&app)),
        rate: CommandRate::new(limits.max_commands_per_sec, now),
        session,
        reader: FramedRead::new(reader, CommandDecoder::new(&admitted)),
        heard,
        writer: FramedWrite::new(TimeoutWriter::new(accepted.writer, send), ReplyEncoder::default()),
        app,
        ahead: VecDeque::new(),
        taken_bytes: 0,
        held: None,
        running: VecDeque::new(),
        is_settled: true,
        is_alone: false,
        is_on_keys: false,
        is_waiting: false,
        is_quiet: false,
        slowed_until: None,
        is_refused: false,
        is_confirming: false,
        _guest: accepted.permit,
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
            if self.is_refused && self.running.is_empty() {
                return Ok(Disconnect::TooFast);
            }
            let now = self.app.clock.now();
            if let Some(overdue) = self.patience.overdue(now) {
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

    /// Takes the commands that have come and may be read; whether there were any. They start together.
    fn take_input(&mut self, now: Timestamp) -> Result<bool, Disconnect> {
        let mut count = 0;
        while count < MOST_AT_ONCE
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

    /// Waits until something happens; the end of the connection, where that is what happened.
    async fn wait(&mut self, stop: &mut watch::Receiver<bool>) -> Result<Option<Disconnect>, std::io::Error> {
        let (may_read, now) = (self.may_read(), self.app.clock.now());
        let has_begun =
            may_read && (self.reader.decoder().has_begun() || !self.reader.read_buffer().is_empty());
        if has_begun {
            self.patience.frame_began(now);
        } else {
            self.patience.frame_ended();
        }
        let patience = self.patience.left(now);
        let is_crowded = self.only_waits() && !may_read && !self.is_refused && self.slowed_until.is_none();
        let is_confirming = self.is_confirming;
        tokio::select! {
            done = next_done(&mut self.running) => drop(self.answer(done).await?),
            _ = stop.changed() => return Ok(Some(Disconnect::Closed)),
            frame = self.reader.next(), if may_read => match frame {
                None => return Ok(Some(Disconnect::Closed)),
                Some(Err(error)) => return Ok(Some(Disconnect::Broken(error))),
                Some(Ok(args)) => {
                    let now = self.app.clock.now();
                    self.accept(args, now);
                    // What came with it starts with it.
                    if let Err(end) = self.take_input(now) {
                        return Ok(Some(end));
                    }
                }
            },
            message = self.session.subscriptions.next(), if !is_confirming => match message {
                Some(message) => self.reply(delivery(message)).await?,
                None => return Err(SlowClient::Messages.into()),
            },
            // A part of a command: from now on it is waited for.
            () = self.heard.notified(), if may_read && !has_begun => {}
            () = after(CROWDED_AFTER), if is_crowded => return Ok(Some(Disconnect::Crowded)),
            () = until(self.slowed_until) => self.slowed_until = None,
            () = after(patience.unwrap_or_default()), if patience.is_some() => {
                return Ok(self.patience.overdue(self.app.clock.now()).map(Disconnect::Overdue));
            }
        }
        Ok(None)
    }

    /// Whether nothing is under way but one command that waits for something to come.
    fn only_waits(&self) -> bool {
        self.is_waiting && self.running.len() == 1
    }

    fn may_read(&self) -> bool {
        let max = self.app.settings.limits.max_pipeline;
        // What is read behind a command that waits is read to notice when the client goes.
        let count = (self.running.len() + self.ahead.len()).saturating_sub(usize::from(self.is_waiting));
        // Who is about to log in may send more then: what comes behind is not read with the bounds of a stranger.
        let is_logging_in = !self.session.is_authenticated() && count > 0;
        !self.is_refused
            && !is_logging_in
            && self.slowed_until.is_none()
            && self.taken_bytes < READ_AHEAD
            && (max == 0 || count < max)
    }

    /// Sends every reply whose turn it is; whether the client said QUIT.
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

    /// Sends the reply of the first command, and of those that were carried out with it; whether that was QUIT.
    async fn answer(
        &mut self,
        CommandOutcome { reply, effect, also }: CommandOutcome,
    ) -> Result<bool, std::io::Error> {
        self.leave_running();
        let is_quit = effect == Effect::Quit;
        self.session.apply(effect);
        // Before any reply: what was claimed is known, whatever becomes of the replies.
        let mut others = Vec::new();
        for twin in also {
            match self.running.front() {
                Some((_, InFlight::Along)) => self.leave_running(),
                _ => self.merge_identical_claim(),
            }
            self.session.apply(twin.effect);
            others.push(twin.reply);
        }
        self.reply(reply).await?;
        for other in others {
            self.reply(other).await?;
        }
        Ok(is_quit)
    }

    /// The first command is under way no more.
    fn leave_running(&mut self) {
        if let Some((size, _)) = self.running.pop_front() {
            self.taken_bytes = self.taken_bytes.saturating_sub(size);
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
        // The room of a large reply is not kept until the connection ends.
        *self.writer.write_buffer_mut() = BytesMut::new();
        Ok(())
    }

    /// How long a reply to someone who has not logged in may take.
    fn login_time(&self) -> Option<Duration> {
        if self.session.is_authenticated() { None } else { self.patience.left(self.app.clock.now()) }
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

/// agq stops and the connection does not come to an end: it is writing to someone who does not read.
async fn stuck(mut stop: watch::Receiver<bool>) {
    // An error means that agq has stopped already.
    let _stopped = stop.wait_for(|stop| *stop).await.is_ok();
    tokio::time::sleep(LINGER).await;
}

/// A while later. A timer that nobody waits for is not made: what a `select!` does not look at is put together all the same.
async fn after(time: Duration) {
    tokio::time::sleep(time).await;
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
