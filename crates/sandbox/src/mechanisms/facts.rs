//! Facts: answers of the kernel during the set-up, and the report that follows from them.

use crate::{
    mechanisms::namespaces,
    profile::{Execute, Network, Profile},
    property::Property,
    report::{MissingProperty, Report},
};

/// Answers of the kernel during the set-up of a supervisor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// True if the supervisor is PID 1 of its namespaces, with a bounded scratch file system.
    pub(crate) has_namespaces: bool,
    /// Version of the Landlock rights that hold.
    pub(crate) landlock: Option<u32>,
    /// True if Landlock scopes signals.
    pub(crate) scopes_signals: bool,
    /// True if system calls are filtered.
    pub(crate) has_filter: bool,
    /// True if a control group bounds processes and memory.
    pub(crate) has_control_group: bool,
}

/// Returns the report for `profile`. The steps without an optional mechanism (limits, terminal,
/// capabilities) have succeeded.
pub(crate) fn report(profile: &Profile, facts: Facts) -> Report {
    let mut report = Report::default();
    for property in Property::ALL {
        match mechanism(property, profile, facts) {
            Ok(by) => drop(report.enforced.insert(property, by)),
            Err(missing) => drop(report.missing.insert(property, missing)),
        }
    }
    report
}

fn mechanism(property: Property, profile: &Profile, facts: Facts) -> Result<String, MissingProperty> {
    let namespaces = |name: &str| facts.has_namespaces.then(|| name.to_owned());
    let landlock = || facts.landlock.map(|version| format!("Landlock {version}"));
    let filter = || facts.has_filter.then(|| "seccomp".to_owned());
    let any = |mechanisms: [Option<String>; 2], missing: MissingProperty| {
        let mechanisms: Vec<String> = mechanisms.into_iter().flatten().collect();
        if mechanisms.is_empty() { Err(missing) } else { Ok(mechanisms.join(" + ")) }
    };
    let both = |mechanisms: [Option<String>; 2], missing: MissingProperty| match mechanisms {
        [Some(one), Some(other)] => Ok(format!("{one} + {other}")),
        _ => Err(missing),
    };
    let signals =
        || facts.landlock.filter(|_| facts.scopes_signals).map(|version| format!("Landlock {version}"));
    match property {
        Property::FilesRead => landlock().ok_or_else(no_landlock),
        // Landlock has no rights for chmod(2), chown(2), utimensat(2) and setxattr(2).
        Property::FilesWrite => landlock()
            .map(|by| format!("{by}, without modes, owners, times and attributes"))
            .ok_or_else(no_landlock),
        Property::Exec if profile.execute == Execute::Any => Err(permitted("execute = \"any\"")),
        Property::Exec => both([landlock(), filter()], no_landlock_or_filter(facts)),
        Property::Network if profile.network == Network::On => Err(permitted("network = \"on\"")),
        Property::Network => {
            // A socket of another network namespace would be a way out, so the filter is needed.
            let filter = filter().ok_or_else(no_filter)?;
            Ok(namespaces("network namespace")
                .map_or(filter.clone(), |network| format!("{network} + {filter}")))
        }
        Property::UnixSockets | Property::KernelSurface => filter().ok_or_else(no_filter),
        Property::Signals => any([namespaces("PID namespace"), signals()], no_signals()),
        Property::Memory => {
            let others = any([namespaces("PID namespace"), landlock()], no_landlock())?;
            Ok(format!("{others} + {}", filter().ok_or_else(no_filter)?))
        }
        Property::Leftovers => {
            let processes = namespaces("PID namespace");
            let subreaper = signals().map(|scope| format!("child subreaper + {scope}"));
            let processes = processes.or(subreaper).ok_or_else(no_signals)?;
            // Shared memory of System V and message queues outlive their processes.
            Ok(format!("{processes} + {}", filter().ok_or_else(no_filter)?))
        }
        Property::Terminal => {
            let devices = both([landlock(), filter()], no_landlock_or_filter(facts))?;
            Ok(format!("setsid + {devices}"))
        }
        Property::Privileges => Ok("no_new_privs, no capabilities".into()),
        Property::LimitsProcess if facts.has_control_group => Ok("resource limits + control group".into()),
        Property::LimitsProcess if facts.has_namespaces => Ok("resource limits".into()),
        // Without a user namespace of each job, the kernel counts processes for the user.
        Property::LimitsProcess => Ok("resource limits, processes counted for all jobs together".into()),
        Property::LimitsDisk => namespaces("tmpfs + resource limits").ok_or_else(|| MissingProperty {
            reason: "without a mount namespace, the scratch directory has no bound of its own".into(),
            remedy: namespaces::REMEDY.into(),
        }),
        Property::LimitsMemory if facts.has_control_group => Ok("control group".into()),
        Property::LimitsMemory => Err(MissingProperty {
            reason: "the supervisor has no control group".into(),
            remedy: "delegate a control group to the worker".into(),
        }),
    }
}

fn permitted(by: &str) -> MissingProperty {
    MissingProperty { reason: format!("the profile has {by}"), remedy: "change the profile".into() }
}

fn no_landlock() -> MissingProperty {
    MissingProperty {
        reason: "the kernel has no Landlock with the right to truncate".into(),
        remedy: "use Linux 6.2 or later with 'landlock' in its list of security modules (lsm=)".into(),
    }
}

fn no_filter() -> MissingProperty {
    MissingProperty {
        reason: "system calls are not filtered".into(),
        remedy: "use a kernel with seccomp filters, and allow seccomp(2) to the worker".into(),
    }
}

fn no_landlock_or_filter(facts: Facts) -> MissingProperty {
    if facts.landlock.is_none() { no_landlock() } else { no_filter() }
}

fn no_signals() -> MissingProperty {
    MissingProperty {
        reason: "there is neither a PID namespace nor the signal scope of Landlock".into(),
        remedy: format!("use Linux 6.12 or later, or {}", namespaces::REMEDY),
    }
}

#[cfg(test)]
mod tests {
    use super::{Facts, report};
    use crate::{
        profile::Profile,
        property::{Property, PropertySet},
    };

    const ALL: Facts = Facts {
        has_namespaces: true,
        landlock: Some(6),
        scopes_signals: true,
        has_filter: true,
        has_control_group: true,
    };

    fn missing(profile: &Profile, facts: Facts) -> String {
        let report = report(profile, facts);
        assert_eq!(report.enforced.len() + report.missing.len(), Property::ALL.len());
        profile.needs().without(&report.properties()).to_string()
    }

    #[test]
    fn all_mechanisms_meet_the_needs_of_each_built_in_profile() {
        for profile in [Profile::reader(), Profile::builder(), Profile::network()] {
            assert_eq!(missing(&profile, ALL), "", "{}", profile.name);
        }
    }

    #[test]
    fn each_absent_mechanism_leaves_its_properties_unmet() {
        let reader = Profile::reader();
        let without_namespaces = Facts { has_namespaces: false, ..ALL };
        assert_eq!(missing(&reader, without_namespaces), "limits_disk");
        let old = Facts { landlock: Some(3), scopes_signals: false, ..without_namespaces };
        assert_eq!(missing(&reader, old), "signals,leftovers,limits_disk");
        assert_eq!(missing(&reader, Facts { scopes_signals: false, ..ALL }), "");
        let without_landlock = Facts { landlock: None, scopes_signals: false, ..ALL };
        assert_eq!(missing(&reader, without_landlock), "files_read,files_write,exec,terminal");
        let without_filter = Facts { has_filter: false, ..ALL };
        assert_eq!(
            missing(&reader, without_filter),
            "exec,network,unix_sockets,memory,leftovers,terminal,kernel_surface"
        );
    }

    #[test]
    fn report_names_the_shared_count_of_processes_without_namespaces() {
        let by = |facts| report(&Profile::reader(), facts).enforced[&Property::LimitsProcess].clone();
        let with_group = Facts { has_namespaces: false, ..ALL };
        assert_eq!(by(with_group), "resource limits + control group");
        let without_group = Facts { has_control_group: false, ..ALL };
        assert_eq!(by(without_group), "resource limits");
        let shared = by(Facts { has_namespaces: false, ..without_group });
        assert_eq!(shared, "resource limits, processes counted for all jobs together");
    }

    #[test]
    fn report_names_what_landlock_does_not_protect() {
        let enforced = report(&Profile::reader(), ALL).enforced;
        assert_eq!(enforced[&Property::FilesRead], "Landlock 6");
        let written = &enforced[&Property::FilesWrite];
        assert_eq!(written, "Landlock 6, without modes, owners, times and attributes");
    }

    #[test]
    fn memory_of_a_job_is_bounded_by_a_control_group_alone() {
        let limited =
            Profile { needs: Some([Property::LimitsMemory].into_iter().collect()), ..Profile::reader() };
        assert_eq!(missing(&limited, ALL), "");
        assert_eq!(missing(&limited, Facts { has_control_group: false, ..ALL }), "limits_memory");
    }

    #[test]
    fn permissions_of_a_profile_are_not_reported_as_enforced() {
        let all = PropertySet::all();
        let unmet = |profile: &Profile| all.without(&report(profile, ALL).properties()).to_string();
        assert_eq!(unmet(&Profile::reader()), "");
        assert_eq!(unmet(&Profile::builder()), "exec");
        assert_eq!(unmet(&Profile::network()), "network");
    }
}
