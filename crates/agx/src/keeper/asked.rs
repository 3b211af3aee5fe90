//! Who asks a keeper to end: by its socket, or by a signal.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::{sleep, timeout},
};

use super::place::{DOWN, GONE, socket};

/// How long a client may take to say what it wants.
const SAYS_WITHIN: Duration = Duration::from_secs(5);
/// The pause after a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(200);

/// Everybody who asks.
pub(super) struct Asked {
    socket: PathBuf,
    clients: mpsc::UnboundedReceiver<UnixStream>,
    /// Clients that wait for the end.
    waiting: Vec<UnixStream>,
    terminate: Signal,
    hangup: Signal,
}

impl Asked {
    /// Listens in this directory. The caller holds its lock: a socket that is there was left behind.
    pub(super) fn listen(dir: &Path) -> io::Result<Self> {
        let socket = socket(dir);
        let _left_behind = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        let (tell, clients) = mpsc::unbounded_channel();
        tokio::spawn(accept(listener, tell));
        Ok(Self {
            socket,
            clients,
            waiting: Vec::new(),
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until somebody asks. Dropped before that, it loses nobody.
    pub(super) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                // The terminal has gone, which is none of a keeper's business.
                _ = self.hangup.recv() => {}
                Some(client) = self.clients.recv() => {
                    self.waiting.push(client);
                    return;
                }
            }
        }
    }

    /// Waits for another SIGTERM.
    pub(super) async fn terminated_again(&mut self) {
        self.terminate.recv().await;
    }

    /// Tells all who have asked that nothing runs any more.
    pub(super) async fn answer(mut self) {
        let _gone = std::fs::remove_file(&self.socket);
        while let Ok(client) = self.clients.try_recv() {
            self.waiting.push(client);
        }
        for client in &mut self.waiting {
            let _nobody_waits = client.write_all(GONE.as_bytes()).await;
        }
    }
}

/// Takes connections. One that says nothing holds up nobody else.
async fn accept(listener: UnixListener, tell: mpsc::UnboundedSender<UnixStream>) {
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let tell = tell.clone();
        tokio::spawn(async move {
            let mut word = vec![0; DOWN.len()];
            let read = timeout(SAYS_WITHIN, client.read_exact(&mut word)).await;
            if matches!(read, Ok(Ok(_))) && word == DOWN {
                let _ended = tell.send(client);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::UnixStream,
    };

    use super::{Asked, DOWN, GONE, socket};

    #[tokio::test]
    async fn whoever_says_nothing_holds_up_nobody_and_all_who_ask_are_answered() {
        let dir = tempfile::tempdir().unwrap();
        let mut asked = Asked::listen(dir.path()).unwrap();
        let _silent = UnixStream::connect(socket(dir.path())).await.unwrap();
        let mut other = UnixStream::connect(socket(dir.path())).await.unwrap();
        other.write_all(b"what?").await.unwrap();
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = UnixStream::connect(socket(dir.path())).await.unwrap();
            client.write_all(DOWN).await.unwrap();
            clients.push(client);
            asked.next().await;
        }
        asked.answer().await;
        for mut client in clients {
            let mut said = String::new();
            client.read_to_string(&mut said).await.unwrap();
            assert_eq!(said, GONE);
        }
        assert!(!socket(dir.path()).exists());
    }
}
