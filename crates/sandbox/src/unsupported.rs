//! Systems other than Linux, which cannot enforce any profile: every call refuses.

/// Entry of the supervisor process.
pub mod supervisor {
    use std::{ffi::OsString, process::ExitCode};

    use crate::setup::SUPERVISOR_ARGUMENT;

    /// Returns true if the arguments of this executable, with argument 0, ask for a supervisor.
    #[must_use]
    pub fn is_requested(arguments: impl IntoIterator<Item = OsString>) -> bool {
        arguments.into_iter().nth(1).is_some_and(|argument| argument == SUPERVISOR_ARGUMENT)
    }

    /// Fails.
    #[must_use]
    pub fn main() -> ExitCode {
        ExitCode::FAILURE
    }
}

/// Side of the worker.
pub mod client {
    use crate::fault::{Step, StepFault};

    /// Returns the reason why no supervisor can start.
    #[must_use]
    pub fn refusal() -> StepFault {
        StepFault::new(Step::Setup, "only Linux can confine tasks; run untrusted jobs on a worker with Linux")
    }
}

/// Properties that this machine enforces.
pub mod probe {
    use crate::{
        property::Property,
        report::{MissingProperty, Report},
    };

    /// Returns a report in which no property holds.
    #[must_use]
    pub fn report() -> Report {
        let missing = |property| {
            let (reason, remedy) = ("this system is not Linux", "run untrusted jobs on a worker with Linux");
            (property, MissingProperty { reason: reason.into(), remedy: remedy.into() })
        };
        Report { missing: Property::ALL.into_iter().map(missing).collect(), ..Report::default() }
    }
}
