//! Fault: a step of a supervisor that failed, with the error of the system.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

/// Step of the set-up of a supervisor, of a job or of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Reads and checks what the worker asks for.
    Setup,
    /// Joins the control group, and checks its limits.
    ControlGroup,
    /// Checks that the user is not root.
    User,
    /// Keeps foreign descriptors from tasks.
    Descriptors,
    /// Creates the namespaces, and maps the user.
    Namespaces,
    /// Makes mounts private, and mounts the scratch file system.
    Mounts,
    /// Checks or empties the scratch directory.
    Scratch,
    /// Drops capabilities, and forbids new privileges.
    Privileges,
    /// Leaves the terminal.
    Terminal,
    /// Sets the resource limits.
    Limits,
    /// Restricts files, signals and sockets by Landlock.
    Landlock,
    /// Filters system calls.
    Seccomp,
    /// Compares the properties that hold with those that the profile needs.
    Properties,
    /// Reads or writes messages.
    Protocol,
    /// Restricts a job to its programs.
    Programs,
    /// Checks the environment of a task.
    Environment,
    /// Opens the working directory of a task.
    Cwd,
    /// Opens the stdin of a task.
    Stdin,
    /// Opens the stdout of a task.
    Stdout,
    /// Opens the stderr of a task.
    Stderr,
    /// Executes the program of a task.
    Exec,
    /// Ends the processes of a job.
    Clean,
}

impl Step {
    /// Returns the stable word of the step.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::ControlGroup => "control_group",
            Self::User => "user",
            Self::Descriptors => "descriptors",
            Self::Namespaces => "namespaces",
            Self::Mounts => "mounts",
            Self::Scratch => "scratch",
            Self::Privileges => "privileges",
            Self::Terminal => "terminal",
            Self::Limits => "limits",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Properties => "properties",
            Self::Protocol => "protocol",
            Self::Programs => "programs",
            Self::Environment => "environment",
            Self::Cwd => "cwd",
            Self::Stdin => "stdin",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Exec => "exec",
            Self::Clean => "clean",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("sandbox, step {step}: {detail}")]
pub struct StepFault {
    /// The step.
    pub step: Step,
    /// Error number of the system, if the system refused the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// Description with the name of what failed.
    pub detail: String,
}

impl StepFault {
    /// Creates a fault without an error of the system.
    pub fn new(step: Step, detail: impl Into<String>) -> Self {
        Self { step, errno: None, detail: detail.into() }
    }

    /// Creates a fault from an error of the system. `subject` names the call or the file.
    pub fn of(step: Step, subject: impl fmt::Display, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        Self { step, errno: error.raw_os_error(), detail: format!("{subject}: {error}") }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Step, StepFault};

    #[test]
    fn fault_names_its_step_and_the_error_of_the_system() {
        let fault = StepFault::of(Step::Stdin, "'/etc/shadow'", io::Error::from_raw_os_error(13));
        assert_eq!(fault.errno, Some(13));
        assert_eq!(fault.to_string(), "sandbox, step stdin: '/etc/shadow': Permission denied (os error 13)");
    }

    #[test]
    fn step_has_the_same_word_in_text_and_in_json() {
        for step in [Step::Setup, Step::Landlock, Step::Clean] {
            assert_eq!(serde_json::to_string(&step).unwrap(), format!("\"{step}\""));
        }
    }
}
