//! What `agx up` and `agx join` leave in the background: it starts an agq, an agw, or both, starts them again when they end, and
//! ends them when it is told to. One directory is its own: what to run, the logs, the socket by which it is told.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::{fs::OpenOptionsExt, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use agenix_client::Backoff;
use agenix_protocol::documents::{parse, to_json};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    process::{Child, ChildStdin, Command},
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep},
};

use crate::{failure::Failure, local::settings_of_others};

const SPEC: &str = "keeper.json";
const SOCKET: &str = "keeper.sock";
/// Who ran at least so long starts again at once.
const STEADY: Duration = Duration::from_secs(60);
/// What is said on the socket.
const DOWN: &[u8] = b"down\n";
const GONE: &str = "gone\n";

/// What is to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) parts: Vec<Part>,
}

/// One program of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    /// `agq` or `agw`; its log is named after it.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
}

/// Starts a keeper in the background. What its first part says on stdout, to the first line, is the answer; an error is what it said
/// on stderr. Where something is kept there already, that is told.
pub(crate) fn start(dir: &Path, spec: &Spec) -> Result<String, Failure> {
    if is_there(dir) {
        return Err(Failure::usage(
            format!("something is kept running in {} already", dir.display()),
            "`agx down` ends it",
        ));
    }
    let cannot = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| {
            Failure::usage(format!("cannot {what}: {error}"), "is there room, and is it allowed?")
        }
    };
    crate::files::write_whole(dir, SPEC, to_json(spec).as_bytes())?;
    let own = std::env::current_exe().map_err(cannot("find agx"))?;
    let mut keeper = std::process::Command::new(own);
    keeper
        .arg("keep")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log(dir, "keeper").map_err(cannot("write a log"))?);
    let mut keeper = keeper.spawn().map_err(cannot("start agx"))?;
    let mut said = String::new();
    if let Some(stdout) = keeper.stdout.take() {
        BufReader::new(stdout).read_line(&mut said).map_err(cannot("hear of it"))?;
    }
    match said.trim().strip_prefix("ok ") {
        Some(line) => Ok(line.to_owned()),
        None => {
            let _ended = keeper.wait();
            let log = spec.parts.first().map(|part| last_words(dir, &part.name)).unwrap_or_default();
            Err(Failure::usage(format!("it could not be started: {log}"), "mend that and try again"))
        }
    }
}

/// Tells a keeper to end what it runs, and itself. Whether there was one.
pub(crate) fn stop(dir: &Path) -> Result<bool, Failure> {
    let Ok(mut keeper) = StdUnixStream::connect(dir.join(SOCKET)) else { return Ok(false) };
    let mut said = String::new();
    let asked = keeper.write_all(DOWN).and_then(|()| keeper.read_to_string(&mut said));
    match asked {
        Ok(_) if said == GONE => Ok(true),
        Ok(_) => {
            Err(Failure::usage("it ended without a word", format!("look at its log in {}", dir.display())))
        }
        Err(error) => Err(Failure::usage(
            format!("it does not answer: {error}"),
            format!("look at its log in {}", dir.display()),
        )),
    }
}

/// Whether a keeper is at work in the directory.
pub(crate) fn is_there(dir: &Path) -> bool {
    StdUnixStream::connect(dir.join(SOCKET)).is_ok()
}

fn log(dir: &Path, name: &str) -> io::Result<fs::File> {
    fs::OpenOptions::new().create(true).append(true).mode(0o600).open(dir.join(name).with_extension("log"))
}

/// The end of a log.
fn last_words(dir: &Path, name: &str) -> String {
    let log = fs::read_to_string(dir.join(name).with_extension("log")).unwrap_or_default();
    log.lines().last().unwrap_or("it said nothing").to_owned()
}

/// The keeper itself, until it is told to end.
pub(crate) async fn run(dir: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::usage(error.to_string(), "look at its directory");
    // A session of its own: the terminal may go.
    let _leads_already = rustix::process::setsid();
    let spec: Spec = fs::read(dir.join(SPEC)).map_err(failed).and_then(|json| {
        parse(&json).map_err(|error| Failure::usage(error.to_string(), "start it with `agx up`"))
    })?;
    // Nobody listens there: the one who started us has looked.
    let _left_behind = fs::remove_file(dir.join(SOCKET));
    let listener = UnixListener::bind(dir.join(SOCKET)).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let mut kept = Vec::new();
    for part in &spec.parts {
        let mut one = Kept::start(dir, part).map_err(failed)?;
        if part.name == "agq" {
            let line = one.first_line().await;
            if !line.contains("listens on") {
                return Err(Failure::usage("agq does not listen", "look at its log"));
            }
            say(&line);
        }
        kept.push(one);
    }
    say("started");
    let asked = loop {
        tokio::select! {
            _ = terminate.recv() => break None,
            _ = hangup.recv() => {}
            asked = listener.accept() => {
                if let Some(asked) = asked_to_end(asked).await {
                    break Some(asked);
                }
            }
            () = ended(&mut kept) => {}
        }
    };
    // The workers first: what they finish is still reported.
    for one in kept.iter_mut().rev() {
        one.end().await;
    }
    // The answer is that nobody is there any more.
    let _gone = fs::remove_file(dir.join(SOCKET));
    if let Some(mut asked) = asked {
        let _nobody_waits = asked.write_all(GONE.as_bytes()).await;
    }
    Ok(())
}

/// Tells whoever started us, once: the first word counts, and later nobody reads.
fn say(line: &str) {
    let _nobody_reads = writeln!(io::stdout().lock(), "ok {}", line.trim());
}

async fn asked_to_end(asked: io::Result<(UnixStream, tokio::net::unix::SocketAddr)>) -> Option<UnixStream> {
    let (mut stream, _) = asked.ok()?;
    let mut word = vec![0; DOWN.len()];
    stream.read_exact(&mut word).await.ok()?;
    (word == DOWN).then_some(stream)
}

/// A program that is kept running.
struct Kept {
    dir: PathBuf,
    part: Part,
    child: Option<Child>,
    /// Held apart: waiting for a child would close it, and that would be its end.
    stdin: Option<ChildStdin>,
    since: Instant,
    backoff: Backoff,
}

/// Waits until one has ended, and starts it again; not at once where it does not stay.
async fn ended(kept: &mut [Kept]) {
    let all = kept.iter_mut().map(|one| Box::pin(one.again()));
    futures_util::future::select_all(all).await;
}

impl Kept {
    fn start(dir: &Path, part: &Part) -> io::Result<Self> {
        let mut child = spawn(dir, part)?;
        let (dir, part, stdin) = (dir.to_owned(), part.clone(), child.stdin.take());
        Ok(Self { dir, part, child: Some(child), stdin, since: Instant::now(), backoff: Backoff::default() })
    }

    /// What it says first on stdout; nothing where it ends before.
    async fn first_line(&mut self) -> String {
        use tokio::io::AsyncBufReadExt;
        let mut line = String::new();
        if let Some(stdout) = self.child.as_mut().and_then(|child| child.stdout.take()) {
            let _ended = tokio::io::BufReader::new(stdout).read_line(&mut line).await;
        }
        line
    }

    async fn again(&mut self) {
        if let Some(child) = &mut self.child {
            let _status = child.wait().await;
            self.child = None;
        }
        if self.since.elapsed() > STEADY {
            self.backoff.reset();
        }
        sleep(self.backoff.next_wait()).await;
        self.child = spawn(&self.dir, &self.part).ok();
        self.stdin = self.child.as_mut().and_then(|child| child.stdin.take());
        self.since = Instant::now();
    }

    /// Tells it to end, and waits until it has.
    async fn end(&mut self) {
        let Some(child) = &mut self.child else { return };
        let pid = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        if let Some(pid) = pid {
            let _gone = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _status = child.wait().await;
    }
}

fn spawn(dir: &Path, part: &Part) -> io::Result<Child> {
    let mut command = Command::new(&part.program);
    command.args(&part.args).stdin(Stdio::piped()).stderr(log(dir, &part.name)?);
    command.stdout(if part.name == "agq" { Stdio::piped() } else { Stdio::null() });
    for name in settings_of_others() {
        command.env_remove(name);
    }
    command.spawn()
}
