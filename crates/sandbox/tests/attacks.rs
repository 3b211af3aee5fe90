//! Attacks of tasks on their sandbox, by real tools. Each attack is tried in both regimes, and also
//! outside a sandbox where it is harmless, to show that it would succeed there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{
    fs,
    io::ErrorKind,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram, UnixListener},
    },
    path::Path,
    process::Command,
};

use agenix_sandbox::{profile::Profile, setup::Regime};
use support::{attack, directory, sandbox};
use tempfile::TempDir;

/// Text that no task may read.
const SECRET: &str = "the-secret-of-the-owner";
/// Name of an abstract Unix socket, with the process id of the test.
const ABSTRACT: &str = "agenix-sandbox-test";

/// Objects outside the sandbox that attacks name by `{name}`.
struct OutsideObjects {
    dir: TempDir,
    _unix: UnixListener,
    _abstract: UnixListener,
    tcp: TcpListener,
    udp: UdpSocket,
    datagrams: UnixDatagram,
}

impl OutsideObjects {
    fn new() -> Self {
        let dir = directory();
        fs::write(dir.path().join("secret"), SECRET).unwrap();
        fs::create_dir(dir.path().join("open")).unwrap();
        let everyone = |name: &str| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            fs::set_permissions(dir.path().join(name), mode).unwrap();
        };
        everyone("open");
        everyone("secret");
        let unix = UnixListener::bind(dir.path().join("socket")).unwrap();
        everyone("socket");
        let datagrams = UnixDatagram::bind(dir.path().join("datagrams")).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        everyone("datagrams");
        let name = format!("{ABSTRACT}-{}", dir.path().display());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        let abstract_name = UnixListener::bind_addr(&address).unwrap();
        Self {
            dir,
            _unix: unix,
            _abstract: abstract_name,
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp,
            datagrams,
        }
    }

    fn fill(&self, text: &str) -> String {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        text.replace("{secret}", &path("secret"))
            .replace("{open}", &path("open"))
            .replace("{socket}", &path("socket"))
            .replace("{datagrams}", &path("datagrams"))
            .replace("{abstract}", &format!("{ABSTRACT}-{}", self.dir.path().display()))
            .replace("{tcp}", &self.tcp.local_addr().unwrap().port().to_string())
            .replace("{udp}", &self.udp.local_addr().unwrap().port().to_string())
            .replace("{pid}", &std::process::id().to_string())
    }

    /// Returns true if a packet has arrived.
    fn has_packet(&self) -> bool {
        let received = [self.udp.recv(&mut [0; 16]), self.datagrams.recv(&mut [0; 16])];
        received.into_iter().any(|received| match received {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        })
    }
}

/// A shell script, and what its stdout is.
struct Attack {
    name: &'static str,
    /// Programs beside the shell.
    programs: &'static [&'static str],
    script: &'static str,
    /// Stdout outside, or a part of it. `None` if the attack is not tried outside.
    outside: Option<&'static str>,
    /// Whole stdout inside.
    inside: &'static str,
}

const PERL: &str = "/usr/bin/perl";

/// Attacks with their numbers in the threat model.
const ATTACKS: &[Attack] = &[
    Attack {
        name: "1 reads a file",
        programs: &["/bin/cat"],
        script: "cat {secret} || echo denied",
        outside: Some(SECRET),
        inside: "denied\n",
    },
    Attack {
        name: "2 reads a file by a path with ..",
        programs: &["/bin/cat"],
        script: "cat /usr/bin/../..{secret} || echo denied",
        outside: Some(SECRET),
        inside: "denied\n",
    },
    Attack {
        name: "3 reads a file through a link that changes",
        programs: &["/bin/cat", "/bin/ln", "/usr/bin/seq", "/usr/bin/sort"],
        script: "echo mine > mine; (while :; do ln -sfn mine l; ln -sfn {secret} l; done) & \
            for i in $(seq 300); do cat l; done 2> /dev/null | sort -u; kill $!",
        outside: Some(SECRET),
        inside: "mine\n",
    },
    Attack {
        name: "5 reads a file through /proc",
        programs: &["/bin/cat"],
        script: "for p in self 1 $PPID {pid}; do cat /proc/$p/root{secret} && echo READ; done; \
            cat /proc/1/environ /proc/$PPID/environ && echo READ; echo end",
        outside: Some(SECRET),
        inside: "end\n",
    },
    Attack {
        name: "6 moves and links a file out of the scratch",
        programs: &["/bin/ln", "/bin/mv"],
        script: "echo x > f; ln f {open}/f || echo denied; mv f {open}/g || echo denied; [ -e {open}/g ] || echo absent",
        outside: Some(""),
        inside: "denied\ndenied\nabsent\n",
    },
    Attack {
        name: "7 writes a file that is read later",
        programs: &["/bin/mkdir"],
        script: "(echo x > {open}/.bashrc) || echo denied; mkdir -p {open}/.git/hooks || echo denied; \
            (echo x >> {secret}) || echo denied",
        outside: Some(""),
        inside: "denied\ndenied\ndenied\n",
    },
    Attack {
        name: "8 connects by TCP",
        programs: &["/bin/bash"],
        script: "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{tcp} && echo connected' || echo denied",
        outside: Some("connected\n"),
        inside: "denied\n",
    },
    Attack {
        name: "9 sends by UDP",
        programs: &["/bin/bash"],
        script: "bash -c 'echo x > /dev/udp/127.0.0.1/{udp} && echo sent' || echo denied",
        outside: Some("sent\n"),
        inside: "denied\n",
    },
    Attack {
        name: "10 connects to a Unix socket",
        programs: &[PERL],
        script: r#"perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un("{socket}"))
            ? print "connected\n" : print $!+0, "\n"'"#,
        outside: Some("connected\n"),
        inside: "1\n",
    },
    Attack {
        name: "10 sends to a Unix socket by a pair of sockets",
        programs: &[PERL],
        script: r#"perl -MSocket -e 'socketpair(A, B, PF_UNIX, SOCK_DGRAM, 0) && send(A, "x", 0, sockaddr_un("{datagrams}"))
            ? print "sent\n" : print $!+0, "\n"'"#,
        outside: Some("sent\n"),
        inside: "1\n",
    },
    Attack {
        name: "11 connects to an abstract Unix socket",
        programs: &[PERL],
        script: r#"perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, pack("S a*", 1, "\0{abstract}"))
            ? print "connected\n" : print $!+0, "\n"'"#,
        outside: Some("connected\n"),
        inside: "1\n",
    },
    Attack {
        name: "12 opens sockets of other families",
        programs: &[PERL],
        script: r#"perl -e 'for (16, 17, 38, 40) { print socket(S, $_, 3, 0) ? "open" : $!+0, " " }'"#,
        outside: Some("open"),
        inside: "1 1 1 1 ",
    },
    Attack {
        name: "22 starts a daemon",
        programs: &["/usr/bin/setsid", "/bin/sleep", "/usr/bin/nohup"],
        script: "setsid sleep 1000 > /dev/null 2>&1 & setsid -f sh -c ': > left; exec sleep 1000' > /dev/null 2>&1; \
            nohup sh -c 'sleep 1000 & sleep 1000' > /dev/null 2>&1 & until [ -e left ]; do :; done; echo started",
        outside: None,
        inside: "started\n",
    },
    Attack {
        name: "24 limits another process",
        programs: &["/usr/bin/prlimit", "/bin/sleep"],
        script: "sleep 1000 & prlimit --pid $! --core=0:0 && echo limited || echo denied; kill $!",
        outside: Some("limited\n"),
        inside: "denied\n",
    },
    Attack {
        name: "26 reads the processes of others",
        programs: &["/bin/cat"],
        script: "cat /proc/{pid}/cmdline > /dev/null && echo READ; echo end",
        outside: Some("READ\n"),
        inside: "end\n",
    },
    Attack {
        name: "28 opens a terminal",
        programs: &[PERL],
        script: r#"(exec 3<> /dev/tty) || echo denied; (exec 3<> /dev/ptmx) || echo denied
            perl -e 'my $c = "i"; for (0x5412, 0x541c) { ioctl(STDIN, $_, $c) or print $!+0, "\n" }'"#,
        outside: None,
        inside: "denied\ndenied\n1\n1\n",
    },
    Attack {
        name: "32 has privileges",
        programs: &["/bin/grep"],
        script: "grep -E '^(NoNewPrivs|Seccomp|CapEff|CapPrm|CapInh|CapAmb):' /proc/self/status || echo denied",
        outside: None,
        inside: "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
            CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n",
    },
    Attack {
        name: "34 creates namespaces",
        programs: &["/usr/bin/unshare"],
        script: "unshare -Ur echo created || echo denied; unshare -n echo created || echo denied",
        outside: None,
        inside: "denied\ndenied\n",
    },
    Attack {
        name: "36 executes a script in the scratch",
        programs: &["/bin/chmod"],
        script: "printf '#!/bin/sh\necho ran' > s; chmod +x s; ./s || echo denied",
        outside: Some("ran"),
        inside: "denied\n",
    },
];

/// Tools that execute a program for their user: the programs that the job names, and the script.
const TRICKS: &[(&[&str], &str)] = &[
    (&["/usr/bin/find"], "find /usr/bin/find -exec /usr/bin/id ';'"),
    (&["/usr/bin/find"], "find /usr/bin/find -execdir /usr/bin/id ';'"),
    (&["/bin/sed"], "echo x | sed '1e id'"),
    (&["/usr/bin/awk"], "awk 'BEGIN { system(\"/usr/bin/id\") }'"),
    (&["/usr/bin/awk"], "awk 'BEGIN { \"/usr/bin/id\" | getline line; print line }'"),
    (&["/bin/tar"], "tar cf f --checkpoint=1 --checkpoint-action=exec=/usr/bin/id /etc/passwd"),
    (&["/bin/tar", "/bin/cat"], "tar cf f -I /usr/bin/id /etc/passwd; cat f"),
    (
        &["/usr/bin/sort", "/usr/bin/seq", "/bin/cat", "/bin/chmod"],
        "printf '#!/bin/sh\\necho uid= >> ran; cat' > run; chmod +x run
        seq 3000 | sort -S 1k --compress-program=./run > sorted; cat ran",
    ),
    (&["/usr/bin/split"], "echo x | split --filter=/usr/bin/id"),
    (&["/usr/bin/env"], "env /usr/bin/id"),
    (&["/usr/bin/nice"], "nice /usr/bin/id"),
    (&["/usr/bin/timeout"], "timeout 9 /usr/bin/id"),
    (&["/usr/bin/xargs"], "echo | xargs /usr/bin/id"),
];

fn outside(script: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("/bin/sh");
    let output = shell.args(["-c", script]).current_dir(dir.path()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn attacks_fail_inside_and_succeed_outside() {
    for attack_ in ATTACKS {
        let targets = OutsideObjects::new();
        let script = targets.fill(attack_.script);
        if let Some(expected) = attack_.outside {
            let found = outside(&script);
            assert!(found.contains(expected), "{}, outside: {found}", attack_.name);
            assert!(!found.contains("denied"), "{}, outside: {found}", attack_.name);
        }
        let sends = ["{udp}", "{datagrams}"].iter().any(|target| attack_.script.contains(target));
        assert_eq!(targets.has_packet(), sends, "{}, outside", attack_.name);
        for regime in [Regime::Namespaces, Regime::Subreaper] {
            // Without a PID namespace, tasks get no /proc.
            if regime == Regime::Subreaper && attack_.name.starts_with("32 ") {
                continue;
            }
            let targets = OutsideObjects::new();
            let script = targets.fill(attack_.script);
            let (ended, strays) = attack(&mut sandbox(Profile::reader(), regime), attack_.programs, &script);
            assert_eq!(ended.stdout, attack_.inside, "{}, {regime:?}: {ended:?}", attack_.name);
            if attack_.name.starts_with("22 ") {
                assert!(strays > 0, "{}, {regime:?}: {strays} strays", attack_.name);
            }
            assert!(!targets.has_packet(), "{}, {regime:?}", attack_.name);
            assert_eq!(fs::read_to_string(targets.dir.path().join("secret")).unwrap(), SECRET);
            assert_eq!(fs::read_dir(targets.dir.path().join("open")).unwrap().count(), 0, "{}", attack_.name);
        }
    }
}

#[test]
fn tools_cannot_execute_other_programs() {
    let are_present = |tools: &[&str]| tools.iter().all(|tool| Path::new(tool).exists());
    for (tools, script) in TRICKS.iter().filter(|(tools, _)| are_present(tools)) {
        assert!(outside(script).contains("uid="), "{script}, outside");
        for regime in [Regime::Namespaces, Regime::Subreaper] {
            let (ended, _) = attack(&mut sandbox(Profile::reader(), regime), tools, script);
            assert!(!ended.stdout.contains("uid="), "{script}, {regime:?}: {ended:?}");
        }
    }
}

#[test]
fn profile_with_a_network_has_internet_sockets_and_no_others() {
    let profile = || Profile { network: agenix_sandbox::profile::Network::On, ..Profile::reader() };
    for regime in [Regime::Namespaces, Regime::Subreaper] {
        for attack_ in ATTACKS
            .iter()
            .filter(|attack| attack.script.contains("-MSocket") || attack.script.contains("/dev/tcp"))
        {
            let targets = OutsideObjects::new();
            let (ended, _) =
                attack(&mut sandbox(profile(), regime), attack_.programs, &targets.fill(attack_.script));
            let expected = if attack_.script.contains("/dev/tcp") { "connected\n" } else { attack_.inside };
            assert_eq!(ended.stdout, expected, "{}, {regime:?}: {ended:?}", attack_.name);
        }
    }
}
