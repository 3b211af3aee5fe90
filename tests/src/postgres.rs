//! PostgreSQL under test: a private cluster in a temporary directory, or the cluster that `cargo
//! xtask` has started for all tests.

use std::{
    fs::{self, File},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use crate::{agq::signal, eventually, port::unused_port};

/// User that the servers run as, because PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;
/// Superuser of a cluster.
const USER: &str = "agq";
/// Environment variable with the directory of the cluster that all tests share.
pub const SHARED: &str = "AGENIX_POSTGRES";
/// Server settings for tests. Only a crash of the machine loses data without fsync, and other tests
/// simulate such crashes.
pub const FOR_TESTS: [&str; 3] = ["fsync=off", "max_connections=300", "shared_buffers=64MB"];

/// A running cluster, which the drop stops.
pub struct Postgres {
    server: Option<Child>,
    dir: TempDir,
    bin: PathBuf,
    settings: Vec<String>,
    /// Port on the loopback, if clients connect by TCP instead of the socket.
    port: Option<u16>,
    /// Library that the server preloads.
    preloaded: Option<PathBuf>,
}

impl Postgres {
    /// Returns the directory of the PostgreSQL programs: on PATH, or the newest version in the
    /// place where Debian installs them.
    pub fn programs() -> Option<PathBuf> {
        let is_whole =
            |bin: &PathBuf| ["initdb", "postgres", "createdb"].iter().all(|name| bin.join(name).is_file());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let number = |dir: &Path| dir.file_name()?.to_str()?.parse::<u32>().ok();
        let mut versions: Vec<PathBuf> = versions.map(|version| version.path()).collect();
        versions.sort_by_key(|dir| std::cmp::Reverse(number(dir)));
        let bins = std::env::split_paths(&path).chain(versions.into_iter().map(|dir| dir.join("bin")));
        bins.collect::<Vec<_>>().into_iter().find(is_whole)
    }

    /// Creates and starts a cluster with these settings. Clients connect by a socket in the
    /// directory of the cluster.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_at(settings, None, None)
    }

    /// Creates and starts a cluster that listens on the loopback, and that preloads `library`.
    pub fn start_on_loopback(settings: &[&str], library: Option<&Path>) -> Self {
        Self::start_at(settings, Some(unused_port()), library)
    }

    /// Returns the address on the loopback.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.expect("it was started on the loopback"))
    }

    fn start_at(settings: &[&str], port: Option<u16>, library: Option<&Path>) -> Self {
        let bin =
            Self::programs().expect("PostgreSQL is installed: `cargo xtask` sees to that on Debian, as root");
        let mut cluster = Self::empty(bin, settings, port, library);
        let mut init = cluster.unprivileged("initdb");
        init.args([
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "--username",
            USER,
            "--pgdata",
        ]);
        succeed(init.arg(cluster.dir.path().join("data")));
        cluster.start_again();
        cluster
    }

    /// Creates a directory for a cluster, without the cluster.
    fn empty(bin: PathBuf, settings: &[&str], port: Option<u16>, library: Option<&Path>) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("agenix-pg-")
            .tempdir()
            .expect("a temporary directory can be made");
        if geteuid().is_root() {
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("root may give a directory away");
        }
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let preloaded = library.map(Path::to_owned);
        Self { server: None, dir, bin, settings, port, preloaded }
    }

    /// Starts a standby, which replicates this server and refuses writes.
    pub fn standby(&self) -> Self {
        let port = Some(unused_port());
        let mut standby = Self::empty(self.bin.clone(), &[], port, None);
        let mut copy = standby.unprivileged("pg_basebackup");
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--username", USER]);
        copy.arg("--host").arg(self.dir.path()).arg("--port").arg(self.port.unwrap_or(5432).to_string());
        succeed(copy.arg("--pgdata").arg(standby.dir.path().join("data")));
        standby.start_again();
        standby
    }

    /// Restarts the server with a certificate and its key, both PEM. From then on the server
    /// accepts TLS over TCP.
    pub fn encrypt(&mut self, certificate: &str, key: &str) {
        self.stop_at_once();
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.dir.path().join(name);
            fs::write(&path, text).expect("the cluster's directory can be written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its files are ours");
            if geteuid().is_root() {
                chown(&path, Some(NOBODY), Some(NOBODY)).expect("root may give a file away");
            }
            let setting = if name == "server.crt" { "ssl_cert_file" } else { "ssl_key_file" };
            self.settings.push(format!("{setting}={}", path.display()));
        }
        self.settings.push("ssl=on".into());
        self.start_again();
    }

    /// Starts the server on its existing data.
    pub fn start_again(&mut self) {
        let log = File::options().create(true).append(true).open(self.dir.path().join("log"));
        let log = log.expect("the cluster's directory can be written");
        let mut serve = self.unprivileged("postgres");
        serve.arg("-D").arg(self.dir.path().join("data"));
        serve.arg("-c").arg(format!("unix_socket_directories={}", self.dir.path().display()));
        let listening = match self.port {
            Some(port) => vec!["listen_addresses=127.0.0.1".into(), format!("port={port}")],
            None => vec!["listen_addresses=".into()],
        };
        for setting in listening.iter().chain(&self.settings) {
            serve.args(["-c", setting]);
        }
        serve.envs(self.preloaded.as_ref().map(|library| ("LD_PRELOAD", library)));
        let err = log.try_clone().expect("a file can be opened twice");
        self.server = Some(serve.stdout(log).stderr(err).spawn().expect("PostgreSQL can be started"));
        let mut is_ready = self.client("pg_isready");
        is_ready.arg("--quiet");
        eventually("an answer of PostgreSQL", || {
            is_ready.status().is_ok_and(|status| status.success()).then_some(())
        });
    }

    /// Stops the server at once (immediate shutdown). On the next start, the server recovers from
    /// its log.
    pub fn stop_at_once(&mut self) {
        if let Some(mut server) = self.server.take() {
            signal(&server, Signal::QUIT);
            server.wait().expect("a child can be waited for");
        }
    }

    /// Returns the directory of the cluster, which contains the socket.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Creates an empty database, and returns its URL.
    pub fn create(&self, database: &str) -> String {
        succeed(self.client("createdb").arg(database));
        self.url_of(database)
    }

    /// Returns the URL of the default database.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    fn url_of(&self, database: &str) -> String {
        match self.port {
            Some(_) => format!("postgres://{USER}@{}/{database}", self.address()),
            None => url(database, self.path()),
        }
    }

    /// Returns the process id of the server, or `None` while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    /// Returns a command for a PostgreSQL program that connects to this cluster.
    pub fn client(&self, program: &str) -> Command {
        let mut command = client(&self.bin, self.dir.path(), program);
        if let Some(port) = self.port {
            command.env("PGHOST", "127.0.0.1").env("PGPORT", port.to_string());
        }
        command
    }

    fn unprivileged(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        unprivileged(&mut command);
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop_at_once();
    }
}

/// An empty database in the shared cluster, or in a cluster of its own.
pub struct Database {
    /// Cluster that is stopped together with this value.
    _own: Option<Postgres>,
    socket: PathBuf,
    name: String,
}

impl Default for Database {
    fn default() -> Self {
        Self::new()
    }
}

impl Database {
    /// Creates the database.
    pub fn new() -> Self {
        let own = if std::env::var_os(SHARED).is_none() { Some(Postgres::start(&FOR_TESTS)) } else { None };
        let shared = || PathBuf::from(std::env::var_os(SHARED).unwrap_or_default());
        let socket = own.as_ref().map_or_else(shared, |cluster| cluster.path().to_owned());
        let name = format!("t{:016x}", fastrand::u64(..));
        let bin = Postgres::programs().expect("the cluster runs");
        succeed(client(&bin, &socket, "createdb").arg(&name));
        Self { _own: own, socket, name }
    }

    /// Returns the URL of the database.
    pub fn url(&self) -> String {
        url(&self.name, &self.socket)
    }

    /// Returns a command for a PostgreSQL program that connects to this database.
    pub fn client(&self, program: &str) -> Command {
        let bin = Postgres::programs().expect("the cluster runs");
        let mut command = client(&bin, &self.socket, program);
        command.env("PGDATABASE", &self.name);
        command
    }
}

/// Runs `command` as a user without privileges, because database servers refuse to run as root.
pub(crate) fn unprivileged(command: &mut Command) {
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
}

fn url(database: &str, socket: &Path) -> String {
    format!("postgres://{USER}@localhost/{database}?host={}", socket.display())
}

fn client(bin: &Path, socket: &Path, program: &str) -> Command {
    let mut command = Command::new(bin.join(program));
    command.env("PGHOST", socket).env("PGUSER", USER).env("PGDATABASE", "postgres").env_remove("PGPORT");
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end. Panics with the stderr of the command if the command fails.
fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}: {}", output.status, complaint.trim());
    output
}
