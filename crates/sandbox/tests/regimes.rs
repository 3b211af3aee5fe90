//! Limits, signals between tasks and their supervisor, and machines with fewer mechanisms.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{fs, os::unix::process::ExitStatusExt, process::Command};

use agenix_sandbox::{
    client::{Supervisor, SupervisorError},
    fault::{Step, StepFault},
    probe,
    profile::{Profile, ResourceLimits},
    property::{Property, PropertySet},
    setup::{Mechanism, Regime},
};
use support::{TestSandbox, directory, executable, give, is_root, settings, without_disk_limit};

const BOTH: [Regime; 2] = [Regime::Namespaces, Regime::Subreaper];

fn limited(limits: ResourceLimits, regime: Regime) -> TestSandbox {
    let profile = Profile { limits, ..Profile::reader() };
    let profile = if regime == Regime::Subreaper { without_disk_limit(profile) } else { profile };
    TestSandbox::start(profile, regime).unwrap()
}

fn refusal(profile: Profile, regime: Regime, without: &[Mechanism]) -> StepFault {
    let scratch = directory();
    let mut settings = settings(profile, regime, &scratch);
    settings.without = without.iter().copied().collect();
    match Supervisor::start(&settings) {
        Err(SupervisorError::Fault(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn processes_are_bounded() {
    let limits = ResourceLimits { processes: 20, ..ResourceLimits::default() };
    let mut sandbox = limited(limits, Regime::Namespaces);
    sandbox.begin(&["/usr/bin/perl"]);
    let bomb = "my $n = 0; while ($n < 500) { my $p = fork; last unless defined $p; sleep 1000 unless $p; $n++ } print $n";
    let ended = sandbox.start_task(&["/usr/bin/perl", "-e", bomb], |_| {}).unwrap();
    // The end of the first process ends its group, and so the children.
    let started: u32 = sandbox.wait(ended).unwrap().stdout.parse().unwrap();
    assert!((5..20).contains(&started), "{started}");
    sandbox.supervisor.clean().unwrap();
    assert!(sandbox.job(&["/bin/true"]).status.success());
}

#[test]
fn memory_of_a_process_is_bounded() {
    for regime in BOTH {
        let mut sandbox =
            limited(ResourceLimits { address_space: 256 << 20, ..ResourceLimits::default() }, regime);
        sandbox.begin(&["/usr/bin/perl"]);
        let allocate = |bytes: &str| format!("my $x = 'x' x ({bytes}); print length $x");
        assert_eq!(sandbox.run(&["/usr/bin/perl", "-e", &allocate("16 << 20")]).stdout, "16777216");
        let ended = sandbox.run(&["/usr/bin/perl", "-e", &allocate("512 << 20")]);
        assert!(!ended.status.success() && ended.stdout.is_empty(), "{regime:?}: {ended:?}");
        sandbox.supervisor.clean().unwrap();
    }
}

#[test]
fn files_are_bounded() {
    for regime in BOTH {
        let limits = ResourceLimits { file_size: 64 << 10, open_files: 40, ..ResourceLimits::default() };
        let mut sandbox = limited(limits, regime);
        sandbox.begin(&["/bin/sh", "/usr/bin/yes", "/usr/bin/perl"]);
        let ended = sandbox.run(&["/bin/sh", "-c", "yes > f; echo $?"]);
        assert_eq!(ended.stdout, "153\n", "SIGXFSZ, {regime:?}: {ended:?}");
        let open =
            "my @f; while (@f < 1000) { open(my $f, '<', '/dev/null') or last; push @f, $f } print scalar @f";
        let opened: u32 = sandbox.run(&["/usr/bin/perl", "-e", open]).stdout.parse().unwrap();
        assert!((20..40).contains(&opened), "{opened}");
        sandbox.supervisor.clean().unwrap();
    }
}

#[test]
fn processor_time_is_bounded() {
    let mut sandbox =
        limited(ResourceLimits { cpu_secs: 1, ..ResourceLimits::default() }, Regime::Namespaces);
    let ended = sandbox.job(&["/bin/sh", "-c", "while :; do :; done"]);
    assert_eq!(ended.status.signal(), Some(24), "SIGXCPU: {ended:?}");
    let ended = sandbox.job(&["/bin/sh", "-c", "trap '' XCPU; while :; do :; done"]);
    assert_eq!(ended.status.signal(), Some(9), "{ended:?}");
}

#[test]
fn scratch_is_bounded() {
    let limits = ResourceLimits { scratch_bytes: 1 << 20, scratch_inodes: 50, ..ResourceLimits::default() };
    let mut sandbox = limited(limits, Regime::Namespaces);
    sandbox.begin(&["/bin/sh", "/bin/dd", "/bin/rm", "/usr/bin/wc"]);
    let fill = "dd if=/dev/zero of=f bs=64k 2> /dev/null; wc -c < f; rm f
        i=0; while (: > $i) 2> /dev/null; do i=$((i + 1)); done; echo $i";
    assert_eq!(sandbox.run(&["/bin/sh", "-c", fill]).stdout, "1048576\n50\n");
    sandbox.supervisor.clean().unwrap();
    assert_eq!(sandbox.job(&["/bin/sh", "-c", "echo x > f && echo written"]).stdout, "written\n");
}

/// Signals to everything that a task can name.
const SIGNALS: &str = r#"perl -e '
    my $parent = getppid; kill(9, getppid); kill(19, $parent); kill(9, 1); kill(9, WORKER);
    for my $tid (1 .. 60, $parent .. $parent + 40) { for (1, $parent) { syscall(234, $_, $tid, 9) } }
    kill(9, $_) for (2 .. 60); print "end\n"'"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn tasks_cannot_end_a_supervisor_with_namespaces() {
    let mut sandbox = TestSandbox::reader();
    sandbox.begin(&["/bin/sh", "/usr/bin/perl", "/bin/true"]);
    let script = SIGNALS.replace("WORKER", &std::process::id().to_string());
    let _killed_by_itself = sandbox.run(&["/bin/sh", "-c", &script]);
    assert!(sandbox.run(&["/bin/true"]).status.success());
    sandbox.supervisor.clean().unwrap();
    assert!(sandbox.job(&["/bin/true"]).status.success());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn task_that_ends_its_supervisor_without_namespaces_ends_its_job() {
    let mut sandbox = TestSandbox::subreaper();
    sandbox.begin(&["/bin/sh", "/usr/bin/perl", "/usr/bin/setsid", "/bin/sleep"]);
    let script = SIGNALS.replace("WORKER", &std::process::id().to_string());
    let script = format!("setsid sleep 1000 & setsid -f sleep 1000; {script}; sleep 1000");
    let running = sandbox.start_task(&["/bin/sh", "-c", &script], |_| {}).unwrap();
    // The thread that starts tasks is in the domain of the tasks, so they can end it.
    let ended = sandbox.supervisor.wait(running.task);
    if ended.is_ok() {
        sandbox.supervisor.clean().unwrap();
    }
    // Daemons hold the outputs. Nothing of the job is left when the connection ends.
    running.output_ends();
    assert!(sandbox.supervisor.clean().is_err());
}

#[test]
fn daemons_end_with_their_job() {
    for regime in BOTH {
        let mut sandbox = limited(ResourceLimits::default(), regime);
        sandbox.begin(&["/bin/sh", "/usr/bin/setsid", "/bin/sleep"]);
        // The daemons hold the outputs, and the first process waits until both have started.
        let daemons = "setsid -f sh -c ': > a; exec sleep 1000'; setsid sh -c 'setsid -f sh -c \": > b; exec sleep 1000\"' &
            until [ -e a ] && [ -e b ]; do :; done";
        let running = sandbox.start_task(&["/bin/sh", "-c", daemons], |_| {}).unwrap();
        sandbox.supervisor.wait(running.task).unwrap();
        let cleaned = sandbox.supervisor.clean().unwrap();
        assert!(cleaned.strays >= 2, "{regime:?}: {cleaned:?}");
        running.output_ends();
    }
}

#[test]
fn root_is_refused() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    for regime in BOTH {
        let mut settings = settings(Profile::reader(), regime, &scratch);
        settings.user = None;
        let refused = Supervisor::start(&settings).unwrap_err();
        assert!(matches!(&refused, SupervisorError::Fault(StepFault { step: Step::User, .. })), "{refused}");
    }
}

#[test]
fn profile_is_refused_without_a_mechanism_that_it_needs() {
    let reader = || without_disk_limit(Profile::reader());
    let namespaces = refusal(reader(), Regime::Namespaces, &[Mechanism::Namespaces]);
    assert_eq!(namespaces.step, Step::Namespaces);
    assert!(namespaces.detail.contains("AppArmor"), "{namespaces}");
    let landlock = refusal(reader(), Regime::Namespaces, &[Mechanism::Landlock]);
    assert_eq!(landlock.step, Step::Properties);
    let without_landlock =
        "files_read, files_write, exec and terminal are not enforced: the kernel has no Landlock";
    assert!(landlock.detail.starts_with(without_landlock), "{landlock}");
    assert_eq!(refusal(reader(), Regime::Subreaper, &[Mechanism::Landlock]).step, Step::Landlock);
    for regime in BOTH {
        let filter = refusal(reader(), regime, &[Mechanism::Seccomp]);
        assert_eq!(filter.step, Step::Properties);
        assert!(filter.detail.contains("network, unix_sockets, "), "{filter}");
        assert!(filter.detail.contains(" are not enforced: system calls are not filtered"), "{filter}");
    }
    let disk = refusal(Profile::reader(), Regime::Subreaper, &[]);
    assert!(disk.detail.starts_with("limits_disk is not enforced: "), "{disk}");
}

#[test]
fn scratch_with_content_and_absent_paths_are_refused() {
    let scratch = directory();
    fs::write(scratch.path().join("file"), "").unwrap();
    let refused = Supervisor::start(&settings(Profile::reader(), Regime::Namespaces, &scratch)).unwrap_err();
    assert!(matches!(&refused, SupervisorError::Fault(StepFault { step: Step::Scratch, .. })), "{refused}");
    assert!(scratch.path().join("file").exists());
    let absent = Profile { read: vec!["/no/such/path".into()], ..Profile::reader() };
    let refused = refusal(absent, Regime::Namespaces, &[]);
    assert_eq!(refused.step, Step::Landlock);
    assert!(refused.detail.contains("/no/such/path"), "{refused}");
    let small = ResourceLimits { address_space: 64 << 20, ..ResourceLimits::default() };
    // The supervisor of the tests is small; that of a worker might not be.
    limited(small, Regime::Namespaces).job(&["/bin/true"]);
}

#[test]
fn probe_finds_what_this_machine_enforces() {
    let probe = |without: &[Mechanism]| {
        let scratch = directory();
        give(scratch.path());
        let user = settings(Profile::reader(), Regime::Namespaces, &scratch).user;
        let without = without.iter().copied().collect();
        let means = probe::Means {
            executable: executable(),
            scratch: scratch.path(),
            user,
            control_groups: None,
            without: &without,
        };
        probe::run(means).unwrap()
    };
    let missing =
        |machine: &probe::Machine| PropertySet::all().without(&machine.report.properties()).to_string();
    let all = probe(&[]);
    assert_eq!((all.regime, &*missing(&all)), (Some(Regime::Namespaces), "limits_memory"), "{all:?}");
    let no_namespaces = probe(&[Mechanism::Namespaces]);
    assert_eq!(no_namespaces.regime, Some(Regime::Subreaper), "{no_namespaces:?}");
    assert_eq!(missing(&no_namespaces), "limits_disk,limits_memory", "{no_namespaces:?}");
    let needs = [Property::LimitsDisk].into_iter().collect();
    let text = no_namespaces.report.unmet(&needs).concat();
    assert!(text.contains("they are switched off"), "{text}");
    assert_eq!(text.matches("AppArmor").count(), 1, "{text}");
    let no_landlock = probe(&[Mechanism::Landlock]);
    assert_eq!(
        missing(&no_landlock),
        "files_read,files_write,exec,terminal,limits_memory",
        "{no_landlock:?}"
    );
    let nothing = probe(&[Mechanism::Landlock, Mechanism::Namespaces]);
    assert_eq!((nothing.regime, nothing.report.enforced.len()), (None, 0), "{nothing:?}");
    let no_filter = probe(&[Mechanism::Seccomp]);
    assert!(missing(&no_filter).contains("network"), "{no_filter:?}");
}

#[test]
fn machine_without_user_namespaces_is_found_out() {
    // The test runs in a user namespace that may have no further ones, as a user that is not root
    // there.
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-c"]);
    unshare.arg("echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"").arg("sh");
    unshare.arg(std::env::current_exe().unwrap());
    let name = "machine_without_user_namespaces_inside";
    let output = unshare.args(["--exact", name, "--nocapture"]).env(INSIDE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Environment variable of the process that [`machine_without_user_namespaces_is_found_out`]
/// starts.
const INSIDE: &str = "AGENIX_SANDBOX_TEST_INSIDE";

#[test]
fn machine_without_user_namespaces_inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let refused = refusal(Profile::reader(), Regime::Namespaces, &[]);
    let no_space = rustix::io::Errno::NOSPC.raw_os_error();
    assert_eq!((refused.step, refused.errno), (Step::Namespaces, Some(no_space)), "{refused}");
    let scratch = directory();
    let means = probe::Means {
        executable: executable(),
        scratch: scratch.path(),
        user: None,
        control_groups: None,
        without: &[].into(),
    };
    let machine = probe::run(means).unwrap();
    assert_eq!(machine.regime, Some(Regime::Subreaper), "{machine:?}");
    let missing = PropertySet::all().without(&machine.report.properties()).to_string();
    assert_eq!(missing, "limits_disk,limits_memory", "{machine:?}");
    let mut sandbox = TestSandbox::subreaper();
    assert_eq!(sandbox.job(&["/bin/sh", "-c", "echo $((6 * 7))"]).stdout, "42\n");
}
