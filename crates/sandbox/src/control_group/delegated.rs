//! Delegation: decides whether the control group of this process is delegated to the process, and
//! claims the group.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, access, getxattr},
    process::{Pid, geteuid, getppid},
};

use super::PREFIX;
use crate::report::MissingProperty;

/// Controllers that the limits need.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// Extended attributes that systemd sets to `1` for a delegated group.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];
const REMEDY: &str = "start the worker as a service with Delegate=yes, or by \
    'systemd-run --user --scope -p Delegate=yes agw …'";

/// Claims the control group of this process, and returns its directory.
pub(super) fn claim() -> Result<PathBuf, MissingProperty> {
    let group =
        own_group().ok_or_else(|| missing("this system has no control groups of version 2".into()))?;
    check_delegation(&group)?;
    remove_abandoned(&group);
    hand_on(&group).map_err(|error| missing(format!("the control group {}: {error}", group.display())))?;
    Ok(group)
}

fn missing(reason: String) -> MissingProperty {
    MissingProperty { reason, remedy: REMEDY.into() }
}

/// Returns the directory of the control group (version 2) of this process, if there is one.
#[must_use]
pub fn own_group() -> Option<PathBuf> {
    let read = |path: &str| fs::read_to_string(path).ok();
    group_of(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
}

fn group_of(mounts: &str, own: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (fields, system) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        // A mount in a container may show only a part of the groups.
        let below = Path::new(own).strip_prefix(root).ok()?;
        system.starts_with("cgroup2 ").then(|| Path::new(place).join(below))
    })
}

fn check_delegation(group: &Path) -> Result<(), MissingProperty> {
    let name = group.display();
    let is_writable = |file: &str| access(group.join(file), Access::WRITE_OK).is_ok();
    if !["", "cgroup.procs", "cgroup.subtree_control"].into_iter().all(is_writable) {
        return Err(missing(format!("the control group {name} is not delegated to this worker")));
    }
    // Root can write everywhere, also where systemd decides.
    if geteuid().is_root() && is_of_systemd(group) {
        return Err(missing(format!("the control group {name} belongs to systemd")));
    }
    let available = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    let is_absent = |controller: &&str| !available.split_whitespace().any(|word| word == *controller);
    if let Some(absent) = CONTROLLERS.into_iter().find(is_absent) {
        return Err(missing(format!("the control group {name} has no controller '{absent}'")));
    }
    Ok(())
}

/// Returns true if systemd runs, and has not delegated the group.
fn is_of_systemd(group: &Path) -> bool {
    let is_delegated = |attribute: &str| {
        let mut value = [0; 8];
        getxattr(group, attribute, &mut value[..]).is_ok_and(|length| value[..length] == *b"1")
    };
    Path::new("/run/systemd/system").is_dir() && !DELEGATED.into_iter().any(is_delegated)
}

/// Moves the processes of `group` to a group below, and hands its controllers on.
fn hand_on(group: &Path) -> io::Result<()> {
    // The first group of the system, which has no events, may have processes.
    if group.join("cgroup.events").exists() {
        let processes = processes_of(group)?;
        check_owner(&processes)?;
        let leaf = group.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&leaf)?;
        for process in processes {
            fs::write(leaf.join("cgroup.procs"), process.to_string())?;
        }
    }
    let controllers = CONTROLLERS.map(|controller| format!("+{controller}")).join(" ");
    fs::write(group.join("cgroup.subtree_control"), controllers)
}

fn processes_of(group: &Path) -> io::Result<Vec<u32>> {
    let text = fs::read_to_string(group.join("cgroup.procs"))?;
    let number = |line: &str| line.parse().map_err(|_| io::ErrorKind::InvalidData.into());
    text.lines().map(number).collect()
}

/// Checks that all processes of the group are this worker, and the process that has moved it to a
/// session of its own.
fn check_owner(processes: &[u32]) -> io::Result<()> {
    let own = std::process::id();
    let executable = |id: &str| fs::read_link(format!("/proc/{id}/exe")).ok();
    let leader = getppid()
        .map(Pid::as_raw_pid)
        .filter(|parent| executable(&parent.to_string()) == executable("self"))
        .and_then(|parent| u32::try_from(parent).ok());
    match processes.iter().find(|&&process| process != own && Some(process) != leader) {
        Some(other) => Err(io::Error::other(format!("process {other} is in it as well"))),
        None => Ok(()),
    }
}

/// Removes groups of workers that have ended without removing them. Such a worker may have had the
/// process id of this worker.
fn remove_abandoned(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(worker) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let worker = worker.split('-').next().unwrap_or_default();
        let has_ended =
            |worker: u32| worker == std::process::id() || !Path::new(&format!("/proc/{worker}")).exists();
        if worker.parse().is_ok_and(has_ended) {
            // A group with processes cannot be removed.
            let _is_removed = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{group_of, remove_abandoned};

    const MOUNTS: &str = "24 1 0:22 / /proc rw - proc proc rw\n\
        30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn group_is_that_of_version_2() {
        let own = "4:memory:/old\n0::/system.slice/agw.service\n";
        let found = group_of(MOUNTS, own);
        assert_eq!(found.as_deref(), Some(Path::new("/sys/fs/cgroup/system.slice/agw.service")));
        assert_eq!(group_of(MOUNTS, "0::/\n").as_deref(), Some(Path::new("/sys/fs/cgroup")));
        assert_eq!(group_of(MOUNTS, "4:memory:/old\n"), None);
        assert_eq!(group_of("24 1 0:22 / /proc rw - proc proc rw\n", own), None);
    }

    #[test]
    fn mount_of_a_container_shows_the_groups_below_its_root() {
        let mounts = "30 24 0:26 /docker/c1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let found = group_of(mounts, "0::/docker/c1/agw\n");
        assert_eq!(found.as_deref(), Some(Path::new("/sys/fs/cgroup/agw")));
        assert_eq!(group_of(mounts, "0::/docker/c2\n"), None);
    }

    #[test]
    fn groups_of_ended_workers_are_removed_and_those_of_others_are_kept() {
        let parent = tempfile::tempdir().unwrap();
        let (own, of_init) = (format!("agw-{}-1", std::process::id()), "agw-1-1");
        // Linux has at most 4,194,304 process ids.
        for name in ["agw-4194305", "agw-4194305-7", &own, of_init, "agw-x", "other"] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        remove_abandoned(parent.path());
        let mut left: Vec<_> =
            fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [of_init, "agw-x", "other"]);
    }
}
