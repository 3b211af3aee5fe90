//! A worker that is started as the leader of a session with a terminal, as by `docker run -it`: its
//! tasks cannot use the terminal, and keys such as Ctrl-C reach the worker.

use std::{
    fs,
    io::{Read, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use e2e::{Agq, Lab, Ran, eventually, is_gone};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::support::{action, ended, only_job, plan};

/// Ctrl-C as a terminal sends it.
const CTRL_C: &[u8] = b"\x03";
/// Text that a task types into its terminal.
const TYPED: &str = "typed by a task";

/// Worker on a terminal.
struct OnTerminal {
    terminal: Child,
    log: PathBuf,
    leader: i32,
}

impl OnTerminal {
    /// Starts a worker as the leader of the session of a terminal.
    fn start(lab: &Lab, agq: &Agq) -> Self {
        let (log, leader) = (lab.path().join("log"), lab.path().join("leader"));
        let line = "echo $$ > leader; exec \"$AGW\" --worker-id w1 --max-concurrent-jobs 1 2> log";
        let mut terminal = worker_under("script", lab, agq);
        terminal.args(["--quiet", "--return", "--flush", "--command", line, "/dev/null"]);
        terminal.env("AGW", lab.bin().join("agw")).env("SHELL", "/bin/sh");
        terminal.stdin(Stdio::piped()).stdout(Stdio::piped());
        let terminal = terminal.spawn().unwrap();
        let is_registered = || fs::read_to_string(&log).ok()?.contains("is registered").then_some(());
        eventually("the worker registers", is_registered);
        let leader = fs::read_to_string(leader).unwrap().trim_end().parse().unwrap();
        Self { terminal, log, leader }
    }

    fn press(&mut self, key: &[u8]) {
        let keyboard = self.terminal.stdin.as_mut().unwrap();
        keyboard.write_all(key).unwrap();
        keyboard.flush().unwrap();
    }

    fn wait_for_log(&self, text: &str) {
        eventually(text, || fs::read_to_string(&self.log).ok()?.contains(text).then_some(()));
    }

    /// Waits for the end of the worker. Returns the exit code of the worker, and the text on the
    /// terminal.
    fn end(&mut self) -> Ran {
        let mut stdout = Vec::new();
        self.terminal.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        Ran::from(Output { status: self.terminal.wait().unwrap(), stdout, stderr: Vec::new() })
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        if self.terminal.try_wait().is_ok_and(|status| status.is_none()) {
            signal(self.leader, Signal::KILL);
            let _ended = self.terminal.kill();
            let _ended = self.terminal.wait();
        }
    }
}

/// Returns a command of `program` with the environment of a worker.
fn worker_under(program: &str, lab: &Lab, agq: &Agq) -> Command {
    let mut command = Command::new(program);
    for (name, value) in lab.command("agw").get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("AGQ_ADDR", agq.address()).current_dir(lab.path());
    command
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Submits an action of one job that records the id of its process, and runs until it is killed, or
/// until the file `go` exists. Returns the id of the process.
fn waiting_job(lab: &Lab, agq: &Agq) -> i32 {
    let script = "echo $$ > pid; until [ -e go ]; do sleep 0.02; done; echo done";
    lab.submit_plan(agq, &plan("wait", "sh", &["-c", script]));
    lab.submit_action(agq, "wait", "wait", "[{}]");
    eventually("the job starts", || {
        fs::read_to_string(lab.path().join("pid")).ok()?.strip_suffix('\n')?.parse().ok()
    })
}

#[test]
fn tasks_cannot_type_into_the_terminal_that_their_worker_is_started_on() {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let mut worker = OnTerminal::start(&lab, &agq);
    let types = "open(my $terminal, '+<', '/dev/tty') or do { print 'none'; exit }; \
        ioctl($terminal, 0x5412, my $key = $_) or die qq(TIOCSTI: $!) for split //, $ARGV[0]";
    lab.submit_plan(&agq, &plan("type", "perl", &["-e", types, TYPED]));
    lab.submit_action(&agq, "type", "type", "[{}]");
    let typed = ended(&lab, &agq, "type");
    assert_eq!(typed["stdout"], "none", "{typed}");
    // As all signals of keys, this one arrives once: a second one would end the job.
    waiting_job(&lab, &agq);
    worker.press(CTRL_C);
    worker.wait_for_log("draining");
    lab.file("go", "");
    let shown = worker.end().expect(0).out;
    assert!(!shown.contains(TYPED), "{shown:?}");
    assert_eq!(only_job(&lab, &agq, "wait")["stdout"], "done\n");
}

#[test]
fn signals_to_the_leader_of_the_session_reach_the_worker() {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let mut worker = OnTerminal::start(&lab, &agq);
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let leader = worker.leader.to_string();
    let children = fs::read_to_string(format!("/proc/{leader}/task/{leader}/children")).unwrap();
    let names = [name(&leader), name(children.trim())];
    assert_eq!(names, ["session-leader\n", "agw\n"], "`pkill agw` signals the worker alone");
    let task = waiting_job(&lab, &agq);
    for (number, effect) in [
        (Signal::TSTP, "quiet: no more jobs are claimed"),
        (Signal::CONT, "resumed: jobs are claimed again"),
        (Signal::HUP, "searching PATH again"),
        (Signal::TERM, "draining: no more jobs are claimed"),
    ] {
        signal(worker.leader, number);
        worker.wait_for_log(effect);
    }
    worker.press(CTRL_C);
    worker.end().expect(4);
    assert_eq!(action(&lab, &agq, "wait")["pending"], 1, "the second signal ends the job");
    assert!(is_gone(task));
}

#[test]
fn tasks_end_if_the_leader_of_the_session_is_killed() {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let mut worker = OnTerminal::start(&lab, &agq);
    let task = waiting_job(&lab, &agq);
    signal(worker.leader, Signal::KILL);
    worker.end().expect(128 + Signal::KILL.as_raw());
    eventually("its task is ended", || is_gone(task).then_some(()));
}

/// The kernel shows the session 0 to a worker whose leader is outside its PID namespace, as under
/// `unshare --pid --fork`.
#[test]
fn worker_runs_jobs_if_the_leader_of_its_session_is_outside_its_pid_namespace() {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let mut unshare = worker_under("unshare", &lab, &agq);
    if !geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--pid", "--fork", "--kill-child"]).arg(lab.bin().join("agw"));
    let mut unshare = unshare.args(["--worker-id", "w1"]).stdin(Stdio::null()).spawn().unwrap();
    lab.submit_plan(&agq, &plan("one", "echo", &["done"]));
    lab.submit_action(&agq, "one", "one", "[{}]");
    assert_eq!(ended(&lab, &agq, "one")["stdout"], "done\n");
    unshare.kill().unwrap();
    unshare.wait().unwrap();
}
