//! Runs one stage: starts its processes from first to last, joins them, waits for all, and collects what they left.

use std::os::unix::fs::FileTypeExt;
use std::{
    collections::HashMap,
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use agenix_protocol::documents::{Kept, Plans, TaskResult};
use futures_util::future::join_all;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use crate::{
    joint::{Joint, Passage, joint},
    pipeline::{Command, Stage, Stderr, Stdin, Stdout},
    process::{Ended, Process},
    quota::{Quota, Room, Verdict},
    shortage::{self, Shortage},
    spool::{Spool, Spooled, kept},
    stop::Stop,
    toolbox::Toolbox,
    transcript::{Transcript, Written},
};

/// What running needs besides the stage itself.
#[derive(Debug, Clone)]
pub(crate) struct Workshop {
    pub(crate) toolbox: Toolbox,
    pub(crate) plans: Plans,
    pub(crate) spool: Spool,
    /// Most bytes of a stream that are kept for the result.
    pub(crate) kept_bytes: usize,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) kill_grace: Duration,
    pub(crate) quota: Quota,
    /// Permits for the open files of running jobs, at most as many as the system allows.
    pub(crate) files: Arc<Semaphore>,
    pub(crate) most_files: u32,
    pub(crate) shortage: Arc<Shortage>,
}

/// What tasks wrote, for the tasks that read it.
pub(crate) type Outputs = HashMap<u32, Arc<Spooled>>;

/// A process of the stage with what it writes to.
struct Running {
    process: Process,
    stdout: Out,
    /// What it complained of, where that is kept for the result.
    stderr: Option<Arc<Spooled>>,
}

impl Running {
    /// What of it can be followed.
    fn written(&self, command: &Command) -> Written {
        let stdout = match &self.stdout {
            Out::File(file) if command.stdout == Stdout::Spool => Some(Arc::clone(file)),
            _ => None,
        };
        let (task_number, command) = (command.task_number, command.program.clone());
        Written { task_number, command, stdout, stderr: self.stderr.clone() }
    }
}

enum Out {
    File(Arc<Spooled>),
    Joint(Passage),
}

/// Runs the stage; its spooled output goes to `outputs`. When `stop` is called its processes are told to end. The error is
/// for people: the stage could not be run.
pub(crate) async fn run(
    stage: &Stage,
    workshop: &Workshop,
    outputs: &mut Outputs,
    (stop, transcript): (&Stop, &Transcript),
) -> Result<Vec<TaskResult>, TaskResult> {
    let mut running = Vec::with_capacity(stage.commands.len());
    let mut before = None;
    for command in &stage.commands {
        // Whatever runs already is killed when `running` is dropped.
        let (started, to_next) = start_patiently(command, before.as_ref(), workshop, outputs, stop)
            .await
            .map_err(|error| not_started(command, &error))?;
        transcript.add(started.written(command));
        running.push(started);
        before = to_next;
    }
    let (ended, excess) = tokio::select! {
        ended = wait(&mut running, workshop.kill_grace, stop) => (ended, None),
        excess = exceeded(workshop, transcript) => {
            // The grace is zero, because the job writes on during any grace.
            (end(&mut running).await, Some(excess))
        }
    };
    let mut results = Vec::with_capacity(running.len());
    for ((command, running), ended) in stage.commands.iter().zip(running).zip(ended) {
        let ignored = !stage.pipefail && command.stdout == Stdout::Pipe;
        let result = collect(command, running, ended, workshop, outputs).await;
        results.push(TaskResult { ignored, ..result });
    }
    if let Some((task_number, text)) = excess {
        transcript.cut(workshop.kept_bytes as u64);
        let at = results.iter().position(|result| result.task_number == task_number).unwrap_or_default();
        if let Some(result) = results.get_mut(at) {
            result.ignored = false;
            // A task that ended with 0 at this moment must still count as failed.
            if result.exit_code == 0 {
                result.exit_code = 1;
            }
            append(
                &mut result.stderr,
                &format!("agw: task {task_number} was ended: {text}\n"),
                workshop.kept_bytes,
            );
        }
    }
    Ok(results)
}

/// Waits until the output of the job exceeds the quota, and returns the task with the most output
/// and the reason.
async fn exceeded(workshop: &Workshop, transcript: &Transcript) -> (u32, String) {
    loop {
        // A disk without readable statistics counts as unlimited.
        let room = workshop.spool.room().unwrap_or(Room { free: u64::MAX, total: u64::MAX });
        let (used, task_number) = transcript.taken();
        match workshop.quota.judge(used, room) {
            Verdict::Fits(wait) => sleep(wait).await,
            Verdict::Exceeds(text) => return (task_number, text),
        }
    }
}

/// Kills all processes of the stage at the same time.
async fn end(running: &mut [Running]) -> Vec<io::Result<Ended>> {
    join_all(running.iter_mut().map(|running| running.process.end_now(Duration::ZERO))).await
}

/// Appends `line` to the kept stderr of a task. Earlier text is cut off, because `line` must be
/// complete.
fn append(kept: &mut Kept, line: &str, most: usize) {
    kept.bytes.truncate(most.saturating_sub(line.len() + 1));
    if kept.bytes.last().is_some_and(|last| *last != b'\n') {
        kept.bytes.push(b'\n');
    }
    kept.bytes.extend(line.as_bytes());
    kept.total = kept.total.max(kept.bytes.len() as u64);
}

/// Starts a command, and waits during a shortage until the system has the resources.
async fn start_patiently(
    command: &Command,
    before: Option<&io::PipeReader>,
    workshop: &Workshop,
    outputs: &Outputs,
    stop: &Stop,
) -> io::Result<(Running, Option<io::PipeReader>)> {
    let mut wait = None;
    loop {
        match start(command, before, workshop, outputs) {
            Err(error) if shortage::is_one(&error) && !stop.is_called() => {
                let wait = wait.get_or_insert_with(|| workshop.shortage.wait());
                tokio::select! {
                    () = sleep(wait.failed(&error, Instant::now())) => {}
                    () = stop.called() => {}
                }
            }
            started => {
                if started.is_ok() {
                    workshop.shortage.over();
                }
                return started;
            }
        }
    }
}

fn start(
    command: &Command,
    before: Option<&io::PipeReader>,
    workshop: &Workshop,
    outputs: &Outputs,
) -> io::Result<(Running, Option<io::PipeReader>)> {
    let Some(program) = workshop.toolbox.path(&command.program) else {
        let text = format!("'{}' is not among the tools of this worker", command.program);
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    };
    if let Some(cwd) = command.cwd.as_deref().filter(|cwd| !Path::new(cwd).is_dir()) {
        return Err(io::Error::other(format!("its cwd '{cwd}' is not a directory on this worker")));
    }
    let stdin = match (&command.stdin, before) {
        // The child gets a copy of the pipe, because the start may have to be repeated.
        (Stdin::Pipe, Some(pipe)) => Stdio::from(pipe.try_clone()?),
        (Stdin::Text(text), _) => workshop.spool.file_with(text)?.into(),
        (Stdin::File(path), _) => open(command, "stdin_file", path)?.into(),
        (Stdin::Task(from), _) => match outputs.get(from) {
            Some(file) => file.open()?.into(),
            None => workshop.spool.nothing(),
        },
        (Stdin::Empty | Stdin::Pipe, _) => workshop.spool.nothing(),
    };
    let (stdout, child_stdout, to_next): (Out, OwnedFd, _) = match &command.stdout {
        Stdout::Pipe => {
            let Joint { from_task, to_task, passage } = joint()?;
            (Out::Joint(passage), from_task.into(), Some(to_task))
        }
        Stdout::File(path) => {
            let file = create(command, "stdout", path)?;
            (Out::File(Arc::new(file.try_clone()?.into())), file.into(), None)
        }
        Stdout::Spool => {
            let file = workshop.spool.file()?;
            let opened = file.open()?;
            (Out::File(Arc::new(file)), opened.into(), None)
        }
    };
    let (stderr, child_stderr): (_, OwnedFd) = match &command.stderr {
        Stderr::Spool => {
            let file = workshop.spool.file()?;
            let opened = file.open()?;
            (Some(Arc::new(file)), opened.into())
        }
        Stderr::File(path) => (None, create(command, "stderr", path)?.into()),
        Stderr::Stdout => (None, child_stdout.try_clone()?),
    };
    let process = Process::start(program, command, stdin, child_stdout.into(), child_stderr.into())?;
    Ok((Running { process, stdout, stderr }, to_next))
}

/// Opens a file of the user's to be read.
fn open(command: &Command, field: &str, path: &str) -> io::Result<File> {
    let place = place(command, field, path)?;
    // Else the error would say that the program was not found.
    File::open(place).map_err(|error| match shortage::is_of_descriptors(&error) {
        true => error,
        false => io::Error::other(format!("{field} '{path}': {error}")),
    })
}

/// Makes a file of the user's to be written.
fn create(command: &Command, field: &str, path: &str) -> io::Result<File> {
    let place = place(command, field, path)?;
    File::create(place).map_err(|error| match shortage::is_of_descriptors(&error) {
        true => error,
        false => io::Error::new(error.kind(), format!("{field} '{path}': {error}")),
    })
}

/// Where a file of the user's is.
fn place(command: &Command, field: &str, path: &str) -> io::Result<PathBuf> {
    let place = Path::new(command.cwd.as_deref().unwrap_or(".")).join(path);
    // Opening a FIFO waits for whoever is at its other end, and nothing could end that.
    if place.metadata().is_ok_and(|found| found.file_type().is_fifo()) {
        return Err(io::Error::other(format!("{field} '{path}' is a FIFO: name a file")));
    }
    Ok(place)
}

/// A task that could not be started has the exit code that a shell would give it.
fn not_started(command: &Command, error: &io::Error) -> TaskResult {
    let text = format!("agw: task {} could not be started: {error}\n", command.task_number);
    TaskResult {
        task_number: command.task_number,
        command: command.program.clone(),
        exit_code: if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 },
        stderr: Kept { total: text.len() as u64, bytes: text.into_bytes() },
        ..TaskResult::default()
    }
}

/// Waits for all. When one runs out of its time the others are ended too: they wait for each other.
async fn wait(running: &mut [Running], grace: Duration, stop: &Stop) -> Vec<io::Result<Ended>> {
    let (late, is_late) = tokio::sync::watch::channel(false);
    let late = &late;
    let waits = running.iter_mut().map(|running| {
        let mut others_late = is_late.clone();
        async move {
            let ended = tokio::select! {
                ended = running.process.wait(grace) => ended,
                _ = others_late.changed() => running.process.end_now(grace).await,
                () = stop.called() => running.process.end_now(grace).await,
            };
            if ended.as_ref().is_ok_and(|ended| ended.timed_out) {
                late.send_replace(true);
            }
            ended
        }
    });
    join_all(waits).await
}

async fn collect(
    command: &Command,
    running: Running,
    ended: io::Result<Ended>,
    workshop: &Workshop,
    outputs: &mut Outputs,
) -> TaskResult {
    let Running { process, stdout, stderr } = running;
    drop(process);
    let cap = workshop.kept_bytes;
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return not_started(command, &error),
    };
    let unreadable =
        |error: &io::Error| Kept { bytes: format!("agw: unreadable: {error}").into_bytes(), total: 0 };
    let kept_stdout = match stdout {
        Out::Joint(passage) => Kept { bytes: Vec::new(), total: passage.count(workshop.kill_grace).await },
        Out::File(file) => {
            let is_users = matches!(command.stdout, Stdout::File(_));
            let kept = kept(&file, if is_users { 0 } else { cap }).unwrap_or_else(|error| unreadable(&error));
            outputs.insert(command.task_number, file);
            kept
        }
    };
    TaskResult {
        task_number: command.task_number,
        command: command.program.clone(),
        exit_code: ended.exit_code(),
        signal: ended.signal(),
        timed_out: ended.timed_out,
        ignored: false,
        stdout: kept_stdout,
        stderr: stderr.map_or_else(Kept::default, |stderr| {
            kept(&stderr, cap).unwrap_or_else(|error| unreadable(&error))
        }),
        duration_ms: u64::try_from(ended.after.as_millis()).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::Kept;

    use super::append;

    #[test]
    fn a_line_is_kept_whole_behind_what_a_task_complained_of() {
        let appended = |bytes: &[u8], total, most| {
            let mut kept = Kept { bytes: bytes.to_vec(), total };
            append(&mut kept, "ended\n", most);
            (String::from_utf8(kept.bytes).unwrap(), kept.total)
        };
        assert_eq!(appended(b"", 0, 100), ("ended\n".into(), 6));
        assert_eq!(appended(b"one", 3, 100), ("one\nended\n".into(), 10));
        assert_eq!(appended(b"y\ny\ny\ny\n", 9000, 10), ("y\ny\nended\n".into(), 9000));
    }
}
