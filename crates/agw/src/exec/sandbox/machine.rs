//! Examination of this machine: which properties of a sandbox it enforces.

use std::path::Path;

#[cfg(target_os = "linux")]
use agenix_sandbox::{
    client::User,
    control_group::ControlGroups,
    probe::{self, Machine, Means},
    property::Property,
    setup::Mechanism,
};
use agenix_sandbox::{report::Report, setup::Regime};

/// Result of the examination of this machine.
pub(crate) struct Examined {
    /// Way in which a supervisor keeps its tasks together, if one can start.
    pub(crate) regime: Option<Regime>,
    /// Properties of the profile `reader`.
    pub(crate) report: Report,
    /// Control groups, if one is delegated to this worker.
    #[cfg(target_os = "linux")]
    pub(crate) control_groups: Option<ControlGroups>,
}

/// Attacks a sandbox of `user` on this machine. Creates the files of the examination in
/// `directory`.
#[cfg(target_os = "linux")]
pub(crate) fn examine(directory: &Path, user: Option<User>) -> anyhow::Result<Examined> {
    use anyhow::Context;

    let scratch = tempfile::tempdir_in(directory).context("cannot create a directory for the examination")?;
    let without = without()?;
    let control_groups =
        (!without.contains(&Mechanism::ControlGroups)).then(ControlGroups::claim).transpose();
    let means = Means {
        executable: "/proc/self/exe".as_ref(),
        scratch: scratch.path(),
        user,
        control_groups: control_groups.as_ref().ok().and_then(Option::as_ref),
        without: &without,
    };
    let machine = probe::run(means).context("cannot create the files that the examination attacks")?;
    let Machine { regime, mut report } = machine;
    let control_groups = control_groups.unwrap_or_else(|missing| {
        report.missing.insert(Property::LimitsMemory, missing);
        None
    });
    Ok(Examined { regime, report, control_groups })
}

/// Returns the mechanisms that a test withholds.
#[cfg(target_os = "linux")]
pub(crate) fn without() -> anyhow::Result<std::collections::BTreeSet<agenix_sandbox::setup::Mechanism>> {
    use agenix_sandbox::setup::{WITHOUT_VARIABLE, mechanisms_of};
    use anyhow::Context;

    let list = std::env::var(WITHOUT_VARIABLE).unwrap_or_default();
    mechanisms_of(&list).context(WITHOUT_VARIABLE)
}

/// Returns the user of tasks: `name` or nobody for a worker that runs as root, and otherwise the
/// user of the worker.
#[cfg(target_os = "linux")]
pub(crate) fn user_of_tasks(name: Option<&str>) -> anyhow::Result<Option<User>> {
    use anyhow::{Context, bail};

    let found = name.map(|name| User::find(name).context("sandbox.user")).transpose()?;
    let own = rustix::process::geteuid();
    match found {
        Some(user) if user.uid == 0 => bail!("sandbox.user is root, whose tasks a sandbox cannot confine"),
        Some(user) if !own.is_root() && user.uid != own.as_raw() => {
            bail!("sandbox.user: only a worker that runs as root can run tasks as another user")
        }
        Some(user) => Ok(own.is_root().then_some(user)),
        None => Ok(own.is_root().then_some(User::NOBODY)),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn examine(_directory: &Path) -> anyhow::Result<Examined> {
    Ok(Examined { regime: None, report: agenix_sandbox::probe::report() })
}
