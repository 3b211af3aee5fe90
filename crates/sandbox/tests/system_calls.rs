//! System calls that a task must not make, and others that it has to be able to make.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{fs, path::Path, process::Command};

use agenix_sandbox::{profile::Profile, setup::Regime};
use support::{TestSandbox, attack, directory, sandbox};

const PERL: &str = "/usr/bin/perl";

/// Numbers on x86-64 of calls that fail with EPERM, whatever their arguments are.
#[cfg(target_arch = "x86_64")]
const CALLS: [u32; 83] = [
    425, 426, 427, // io_uring
    321, 323, 298, 212, 175, 313, 176, 246, 320, // bpf, userfaultfd, perf, modules, kexec
    101, 310, 311, 438, 440, 312, 256, 279, // memory of others
    165, 166, 155, 161, 430, 431, 432, 433, 429, 428, 442, 272, 308, // mounts, namespaces
    304, 303, 300, 301, 179, 163, 167, // handles, quotas, swap
    319, 447, 250, // memfd, keys
    29, 68, 64, 240, // objects of System V and POSIX
    512, 513, 514, 515, 516, 517, 518, 519, 520, 521, 522, 523, 524, 525, 526, 527, 528,
    529, // x32 alone
    530, 531, 532, 533, 534, 535, 536, 537, 538, 539, 540, 541, 542, 543, 544, 545, 546, 547,
];

#[cfg(target_arch = "x86_64")]
#[test]
fn denied_calls_fail_with_eperm_in_both_numberings() {
    let numbers = CALLS.map(|number| number.to_string()).join(",");
    // The arguments are invalid, so the calls have no effect where they are permitted.
    let script = format!(
        "perl -e 'for my $n ({numbers}) {{ for my $bit (0, 0x40000000) {{
            $! = 0; syscall($n | $bit, -1, -1, -1, -1, -1); print \"$n: \", $!+0, \"\\n\" if $! != 1 }} }} print \"end\\n\"'"
    );
    for regime in [Regime::Namespaces, Regime::Subreaper] {
        let (ended, _) = attack(&mut sandbox(Profile::reader(), regime), &[PERL], &script);
        assert_eq!(ended.stdout, "end\n", "{regime:?}: {ended:?}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn calls_with_denied_arguments_fail_and_others_do_not() {
    // personality, clone with CLONE_NEWUSER, clone3, prlimit64, execveat of a descriptor.
    let script = r#"perl -e 'sub call { $! = 0; my $r = syscall(shift, @_); print $r < 0 ? $!+0 : "ok", " " }
        call(135, 0xffffffff); call(135, 0x0040000); call(56, 0x10000000 | 17, 0, 0, 0, 0); call(435, 0, 0);
        call(302, 0, 4, 0, 0); call(302, 1, 4, 0, 0); call(302, $$ + 0, 4, 0, 0);
        open(F, "<", "/bin/sh"); my $e = ""; call(322, fileno(F), $e, 0, 0, 0x1000); my $p = fork;
        exit 0 unless $p; waitpid $p, 0; print $?'"#;
    for regime in [Regime::Namespaces, Regime::Subreaper] {
        let (ended, _) = attack(&mut sandbox(Profile::reader(), regime), &[PERL], script);
        assert_eq!(ended.stdout, "ok 1 1 38 ok 1 1 1 0", "{regime:?}: {ended:?}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn pairs_of_sockets_are_those_that_stay_connected() {
    use agenix_sandbox::profile::Network;

    // Streams, packets in sequence, both with flags, datagrams, raw sockets, other families.
    let script = r#"perl -e 'my $pair = "\0" x 8; for ([1, 1], [1, 5], [1, 0x80801], [1, 0x80805], [1, 2], [1, 0x80802],
        [1, 3], [1, 0x80803], [2, 2], [2, 1], [16, 3], [38, 5]) {
        $! = 0; my $r = syscall(53, @$_, 0, $pair); print $r < 0 ? $!+0 : "ok", " " }'"#;
    for network in [Network::Off, Network::On] {
        for regime in [Regime::Namespaces, Regime::Subreaper] {
            let profile = Profile { network, ..Profile::reader() };
            let (ended, _) = attack(&mut sandbox(profile, regime), &[PERL], script);
            assert_eq!(ended.stdout, "ok ok ok ok 1 1 1 1 1 1 1 1 ", "{regime:?}, {network:?}: {ended:?}");
        }
    }
}

#[test]
fn threads_work_without_clone3() {
    let script = "seq 300000 | sort -n --parallel=4 -S 64M | tail -n 1";
    let programs = ["/usr/bin/seq", "/usr/bin/sort", "/usr/bin/tail"];
    let (ended, _) = attack(&mut TestSandbox::reader(), &programs, script);
    assert_eq!((&*ended.stdout, &*ended.stderr), ("300000\n", ""));
}

#[test]
fn dynamic_loader_runs_only_programs_that_are_confined_as_well() {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    if !Path::new(loader).exists() {
        return;
    }
    let mut sandbox = TestSandbox::reader();
    // Known: the loader of a program is executable, and it runs any program that it can read.
    let (ended, _) = attack(&mut sandbox, &[], &format!("{loader} /bin/cat {}", "/etc/hostname"));
    assert!(!ended.status.success() && ended.stderr.contains("ermission denied"), "{ended:?}");
    // A program in the scratch cannot be mapped.
    let copied = format!("cp /usr/bin/id copy; {loader} ./copy && echo ran; {loader} /usr/bin/id -u");
    let (ended, _) = attack(&mut sandbox, &["/bin/cp"], &copied);
    assert!(!ended.stdout.contains("ran") && !ended.stdout.starts_with("0\n"), "{ended:?}");
}

/// Returns a program for x86-64 that ends with 42 by a call of the 32-bit interface.
#[cfg(target_arch = "x86_64")]
fn program_with_a_32_bit_call() -> Vec<u8> {
    const ADDRESS: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    // mov eax, 1 (exit); mov ebx, 42; int 0x80
    let code = [0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80];
    let size = HEADERS + code.len() as u64;
    let half = |number: u16| number.to_le_bytes().to_vec();
    let word = |number: u32| number.to_le_bytes().to_vec();
    let long = |number: u64| number.to_le_bytes().to_vec();
    let header = [
        [b"\x7fELF\x02\x01\x01".to_vec(), vec![0; 9], half(2), half(62), word(1)].concat(),
        [long(ADDRESS + HEADERS), long(64), long(0), word(0)].concat(),
        [half(64), half(56), half(1), half(0), half(0), half(0)].concat(),
    ];
    let segment = [
        [word(1), word(5), long(0), long(ADDRESS), long(ADDRESS)].concat(),
        [long(size), long(size), long(4096)].concat(),
    ];
    [header.concat(), segment.concat(), code.to_vec()].concat()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn call_of_the_32_bit_interface_ends_the_task() {
    use std::os::unix::process::ExitStatusExt;

    let dir = directory();
    let (written, program) = (dir.path().join("written"), dir.path().join("program"));
    fs::write(&written, program_with_a_32_bit_call()).unwrap();
    support::install(&written, &program);
    let outside = Command::new(&program).status().unwrap();
    // A kernel without the 32-bit interface ends the program by SIGSEGV.
    assert!(matches!((outside.code(), outside.signal()), (Some(42), _) | (_, Some(11))), "{outside:?}");
    let profile = || Profile { read: vec![dir.path().to_str().unwrap().into()], ..Profile::reader() };
    for regime in [Regime::Namespaces, Regime::Subreaper] {
        let mut sandbox = sandbox(profile(), regime);
        let ended = sandbox.job(&[program.to_str().unwrap()]);
        let expected = if outside.code() == Some(42) { 31 } else { 11 };
        assert_eq!(ended.status.signal(), Some(expected), "SIGSYS, {regime:?}: {ended:?}");
    }
}
