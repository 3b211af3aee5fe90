//! Attacks on resources: processes, memory, disk, output, open files and time (16 to 21).

use serde_json::json;

use super::attack::{AttackCase, Stopped};

/// Reason for no case outside.
const WITHOUT_END: &str = "the attack would have no end";
/// Reason why a bound of the disk is missing.
const NO_DISK_LIMIT: &str = "the profile has to renounce limits_disk, or it gets no jobs";
/// Program in Perl that forks 200 times, and prints whether a limit has stopped it.
const FORKS: &str = r#"my $n = 0; for (1 .. 200) { my $p = fork; last unless defined $p; unless ($p) { sleep 2; exit } $n++ }
    print $n < 200 ? "bounded" : "unbounded", "\n"; sleep 1"#;

pub(super) fn attacks() -> Vec<AttackCase> {
    [resources(), disk(), time()].into_iter().flatten().collect()
}

fn resources() -> Vec<AttackCase> {
    vec![
        AttackCase::perl(16, "forks 200 times", "limits_process", FORKS)
            .profile("small")
            .prints_outside("unbounded\n")
            .ends(0, "bounded\n"),
        AttackCase::perl(
            16,
            "forks until another job with the same limit cannot fork",
            "limits_process",
            FORKS,
        )
        .not_tried_outside("a worker without a sandbox has no limit of its own")
        .ends(0, "bounded\n")
        .without_namespaces(Stopped::NotEnforced("the kernel counts the processes of all jobs together")),
        AttackCase::perl(
            17,
            "allocates 700 MiB",
            "limits_process",
            r#"my $x; vec($x, 700 << 20, 8) = 1; print "allocated\n""#,
        )
        .profile("small")
        .prints_outside("allocated\n")
        .ends(1, "")
        .says("Out of memory"),
        AttackCase::perl(
            20,
            "opens 100,000 files",
            "limits_process",
            r#"my @f; for (1 .. 100000) { open(my $f, "<", "/dev/null") or last; push @f, $f }
            print @f < 64 ? "bounded" : "unbounded", "\n""#,
        )
        .profile("small")
        .prints_outside("unbounded\n")
        .ends(0, "bounded\n"),
    ]
}

fn disk() -> Vec<AttackCase> {
    vec![
        AttackCase::script(
            18,
            "fills the disk",
            "limits_disk",
            (
                &["head", "cat", "wc"],
                "for i in 1 2 3 4; do head -c 600000 /dev/zero > f$i || echo full; done
                [ $(cat f* | wc -c) -le 1048576 ] && echo bounded || echo unbounded",
            ),
        )
        .profile("small")
        .prints_outside("unbounded\n")
        .ends(0, "full\nfull\nfull\nbounded\n")
        .without_namespaces(Stopped::NotEnforced(NO_DISK_LIMIT)),
        AttackCase::script(
            18,
            "creates files without end",
            "limits_disk",
            (
                &["touch", "seq", "ls", "wc"],
                "for i in $(seq 200); do touch n$i || break; done
                [ $(ls -A | wc -l) -le 100 ] && echo bounded || echo unbounded",
            ),
        )
        .profile("small")
        .prints_outside("unbounded\n")
        .ends(0, "bounded\n")
        .without_namespaces(Stopped::NotEnforced(NO_DISK_LIMIT)),
        AttackCase::perl(
            18,
            "makes a sparse file of 1 GiB",
            "limits_process",
            r#"$SIG{XFSZ} = "IGNORE"; open(my $f, ">", "f"); print truncate($f, 1 << 30) ? "grown" : $!+0, "\n""#,
        )
        .profile("small")
        .prints_outside("grown\n")
        .ends(0, "27\n"),
        AttackCase::tasks(19, "writes output without end", "limits_process", json!([{"command": "yes"}]))
            .profile("small")
            .not_tried_outside(WITHOUT_END)
            .stopped(Stopped::EndsWithCode(128 + 25))
            .says("limits.file_size = 1048576 bytes of profile small"),
    ]
}

fn time() -> Vec<AttackCase> {
    vec![
        AttackCase::script(21, "computes for ever", "limits_process", (&[], "while :; do :; done"))
            .profile("short")
            .not_tried_outside(WITHOUT_END)
            .ends(128 + 24, "")
            .says("limits.cpu_secs = 1 of profile short"),
        AttackCase::tasks(
            21,
            "sleeps for ever",
            "worker: timeout",
            json!([{"command": "sleep", "args": ["1000000"], "timeout_secs": 1}]),
        )
        .not_tried_outside("a worker without a sandbox ends it as well")
        .ends(128 + 15, "")
        .says("timed out"),
    ]
}
