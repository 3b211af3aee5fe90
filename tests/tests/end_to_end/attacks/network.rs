//! Attacks over the network and over sockets (8 to 13, 15).

use super::attack::AttackCase;

pub(super) fn attacks() -> Vec<AttackCase> {
    [internet(), sockets()].into_iter().flatten().collect()
}

fn internet() -> Vec<AttackCase> {
    vec![
        AttackCase::script(
            8,
            "connects by TCP",
            "network",
            (&["bash"], "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{tcp} && echo connected' || echo denied"),
        )
        .prints_outside("connected\n"),
        AttackCase::perl(
            8,
            "listens for TCP connections",
            "network",
            r#"use Socket; socket(S, PF_INET, SOCK_STREAM, 0) && bind(S, sockaddr_in(0, INADDR_LOOPBACK))
            && listen(S, 1) ? print "listens\n" : print $!+0, "\n""#,
        )
        .prints_outside("listens\n")
        .ends(0, "1\n"),
        AttackCase::script(
            9,
            "sends data by UDP",
            "network",
            (&["bash"], "bash -c 'echo x > /dev/udp/127.0.0.1/{udp} && echo sent' || echo denied"),
        )
        .prints_outside("sent\n"),
    ]
}

fn sockets() -> Vec<AttackCase> {
    vec![
        AttackCase::perl(
            10,
            "connects to a Unix socket in a directory that it can read",
            "unix_sockets",
            r#"use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un("{socket}"))
            ? print "connected\n" : print $!+0, "\n""#,
        )
        .prints_outside("connected\n")
        .ends(0, "1\n"),
        AttackCase::perl(
            10,
            "sends to a Unix socket by a pair of sockets",
            "unix_sockets",
            r#"use Socket; socketpair(A, B, PF_UNIX, SOCK_DGRAM, 0) && send(A, "x", 0, sockaddr_un("{datagrams}"))
            ? print "sent\n" : print $!+0, "\n""#,
        )
        .prints_outside("sent\n")
        .ends(0, "1\n"),
        AttackCase::perl(
            11,
            "connects to an abstract Unix socket",
            "unix_sockets",
            r#"use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, pack("S a*", 1, "\0{abstract}"))
            ? print "connected\n" : print $!+0, "\n""#,
        )
        .prints_outside("connected\n")
        .ends(0, "1\n"),
        AttackCase::perl(
            12,
            "opens sockets of other families: netlink, packet, crypto, vsock",
            "network",
            r#"for (16, 17, 38, 40) { print socket(S, $_, 3, 0) ? "open" : $!+0, " " }"#,
        )
        .prints_outside("open")
        .ends(0, "1 1 1 1 "),
        #[cfg(target_arch = "x86_64")]
        AttackCase::perl(
            13,
            "makes sockets by io_uring",
            "kernel_surface",
            r#"syscall(425, 1, 0); print $!+0, "\n""#,
        )
        .not_tried_outside("the settings of a machine may forbid io_uring to all")
        .ends(0, "1\n"),
        AttackCase::perl(
            15,
            "uses descriptors that the worker has inherited",
            "supervisor: closes descriptors",
            r#"my $n = 0; for (0 .. 1023) { open(my $f, ">&=", $_) and $n++ } print "$n\n""#,
        )
        .not_tried_outside("a worker without a sandbox closes them as well")
        .ends(0, "3\n"),
    ]
}
