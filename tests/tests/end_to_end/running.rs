//! A command that runs while the test reads its output.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct RunningCommand {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl RunningCommand {
    /// Starts a command without stdin.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::with_stdin(command, Stdio::null())
    }

    pub(crate) fn with_stdin(command: &mut Command, stdin: Stdio) -> Self {
        let piped = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        Self { child, out, err }
    }

    /// Reads a line of stdout.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    /// Reads a line of stderr.
    pub(crate) fn err_line(&mut self) -> String {
        let mut line = String::new();
        self.err.read_line(&mut line).unwrap();
        line
    }

    /// Reads `bytes` bytes of stdout.
    pub(crate) fn read(&mut self, bytes: usize) -> String {
        let mut text = vec![0; bytes];
        self.out.read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns the exit code, and the rest of stdout and stderr.
    pub(crate) fn end(mut self) -> (i32, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.err.read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code().unwrap(), out, err)
    }

    /// Closes stdout, and returns the exit code and the rest of stderr.
    pub(crate) fn end_unread(self) -> (i32, String) {
        let Self { mut child, out, mut err } = self;
        drop(out);
        let mut rest = String::new();
        err.read_to_string(&mut rest).unwrap();
        (child.wait().unwrap().code().unwrap(), rest)
    }

    /// Returns the rest of stdout and stderr. Panics if the command fails.
    pub(crate) fn succeed(self) -> (String, String) {
        let (code, out, err) = self.end();
        assert_eq!(code, 0, "{err}");
        (out, err)
    }
}
