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
