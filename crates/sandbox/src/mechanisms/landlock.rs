//! Landlock: restricts files, the execution of programs, TCP, signals and abstract Unix sockets.
//!
//! Each right is a hard requirement: either the kernel handles it, or the step fails. The rights
//! are those of the newest version (ABI) that both the kernel and the crate know.
//!
//! A supervisor has two domains. The domain of the profile restricts the whole process, once. The
//! right to execute depends on the programs of a job, so a thread restricts itself once more for
//! these programs, and starts the tasks of the job (`supervisor::job`). The thread continues for
//! further jobs with the same programs, so most jobs need no new domain.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope,
};

use crate::fault::{Step, StepFault};

/// Versions that have added rights, newest first.
const VERSIONS: [ABI; 6] = [ABI::V10, ABI::V9, ABI::V6, ABI::V5, ABI::V4, ABI::V3];
/// First version that handles truncation, without which written files are not protected.
const FIRST_WITH_TRUNCATE: ABI = ABI::V3;
/// First version that scopes signals.
const FIRST_WITH_SIGNALS: ABI = ABI::V6;

/// Programs, libraries and data of the system that every task reads. Absent files are skipped.
const SYSTEM: [&str; 20] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/ssl/certs",
    "/etc/timezone",
];
/// Files that programs read to find hosts.
const RESOLVER: [&str; 6] =
    ["/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/protocols", "/etc/resolv.conf", "/etc/services"];
/// Devices that every task reads and writes.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Files that the tasks of a profile may use.
#[derive(Debug)]
pub(crate) struct PermittedFiles {
    /// Paths to read, each of which has to exist.
    pub(crate) read: Vec<PathBuf>,
    /// Paths to read and write, each of which has to exist.
    pub(crate) write: Vec<PathBuf>,
    /// True if `/proc` shows only processes of the sandbox, so that tasks may read it.
    pub(crate) has_own_proc: bool,
    /// True if the profile has a network.
    pub(crate) has_network: bool,
}

/// Landlock of this kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Landlock {
    rights: ABI,
}

impl Landlock {
    /// Returns the Landlock of this kernel, or `None` without one that protects files.
    pub(crate) fn of_kernel() -> Option<Self> {
        let handles = |rights: &ABI| {
            hard().handle_access(AccessFs::from_all(*rights)).is_ok()
                && {
                    let net = AccessNet::from_all(*rights);
                    net.is_empty() || hard().handle_access(net).is_ok()
                }
                && {
                    let scope = Scope::from_all(*rights);
                    scope.is_empty() || hard().scope(scope).is_ok()
                }
        };
        let rights = VERSIONS.into_iter().find(handles)?;
        (rights >= FIRST_WITH_TRUNCATE).then_some(Self { rights })
    }

    /// Returns the number of the version whose rights are used.
    pub(crate) fn version(self) -> u32 {
        self.rights as u32
    }

    pub(crate) fn scopes_signals(self) -> bool {
        self.rights >= FIRST_WITH_SIGNALS
    }

    /// Restricts this thread to the files of a profile, and to signals and abstract sockets of its
    /// domain. Threads and processes that this thread starts inherit the domain.
    pub(crate) fn restrict_files(self, files: &PermittedFiles) -> Result<(), StepFault> {
        let mut ruleset = hard().handle_access(AccessFs::from_all(self.rights)).map_err(fault)?;
        if !files.has_network && !AccessNet::from_all(self.rights).is_empty() {
            ruleset = ruleset.handle_access(AccessNet::from_all(self.rights)).map_err(fault)?;
        }
        let mut created = self.scoped(ruleset)?.create().map_err(fault)?;
        let read = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
        let resolver = if files.has_network { &RESOLVER[..] } else { &[] };
        for path in SYSTEM.iter().chain(resolver).map(Path::new).filter(|path| path.exists()) {
            created = self.allow(created, path, read)?;
        }
        for path in DEVICES.map(Path::new).into_iter().filter(|path| path.exists()) {
            created = self.allow(created, path, AccessFs::ReadFile | AccessFs::WriteFile)?;
        }
        if files.has_own_proc {
            created = self.allow(created, Path::new("/proc"), AccessFs::ReadFile | AccessFs::ReadDir)?;
        }
        for path in &files.read {
            created = self.allow(created, path, read)?;
        }
        for path in &files.write {
            created = self.allow(created, path, read | self.write())?;
        }
        finish(created)
    }

    /// Restricts this thread to the execution of `programs`. `write` are the paths of
    /// [`PermittedFiles::write`]: a domain forbids renames between directories that it does not
    /// name.
    pub(crate) fn restrict_programs(self, programs: &[PathBuf], write: &[PathBuf]) -> Result<(), StepFault> {
        let ruleset = hard().handle_access(AccessFs::Execute | AccessFs::Refer).map_err(fault)?;
        let mut created = self.scoped(ruleset)?.create().map_err(fault)?;
        for program in programs {
            created = self.allow(created, program, AccessFs::Execute.into())?;
        }
        for path in write.iter().filter(|path| path.is_dir()) {
            created = self.allow(created, path, AccessFs::Refer.into())?;
        }
        finish(created)
    }

    /// Restricts this thread to signals of its domain.
    pub(crate) fn restrict_signals(self) -> Result<(), StepFault> {
        if !self.scopes_signals() {
            return Err(StepFault::new(Step::Landlock, "this kernel has no signal scope; use Linux 6.12"));
        }
        let ruleset = hard().scope(Scope::Signal).and_then(|ruleset| ruleset.handle_access(AccessFs::Refer));
        let created = ruleset.and_then(Ruleset::create).map_err(fault)?;
        // A domain forbids renames between directories that it does not name.
        finish(self.allow(created, Path::new("/"), AccessFs::Refer.into())?)
    }

    fn scoped(self, ruleset: Ruleset) -> Result<Ruleset, StepFault> {
        match Scope::from_all(self.rights) {
            scope if scope.is_empty() => Ok(ruleset),
            scope => ruleset.scope(scope).map_err(fault),
        }
    }

    /// Returns the rights to change files, except devices and sockets.
    fn write(self) -> BitFlags<AccessFs> {
        let withheld = AccessFs::MakeChar
            | AccessFs::MakeBlock
            | AccessFs::MakeSock
            | AccessFs::IoctlDev
            | AccessFs::ResolveUnix;
        AccessFs::from_write(self.rights) & !withheld
    }

    fn allow(
        self,
        created: RulesetCreated,
        path: &Path,
        rights: BitFlags<AccessFs>,
    ) -> Result<RulesetCreated, StepFault> {
        let refused = |error: &dyn std::fmt::Display| {
            StepFault::new(Step::Landlock, format!("'{}': {error}", path.display()))
        };
        let opened = PathFd::new(path).map_err(|error| refused(&error))?;
        // The kernel refuses rights of directories for a file.
        let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(self.rights) };
        created.add_rule(PathBeneath::new(opened, rights)).map_err(|error| refused(&error))
    }
}

fn hard() -> Ruleset {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement)
}

/// Restricts this thread, and checks the answer of the kernel.
fn finish(created: RulesetCreated) -> Result<(), StepFault> {
    let status: RestrictionStatus = created.restrict_self().map_err(fault)?;
    let is_enforced = status.ruleset == RulesetStatus::FullyEnforced
        && status.no_new_privs
        && matches!(status.landlock, LandlockStatus::Available { .. });
    if is_enforced {
        Ok(())
    } else {
        Err(StepFault::new(Step::Landlock, format!("the kernel enforces a part: {status:?}")))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the argument of map_err")]
fn fault(error: RulesetError) -> StepFault {
    StepFault::new(Step::Landlock, error.to_string())
}
