//! Targets of attacks: files, sockets and processes outside the sandbox.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::ErrorKind,
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{PermissionsExt, chown},
            net::{SocketAddr, UnixDatagram, UnixListener},
        },
    },
    path::{Path, PathBuf},
};

use rustix::io::{FdFlags, fcntl_setfd};

/// Text that no task may read.
pub(super) const SECRET: &str = "the-secret-of-the-owner";

/// Files and sockets outside the sandbox. All files belong to the user of the tasks, so that the
/// permissions of files stop nothing.
pub(super) struct OutsideTargets {
    /// Directory of all targets.
    pub(super) dir: PathBuf,
    user: Option<u32>,
    tcp: TcpListener,
    udp: UdpSocket,
    unix: UnixListener,
    abstract_name: UnixListener,
    datagrams: UnixDatagram,
    /// Connection that a worker inherits.
    _inherited: [TcpStream; 2],
}

/// Name, mode and content of the files below a directory.
pub(super) type DirectorySnapshot = BTreeMap<PathBuf, (u32, Vec<u8>)>;

impl OutsideTargets {
    /// Creates the targets in `dir`. `user` runs the tasks, if it is not the user of the test.
    pub(super) fn new(dir: &Path, user: Option<u32>) -> Self {
        let dir = dir.canonicalize().unwrap();
        let own = |path: &Path| {
            chown(path, user, user).unwrap();
        };
        for name in ["outside", "readable", "early", "bin", "home", "other-job", "scratch"] {
            fs::create_dir(dir.join(name)).unwrap();
            fs::set_permissions(dir.join(name), Permissions::from_mode(0o755)).unwrap();
            own(&dir.join(name));
        }
        let unix = UnixListener::bind(dir.join("readable/socket")).unwrap();
        fs::set_permissions(dir.join("readable/socket"), Permissions::from_mode(0o777)).unwrap();
        let datagrams = UnixDatagram::bind(dir.join("readable/datagrams")).unwrap();
        fs::set_permissions(dir.join("readable/datagrams"), Permissions::from_mode(0o777)).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        let address = SocketAddr::from_abstract_name(abstract_name(&dir)).unwrap();
        let abstract_name = UnixListener::bind_addr(&address).unwrap();
        let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let connected = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let inherited = [connected, tcp.accept().unwrap().0];
        // A program without care leaves such a descriptor to all programs that it starts.
        fcntl_setfd(&inherited[0], FdFlags::empty()).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        abstract_name.set_nonblocking(true).unwrap();
        let targets = Self { dir, user, tcp, udp, unix, abstract_name, datagrams, _inherited: inherited };
        targets.renew();
        targets
    }

    /// Makes the files as they were before any attack.
    pub(super) fn renew(&self) {
        for name in ["outside", "home", "early"] {
            for entry in fs::read_dir(self.dir.join(name)).unwrap().map(Result::unwrap) {
                let is_directory = entry.file_type().unwrap().is_dir();
                let path = entry.path();
                if is_directory { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
            }
        }
        let _is_absent = fs::remove_file(self.dir.join("readable/f"));
        for (name, mode) in [("secret", 0o644), ("key", 0o600)] {
            let path = self.dir.join("outside").join(name);
            fs::write(&path, SECRET).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            chown(&path, self.user, self.user).unwrap();
        }
    }

    /// Writes an executable file.
    pub(super) fn program(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Returns `text` with the names of the targets in place of `{name}`.
    pub(super) fn fill(&self, text: &str) -> String {
        let port = |address: std::io::Result<std::net::SocketAddr>| address.unwrap().port().to_string();
        let path = |name: &str| self.dir.join(name).display().to_string();
        text.replace("{secret}", &path("outside/secret"))
            .replace("{key}", &path("outside/key"))
            .replace("{outside}", &path("outside"))
            .replace("{readable}", &path("readable"))
            .replace("{socket}", &path("readable/socket"))
            .replace("{datagrams}", &path("readable/datagrams"))
            .replace("{early}", &path("early"))
            .replace("{scratch}", &path("scratch"))
            .replace("{abstract}", &abstract_name(&self.dir))
            .replace("{tcp}", &port(self.tcp.local_addr()))
            .replace("{udp}", &port(self.udp.local_addr()))
            .replace("{user}", &self.user.unwrap_or(rustix::process::getuid().as_raw()).to_string())
    }

    /// Returns the files that no attack may change.
    pub(super) fn snapshot(&self) -> DirectorySnapshot {
        let mut found = DirectorySnapshot::new();
        for name in ["outside", "readable", "early", "bin"] {
            add(&mut found, &self.dir.join(name));
        }
        found
    }

    /// Returns the listeners that a task has reached since the last call.
    pub(super) fn reached(&self) -> Vec<&'static str> {
        let is_reached = |result: std::io::Result<()>| match result {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        };
        let all = [
            ("TCP", is_reached(self.tcp.accept().map(drop))),
            ("UDP", is_reached(self.udp.recv(&mut [0; 16]).map(drop))),
            ("Unix", is_reached(self.unix.accept().map(drop))),
            ("abstract Unix", is_reached(self.abstract_name.accept().map(drop))),
            ("Unix datagrams", is_reached(self.datagrams.recv(&mut [0; 16]).map(drop))),
        ];
        all.into_iter().filter(|(_, is_reached)| *is_reached).map(|(name, _)| name).collect()
    }
}

fn abstract_name(dir: &Path) -> String {
    format!("agenix-attacks-{}", dir.display())
}

fn add(found: &mut DirectorySnapshot, path: &Path) {
    let metadata = path.symlink_metadata().unwrap();
    let content = if metadata.is_file() { fs::read(path).unwrap() } else { Vec::new() };
    found.insert(path.to_owned(), (metadata.permissions().mode(), content));
    if metadata.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| add(found, &entry.unwrap().path()));
    }
}
