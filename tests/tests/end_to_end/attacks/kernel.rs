//! Attacks on the kernel, on terminals and on privileges (14, 27, 28, 32 to 34).

use serde_json::json;

use super::attack::{AttackCase, AttackConditions, Outside, Stopped};

pub(super) fn attacks(facts: AttackConditions) -> Vec<AttackCase> {
    let mut all = vec![terminal(), namespaces(facts)];
    #[cfg(target_arch = "x86_64")]
    all.extend(calls(facts));
    if facts.honours_set_user_id {
        let command = json!([{"command": "id-of-root", "args": ["-u"]}]);
        let attack = AttackCase::tasks(32, "runs a program with the set-user-ID bit", "privileges", command);
        all.push(attack.prints_outside("0\n").ends(0, "{user}\n"));
    }
    all
}

fn terminal() -> AttackCase {
    let script = r#"(exec 3<> /dev/tty) || echo denied; (exec 3<> /dev/ptmx) || echo denied
        perl -e 'my $c = "i"; for (0x5412, 0x541c) { ioctl(STDIN, $_, $c) or print $!+0, "\n" }'"#;
    AttackCase::script(28, "opens a terminal, and types into one", "terminal", (&["perl"], script))
        .not_tried_outside("the test has no terminal")
        .ends(0, "denied\ndenied\n1\n1\n")
}

fn namespaces(facts: AttackConditions) -> AttackCase {
    let script = "unshare -Ur echo created || echo denied; unshare -n echo created || echo denied";
    let attack = AttackCase::script(34, "creates namespaces", "kernel_surface", (&["unshare"], script));
    let outside = if facts.permits_namespaces {
        Outside::Prints("created\n")
    } else {
        Outside::NotTried("this machine forbids namespaces to users")
    };
    attack.outside(outside).ends(0, "denied\ndenied\n")
}

#[cfg(target_arch = "x86_64")]
fn calls(facts: AttackConditions) -> Vec<AttackCase> {
    let end = if facts.has_32_bit_calls { 128 + 31 } else { 128 + 11 };
    let says = if facts.has_32_bit_calls { "a system call that profile reader does not permit" } else { "" };
    vec![
        AttackCase::tasks(
            14,
            "makes a system call of the 32-bit interface",
            "kernel_surface",
            json!([{"command": "call-32"}]),
        )
        .not_tried_outside("the program only ends with an exit code, which the test has checked")
        .stopped(Stopped::EndsWithCode(end))
        .says(says),
        AttackCase::perl(
            14,
            "makes a system call of the x32 interface",
            "kernel_surface",
            r#"for (41, 425, 272) { $! = 0; syscall(0x40000000 | $_, -1, -1, -1); print $!+0, " " }"#,
        )
        .not_tried_outside("few kernels have the x32 interface")
        .ends(0, "1 1 1 "),
        AttackCase::perl(
            27,
            "reads and adds keys of the session",
            "kernel_surface",
            r#"for (248, 249, 250) { $! = 0; syscall($_, 0, -3, 1, 0, 0); print $!+0, " " }"#,
        )
        .not_tried_outside("a kernel may have no keys")
        .ends(0, "1 1 1 "),
        AttackCase::perl(
            32,
            "runs with the permission to gain privileges",
            "privileges",
            r#"print "no_new_privs ", syscall(157, 39, 0, 0, 0, 0), "\n""#,
        )
        .prints_outside("no_new_privs 0\n")
        .ends(0, "no_new_privs 1\n"),
        AttackCase::perl(
            32,
            "has capabilities",
            "privileges",
            r#"my ($of, $sets) = (pack("II", 0x20080522, 0), "\0" x 24); syscall(125, $of, $sets);
            print unpack("H*", $sets), "\n""#,
        )
        .not_tried_outside("a user has none outside either")
        .ends(0, "000000000000000000000000000000000000000000000000\n"),
        // bpf, userfaultfd, perf_event_open, mount, umount2, fsopen, move_mount, pivot_root,
        // chroot, unshare, setns, kexec_load, kexec_file_load, init_module, finit_module,
        // delete_module, open_by_handle_at, swapon, reboot, quotactl.
        AttackCase::perl(
            33,
            "calls parts of the kernel that no task needs",
            "kernel_surface",
            r#"for (321, 323, 298, 165, 166, 430, 429, 155, 161, 272, 308, 246, 320, 175, 313, 176, 304, 167, 169,
                179) { $! = 0; syscall($_, -1, -1, -1, -1, -1); print "$_: ", $!+0, "\n" if $! != 1 } print "end\n""#,
        )
        .not_tried_outside("users may make few of these calls outside either")
        .ends(0, "end\n"),
    ]
}
