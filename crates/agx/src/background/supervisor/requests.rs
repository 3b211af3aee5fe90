//! Requests to end, which reach a supervisor by its socket or by a signal.

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

use crate::background::supervisor::directory::{STOP_REQUEST, STOPPED, socket};

/// Maximum time for a client to send its request.
const SAYS_WITHIN: Duration = Duration::from_secs(5);
/// Pause after a failed accept(2).
const PAUSE: Duration = Duration::from_millis(200);

/// Sources of requests to end.
pub(super) struct StopRequests {
    socket: PathBuf,
    clients: mpsc::UnboundedReceiver<UnixStream>,
    /// Clients that wait for the answer.
    waiting: Vec<UnixStream>,
    terminate: Signal,
    hangup: Signal,
}

impl StopRequests {
    /// Listens in `dir`. A present socket file is stale, because the caller holds the lock.
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

    /// Waits for the next request to end. A drop of the future loses no request.
    pub(super) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                // SIGHUP reports the end of the terminal, and a supervisor needs no terminal.
                _ = self.hangup.recv() => {}
                Some(client) = self.clients.recv() => {
                    self.waiting.push(client);
                    return;
                }
            }
        }
    }

    pub(super) async fn terminated_again(&mut self) {
        self.terminate.recv().await;
    }

    /// Notifies all waiting clients that the supervisor and its programs have ended.
    pub(super) async fn answer(mut self) {
        let _gone = std::fs::remove_file(&self.socket);
        while let Ok(client) = self.clients.try_recv() {
            self.waiting.push(client);
        }
        for client in &mut self.waiting {
            let _nobody_waits = client.write_all(STOPPED.as_bytes()).await;
        }
    }
}

/// Accepts connections. Each client has a task, because a silent one must not block others.
async fn accept(listener: UnixListener, tell: mpsc::UnboundedSender<UnixStream>) {
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let tell = tell.clone();
        tokio::spawn(async move {
            let mut word = vec![0; STOP_REQUEST.len()];
            let read = timeout(SAYS_WITHIN, client.read_exact(&mut word)).await;
            if matches!(read, Ok(Ok(_))) && word == STOP_REQUEST {
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

    use super::{STOP_REQUEST, STOPPED, StopRequests, socket};

    #[tokio::test]
    async fn silent_clients_block_no_one_and_all_requests_are_answered() {
        let dir = tempfile::tempdir().unwrap();
        let mut asked = StopRequests::listen(dir.path()).unwrap();
        let _silent = UnixStream::connect(socket(dir.path())).await.unwrap();
        let mut other = UnixStream::connect(socket(dir.path())).await.unwrap();
        other.write_all(b"what?").await.unwrap();
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = UnixStream::connect(socket(dir.path())).await.unwrap();
            client.write_all(STOP_REQUEST).await.unwrap();
            clients.push(client);
            asked.next().await;
        }
        asked.answer().await;
        for mut client in clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, STOPPED);
        }
        assert!(!socket(dir.path()).exists());
    }
}
