//! Streams of a task that starts: open files, and files that a sandbox opens for the task.

use std::os::fd::OwnedFd;

/// Source of stdin.
#[derive(Debug)]
pub(crate) enum Input<'p> {
    Descriptor(OwnedFd),
    /// A file of the plan that the sandbox opens.
    Path(&'p str),
}

/// Destination of stdout or stderr.
#[derive(Debug)]
pub(crate) enum Output<'p> {
    Descriptor(OwnedFd),
    /// A file of the plan that the sandbox opens.
    Path(&'p str),
    /// Same destination as stdout.
    Stdout,
}

/// Stdin, stdout and stderr of a task.
#[derive(Debug)]
pub(crate) struct Streams<'p> {
    pub(crate) stdin: Input<'p>,
    pub(crate) stdout: Output<'p>,
    pub(crate) stderr: Output<'p>,
}

impl Streams<'_> {
    /// Returns true if the sandbox opens a file for stdout or stderr.
    #[cfg(target_os = "linux")]
    pub(crate) fn have_paths(&self) -> bool {
        [&self.stdout, &self.stderr].into_iter().any(|output| matches!(output, Output::Path(_)))
    }
}
