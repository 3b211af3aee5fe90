//! Attacks on other processes: those that stay behind, signals, and memory of others (22 to 26).

use super::attack::{AttackCase, AttackConditions, Outside};

pub(super) fn attacks(facts: AttackConditions) -> Vec<AttackCase> {
    [leftovers(), signals(), memory(facts)].into_iter().flatten().collect()
}

fn leftovers() -> Vec<AttackCase> {
    const ENDED: &str = "a worker without a sandbox ends stray processes as well";
    vec![
        AttackCase::script(
            22,
            "starts daemons: setsid, two forks, nohup",
            "leftovers",
            (
                &["setsid", "sleep", "nohup"],
                "loop='while :; do sleep 1; done'
                setsid sh -c \": > a; $loop\" {outside} > /dev/null 2>&1 &
                setsid -f setsid -f sh -c \": > b; $loop\" {outside} > /dev/null 2>&1
                nohup sh -c \": > c; $loop\" {outside} > /dev/null 2>&1 &
                until [ -e a ] && [ -e b ] && [ -e c ]; do sleep 0.01; done; echo started",
            ),
        )
        .not_tried_outside(ENDED)
        .ends(0, "started\n")
        .leaves_strays(),
        AttackCase::script(
            23,
            "leaves a process that writes into the scratch directory of the next job",
            "leftovers",
            (
                &["setsid"],
                "setsid -f sh -c 'while :; do echo x > stray; done' {outside} > /dev/null 2>&1
                until [ -e stray ]; do :; done",
            ),
        )
        .then(&["ls", "seq"], "for i in $(seq 50); do ls -A; done; echo end")
        .not_tried_outside(ENDED)
        .ends(0, "end\n"),
    ]
}

fn signals() -> Vec<AttackCase> {
    const HARMFUL: &str = "the attack would end the test";
    vec![
        AttackCase::script(
            24,
            "kills another process of the same user",
            "signals",
            (&[], "kill -9 {decoy} && echo KILLED; echo end"),
        )
        .prints_outside("KILLED\n")
        .ends(0, "end\n"),
        AttackCase::script(
            24,
            "kills the worker, its supervisors and another job",
            "signals",
            (
                &[],
                "for p in {worker} {supervisor} {victim}; do kill -9 $p && echo KILLED; done
                for p in {worker} {victim}; do kill -9 -$p && echo KILLED; done; echo end",
            ),
        )
        .not_tried_outside(HARMFUL)
        .ends(0, "end\n"),
        AttackCase::script(
            24,
            "limits another process of the same user",
            "kernel_surface",
            (&["prlimit"], "prlimit --pid {decoy} --core=0:0 && echo LIMITED; echo end"),
        )
        .prints_outside("LIMITED\n")
        .ends(0, "end\n"),
        AttackCase::script(
            24,
            "limits the worker, its supervisors and another job",
            "kernel_surface",
            (
                &["prlimit"],
                "for p in {worker} {supervisor} {victim} 1 $PPID; do
                    prlimit --pid $p --cpu=1:1 && echo LIMITED; done; echo end",
            ),
        )
        .not_tried_outside(HARMFUL)
        .ends(0, "end\n"),
        #[cfg(target_arch = "x86_64")]
        AttackCase::perl(
            24,
            "kills threads of the worker and of others",
            "signals",
            r#"for ({worker}, {supervisor}, {victim}) {
                print "killed\n" if syscall(234, $_, $_, 9) == 0 or syscall(200, $_, 9) == 0 } print "end\n""#,
        )
        .not_tried_outside(HARMFUL)
        .ends(0, "end\n"),
        AttackCase::script(
            24,
            "kills the supervisor of its own job",
            "signals",
            (&[], "kill -9 1; kill -9 $PPID; kill -9 -1; echo alive"),
        )
        .not_tried_outside(HARMFUL)
        .ends(0, "alive\n"),
    ]
}

fn memory(facts: AttackConditions) -> Vec<AttackCase> {
    let traced = if facts.permits_tracing {
        Outside::Prints("opened\n")
    } else {
        Outside::NotTried("this machine forbids to trace other processes")
    };
    vec![
        #[cfg(target_arch = "x86_64")]
        AttackCase::perl(
            25,
            "reads the memory of others: ptrace, /proc/PID/mem, process_vm_readv, pidfd_getfd",
            "memory",
            r#"my ($b, $at) = ("\0" x 8, pack("QQ", 0x400000, 8)); my $to = pack("PQ", $b, 8);
            for my $p ({decoy}, {worker}, {supervisor}, {victim}, 1, getppid) {
                print "traced\n" if syscall(101, 0x4206, $p, 0, 0) == 0;
                print "opened\n" if open(my $f, "<", "/proc/$p/mem");
                $! = 0; syscall(310, $p, $to, 1, $at, 1, 0); print "read ", $!+0, "\n" if $! != 1 }
            $! = 0; syscall(438, 0, 0, 0); print "taken ", $!+0, "\n" if $! != 1; print "end\n""#,
        )
        .outside(traced)
        .ends(0, "end\n"),
        AttackCase::script(
            26,
            "reads the environment and the arguments of the worker",
            "memory",
            (
                &["cat"],
                "for p in {decoy} {worker} {supervisor} {victim}; do
                    for f in environ cmdline; do cat /proc/$p/$f > /dev/null && echo READ; done; done; echo end",
            ),
        )
        .prints_outside("READ\n")
        .ends(0, "end\n"),
    ]
}
