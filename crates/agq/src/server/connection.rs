//! One connection: commands in, replies out in their order, with many writes on their way at once.
//!
//! A command starts when it is read, so that the writes of a pipeline share a group commit. A read waits for the writes
//! before it, and what waits or changes the session runs alone.

use std::{collections::VecDeque, pin::Pin, sync::Arc, task::Poll, time::Duration};

use agenix_protocol::{
    request::{Flow, Request},
    resp::{CommandDecoder, FrameError, Reply, ReplyEncoder},
};
use bytes::Bytes;
use futures_util::{FutureExt, SinkExt, StreamExt, future::ready, poll};
use rustix::net::sockopt;
use tokio::{
    io::AsyncReadExt,
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    time::timeout,
};
use tokio_util::codec::{FramedRead, FramedWrite};
use tracing::{debug, warn};

use super::session::{Gate, Session};
use crate::{
    commands::{self, Done, Effect},
    house::House,
    key::SessionKey,
};

/// How long a connection that sent a broken or too large frame is still read, so that the error reaches it.
const LINGER: Duration = Duration::from_secs(5);

/// How long a connection may be silent before it is asked whether it is still there.
#[cfg(target_os = "linux")]
const KEEPALIVE: Duration = Duration::from_secs(60);

type Running = Pin<Box<dyn Future<Output = Done> + Send>>;

struct Connection {
    house: Arc<House>,
    session: Session,
    reader: FramedRead<OwnedReadHalf, CommandDecoder>,
    writer: FramedWrite<OwnedWriteHalf, ReplyEncoder>,
    /// Commands under way, in the order of their replies.
    running: VecDeque<Running>,
    /// Whether what is under way runs alone.
    is_alone: bool,
    /// Whether what is under way waits for something to come.
    is_waiting: bool,
    /// Whether every reply was sent and nothing has been read since.
    is_quiet: bool,
    /// The next command, which waits until nothing is under way.
    next: Option<Request>,
}

/// Why a connection ends.
enum End {
    /// The other side closed it, or it broke.
    Closed,
    /// A frame could not be read.
    Broken(FrameError),
}

/// Serves one connection until it closes, or `stop` says so.
pub(super) async fn serve(
    socket: TcpStream,
    name: Arc<str>,
    house: Arc<House>,
    key: Arc<SessionKey>,
    mut stop: watch::Receiver<bool>,
) {
    if let Err(error) = tune(&socket) {
        debug!(%error, "the socket could not be tuned");
    }
    let (reader, writer) = socket.into_split();
    let mut connection = Connection {
        session: Session::new(name, key),
        reader: FramedRead::new(reader, CommandDecoder::new(&house.settings.limits)),
        writer: FramedWrite::new(writer, ReplyEncoder::default()),
        house,
        running: VecDeque::new(),
        is_alone: false,
        is_waiting: false,
        is_quiet: false,
        next: None,
    };
    let stopped = stop.clone();
    let end = tokio::select! {
        end = connection.converse(&mut stop) => end,
        () = stuck(stopped) => Err(std::io::Error::other("the client does not read its replies")),
    };
    let parting = async {
        match end {
            Ok(End::Broken(error)) => connection.refuse(&error).await,
            // It may have closed only its sending side, as `nc -N` does, and still read.
            Ok(End::Closed) => connection.finish().await,
            // In the middle of a reply nothing more can be said.
            Err(error) => debug!(%error, "a connection broke"),
        }
    };
    if timeout(LINGER * 2, parting).await.is_err() {
        debug!("a client did not read its last replies");
    }
    connection.close().await;
}

/// Replies go out at once, and a client that lost its power is noticed.
fn tune(socket: &TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_keepidle(socket, KEEPALIVE)?;
    Ok(())
}

impl Connection {
    async fn converse(&mut self, stop: &mut watch::Receiver<bool>) -> Result<End, std::io::Error> {
        loop {
            if *stop.borrow() {
                return Ok(End::Closed);
            }
            self.answer_what_is_ready().await?;
            if self.running.is_empty() {
                (self.is_alone, self.is_waiting) = (false, false);
                if let Some(request) = self.next.take() {
                    self.start(request).await;
                    continue;
                }
            }
            if self.may_read()
                && let Some(frame) = self.reader.next().now_or_never()
            {
                match frame {
                    None => return Ok(End::Closed),
                    Some(Err(error)) => return Ok(End::Broken(error)),
                    Some(Ok(args)) => self.accept(&args).await,
                }
                continue;
            }
            self.writer.flush().await?;
            let may_read = self.may_read();
            self.is_quiet = self.running.is_empty();
            tokio::select! {
                done = front(&mut self.running) => self.answer(done).await?,
                _ = stop.changed() => return Ok(End::Closed),
                frame = self.reader.next(), if may_read => match frame {
                    None => return Ok(End::Closed),
                    Some(Err(error)) => return Ok(End::Broken(error)),
                    Some(Ok(args)) => self.accept(&args).await,
                },
            }
        }
    }

    fn may_read(&self) -> bool {
        let max = self.house.settings.limits.max_pipeline;
        self.next.is_none() && (max == 0 || self.running.len() < max)
    }

    async fn accept(&mut self, args: &[Bytes]) {
        if std::mem::take(&mut self.is_quiet) {
            // Whoever sends something after a silence has got what was sent before it.
            self.session.unproven.clear();
        }
        match self.session.gate(args) {
            Err(reply) => self.running.push_back(Box::pin(ready(Done { reply, effect: Effect::None }))),
            Ok(request) => {
                let must_wait = self.is_alone || request.flow() != Flow::Write;
                if must_wait && !self.running.is_empty() {
                    self.next = Some(request);
                } else {
                    self.start(request).await;
                }
            }
        }
    }

    async fn start(&mut self, request: Request) {
        self.is_alone = request.flow() == Flow::Alone;
        self.is_waiting = matches!(request, Request::BRPop { .. });
        let mut running: Running = match self.session.admit(request) {
            Gate::Answer(reply) => Box::pin(ready(Done { reply, effect: Effect::None })),
            Gate::Pass(request) => {
                Box::pin(commands::run(Arc::clone(&self.house), Arc::clone(&self.session.caller), request))
            }
        };
        // The first poll puts its write in the store's order.
        match poll!(&mut running) {
            Poll::Ready(done) => self.running.push_back(Box::pin(ready(done))),
            Poll::Pending => self.running.push_back(running),
        }
    }

    async fn answer_what_is_ready(&mut self) -> Result<(), std::io::Error> {
        while let Some(first) = self.running.front_mut() {
            match poll!(first) {
                Poll::Pending => break,
                Poll::Ready(done) => self.answer(done).await?,
            }
        }
        Ok(())
    }

    async fn answer(&mut self, done: Done) -> Result<(), std::io::Error> {
        self.running.pop_front();
        self.session.apply(done.effect);
        self.writer.encoder_mut().version = self.session.version;
        self.writer.feed(done.reply).await
    }

    /// No more is read: what was started is finished and answered, what waits for work is not.
    async fn finish(&mut self) {
        while !self.is_waiting && !self.running.is_empty() {
            let done = front(&mut self.running).await;
            if self.answer(done).await.is_err() {
                return;
            }
        }
        if let Err(error) = self.writer.flush().await {
            debug!(%error, "the last replies could not be sent");
        }
    }

    /// Answers a frame that cannot be read, after the commands before it. The client may still be sending: it is read
    /// for a while, for a reset would take the error away from it.
    async fn refuse(&mut self, error: &FrameError) {
        debug!(%error, connection = %self.session.caller.connection, "a frame was refused");
        self.finish().await;
        if matches!(error, FrameError::Io(_))
            || self.writer.send(Reply::Error(error.to_string())).await.is_err()
        {
            return;
        }
        let linger = async {
            tokio::io::AsyncWriteExt::shutdown(self.writer.get_mut()).await?;
            let mut sink = vec![0; 64 * 1024];
            while self.reader.get_mut().read(&mut sink).await? > 0 {}
            Ok::<_, std::io::Error>(())
        };
        if timeout(LINGER, linger).await.is_err() {
            debug!("a refused client went on sending");
        }
    }

    /// Gives back what the connection had and nobody else can account for.
    async fn close(mut self) {
        // What was under way is dropped: a claim that was just handed over goes back by that.
        self.running.clear();
        let caller = &self.session.caller;
        let mut outcome = Ok(());
        for claim in &self.session.unproven {
            let back =
                commands::hand_back_unreported(&self.house, &claim.job_id, &claim.holder, claim.attempt)
                    .await;
            outcome = outcome.and(back);
        }
        outcome = outcome.and(commands::hand_back_all(&self.house, &caller.connection).await);
        if let Some(worker_id) = &caller.registered {
            outcome = outcome.and(commands::detach(&self.house, worker_id, &caller.connection).await);
        }
        if let Err(error) = outcome {
            warn!(%error, connection = %caller.connection, "a closed connection could not be cleared");
        }
        debug!(connection = %caller.connection, "closed");
    }
}

/// agq stops and the connection does not come to an end: it is writing to someone who does not read.
async fn stuck(mut stop: watch::Receiver<bool>) {
    // An error means that agq has stopped already.
    let _stopped = stop.wait_for(|stop| *stop).await.is_ok();
    tokio::time::sleep(LINGER).await;
}

/// The first of the commands under way, when it is done. Waits for ever where there is none.
async fn front(running: &mut VecDeque<Running>) -> Done {
    match running.front_mut() {
        Some(first) => first.await,
        None => std::future::pending().await,
    }
}
