//! Sandboxes: options of commands.

mod options;

pub(crate) use self::options::{DEFAULT_PROFILE, ProfileArg, SandboxArgs, parse_profile, worker_options};
