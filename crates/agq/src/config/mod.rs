//! Configuration of the server. Flags win over `AGQ_*` variables, variables over the config file
//! (TOML), and the config file over the defaults.

mod agents;
mod clients;
mod commands;
mod file;
mod keys;
mod options;
mod settings;
mod share_weight;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Parser;

use self::options::Options;
pub(crate) use self::{
    commands::{
        BackupArgs, CheckArgs, Command, DataLocation, ExportArgs, ImportArgs, MigrateArgs, RestoreArgs,
        TokenArgs, blobs_beside,
    },
    keys::KeySource,
};
use crate::{
    auth::{keyring::SessionKeys, session_key::GeneratedKey},
    blobs::location::BlobLocation,
    settings::{ListenAddresses, ServiceSettings, TlsFiles},
    store::{OpenOptions, postgres},
};

/// Minimum number of connections to PostgreSQL: one writes jobs, one writes the keys of users, one
/// listens, and the others read.
const MIN_CONNECTIONS: u32 = 4;

/// agq, the queue server: stores plans and jobs, gives jobs to workers, and loses nothing that it
/// has acknowledged.
///
/// Without a command it runs the server. It speaks RESP, so any Redis client works. By default it
/// listens on 127.0.0.1:6380 and keeps its data in ~/.agq.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    /// Command to run instead of the server.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// TOML file with any of the options below as `name = value`; flags and variables win over it
    #[arg(long, env = "AGQ_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Stop also when stdin ends: for a parent process that holds the other end, and may be killed
    #[arg(long, hide = true)]
    end_with_stdin: bool,
    /// Let a retry want no more memory than a registered worker offers, because no other worker
    /// will come
    #[arg(long, hide = true)]
    fixed_workers: bool,
    #[command(flatten)]
    options: Options,
}

const AFTER_HELP: &str = "The session key is read from AGQ_SESSION_KEY or --session-key-file, never from a flag, because \
other users of the machine can see flags. Make a key with `openssl rand -hex 32`. Without one, agq generates a key for this \
run, and prints it on a terminal.\n\nKeys with fewer permissions are in the config file by name, as plain text or as \
`sha256:` and their hash:\n\n  [workers]\n  \"worker-001\" = \"…\"        # claims jobs as this worker\n  [clients]\n  \
\"alice\" = \"sha256:…\"      # submits and watches\n  [admins]\n  \"root\" = \"…\"              # may do everything\n  [agents]\n  \"claude-1\" = \"…\"          # submits, and sees only that\n\n\
SIGHUP makes agq read the keys, the certificates and the policy again, and reopen the audit log; connections stay open.\n\nLogs go to \
stderr; AGQ_LOG=debug shows more.\n\nExit codes: 0 stopped by SIGINT or SIGTERM, 1 could not start or continue, also because of a wrong setting, 2 a command line that cannot be parsed.";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StoreLocation {
    DataDir,
    Postgres { url: String, settings: postgres::PostgresSettings },
}

/// Directory of blobs in the data directory.
pub(crate) const BLOBS: &str = "blobs";
/// Default ports of RESP and HTTP.
const DEFAULT_PORT: u16 = 6380;
const DEFAULT_HTTP_PORT: u16 = 6381;

#[derive(Debug)]
pub(crate) struct ServerConfig {
    pub(crate) listen: ListenAddresses,
    pub(crate) data_dir: PathBuf,
    pub(crate) blobs: BlobLocation,
    pub(crate) store: StoreLocation,
    pub(crate) audit_log: Option<PathBuf>,
    pub(crate) policy: Option<PathBuf>,
    pub(crate) opening: OpenOptions,
    pub(crate) settings: ServiceSettings,
    pub(crate) keys: SessionKeys,
    /// Sources from which SIGHUP reads the keys again.
    pub(crate) key_source: KeySource,
    /// Key that was generated for this run, because no other key is an admin's.
    pub(crate) random_key: Option<GeneratedKey>,
    /// Set if agq stops when its stdin ends.
    pub(crate) ends_with_stdin: bool,
}

impl Cli {
    /// Fails if a value is out of bounds, or if values contradict each other.
    pub(crate) fn resolve(self) -> anyhow::Result<ServerConfig> {
        let mut key_source = KeySource::new(self.config.clone(), self.options.session_key_file.clone());
        let file = self.config.as_deref().map(file::read).transpose()?.unwrap_or_default();
        let mut keys = key_source.keys_in(&file)?;
        let random_key = if keys.has_admin() { None } else { Some(GeneratedKey::new()?) };
        if let Some(key) = &random_key {
            key_source.set_generated(key.hash());
            keys.add_session_key(key.hash())?;
        }
        let options = self.options.or(file);
        let data_dir = options.data_dir.clone().map_or_else(default_data_dir, Ok)?;
        let store = store_location(&options)?;
        // Nodes that share a database may not share a disk.
        let default_blobs = match store {
            StoreLocation::DataDir => BlobLocation::Directory(data_dir.join(BLOBS)),
            StoreLocation::Postgres { .. } => BlobLocation::Off,
        };
        Ok(ServerConfig {
            listen: listen_addresses(&options)?,
            blobs: BlobLocation::selected(options.blobs.as_deref(), options.blob_dir.as_deref())?
                .unwrap_or(default_blobs),
            data_dir,
            store,
            audit_log: options.audit_log.clone(),
            policy: options.policy.clone(),
            opening: options.opening(),
            settings: ServiceSettings { has_fixed_workers: self.fixed_workers, ..options.settings()? },
            keys,
            key_source,
            random_key,
            ends_with_stdin: self.end_with_stdin,
        })
    }
}

#[cfg(any(test, feature = "simulation"))]
pub(crate) fn default_settings() -> anyhow::Result<ServiceSettings> {
    Options::default().settings()
}

/// Fails if keys would be sent over a network without TLS.
fn listen_addresses(options: &Options) -> anyhow::Result<ListenAddresses> {
    let tls = match (&options.tls_cert, &options.tls_key, &options.tls_client_ca) {
        (Some(cert), Some(key), client_ca) => {
            Some(TlsFiles { cert: cert.clone(), key: key.clone(), client_ca: client_ca.clone() })
        }
        (None, None, None) => None,
        (None, None, Some(_)) => {
            bail!("tls-client-ca is given without TLS: give tls-cert and tls-key as well")
        }
        (Some(_), None, _) => bail!("tls-cert is given without its private key: give tls-key as well"),
        (None, Some(_), _) => bail!("tls-key is given without its certificate: give tls-cert as well"),
    };
    let socket = options.socket.clone();
    let needs_tls = |ip: IpAddr| {
        !ip.to_canonical().is_loopback() && tls.is_none() && !options.insecure.unwrap_or_default()
    };
    let tcp = if options.no_tcp.unwrap_or_default() {
        if socket.is_none() {
            bail!("no-tcp is given without socket: agq would have no listener, give --socket PATH");
        }
        None
    } else {
        let ip = options.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        if needs_tls(ip) {
            bail!(
                "refusing to listen on {ip} without TLS: others on the network could read the keys and change the jobs. Give \
                 --tls-cert and --tls-key, or listen on 127.0.0.1, or, if the whole network is trusted, give --insecure"
            );
        }
        Some(SocketAddr::new(ip, options.port.unwrap_or(DEFAULT_PORT)))
    };
    // Without TCP there is no HTTP, unless an address for it is given.
    let http = http_address(options, tcp.map(|tcp| tcp.port()))?;
    if let Some(http) = http.filter(|http| needs_tls(http.ip())) {
        bail!(
            "refusing to speak HTTP on {http} without TLS: others on the network could read the keys. Give --tls-cert and \
             --tls-key, or listen on 127.0.0.1, or, if the whole network is trusted, give --insecure"
        );
    }
    // A Unix socket alone needs no certificates.
    let tls = tls.filter(|_| tcp.is_some() || http.is_some());
    Ok(ListenAddresses { tcp, socket, tls, http })
}

/// The default is on the loopback interface.
fn http_address(options: &Options, port: Option<u16>) -> anyhow::Result<Option<SocketAddr>> {
    match options.http.as_deref() {
        Some("off") => Ok(None),
        Some(text) => {
            let advice = || format!("http is '{text}': give an address such as 127.0.0.1:6381, or off");
            Ok(Some(text.parse().with_context(advice)?))
        }
        // Only one agq on a machine can use the default port, so another one takes a free port.
        None => {
            let default = port.map(|port| if port == DEFAULT_PORT { DEFAULT_HTTP_PORT } else { 0 });
            Ok(default.map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)))
        }
    }
}

fn store_location(options: &Options) -> anyhow::Result<StoreLocation> {
    let default = postgres::PostgresSettings::default();
    let connections = options.store_connections.unwrap_or(default.connections);
    if connections < MIN_CONNECTIONS {
        bail!("store-connections is {connections}: give at least {MIN_CONNECTIONS}");
    }
    let Some(url) = options.store.clone() else { return Ok(StoreLocation::DataDir) };
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        bail!("store is not the URL of a PostgreSQL database: write postgres://USER@HOST/DATABASE");
    }
    if options.durability.is_some() {
        bail!(
            "durability applies to the database in the data directory only: PostgreSQL syncs acknowledged writes itself"
        );
    }
    let settings = postgres::PostgresSettings {
        connections,
        timeout: seconds("store-timeout", options.store_timeout, default.timeout, 0.5)?,
        listens: !options.store_no_listen.unwrap_or_default(),
        poll: seconds("store-poll-interval", options.store_poll_interval, default.poll, 0.01)?,
        term: seconds("store-lease", options.store_lease, default.term, 0.5)?,
    };
    Ok(StoreLocation::Postgres { url, settings })
}

/// Returns the duration of an option, in seconds from `least` to 3600.
fn seconds(name: &str, given: Option<f64>, default: Duration, least: f64) -> anyhow::Result<Duration> {
    let Some(given) = given else { return Ok(default) };
    if !(least..=3600.0).contains(&given) {
        bail!("{name} is {given}: give seconds between {least} and 3600");
    }
    Ok(Duration::from_secs_f64(given))
}

fn default_data_dir() -> anyhow::Result<PathBuf> {
    let home = std::env::home_dir()
        .context("there is no home directory: choose the data directory with --data-dir")?;
    Ok(home.join(".agq"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{CommandFactory, Parser};

    use super::{Cli, Options, StoreLocation, listen_addresses, store_location};
    use crate::store::postgres::PostgresSettings;

    fn options(text: &str) -> Options {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_win_over_the_config_file() {
        let options = Options { port: Some(2), ..Options::default() }.or(options("port = 1\nmax-tasks = 0"));
        assert_eq!((options.port, options.max_tasks), (Some(2), Some(0)));
        let error = toml::from_str::<Options>("prot = 1").unwrap_err().to_string();
        assert!(error.contains("unknown field `prot`"), "{error}");
    }

    #[test]
    fn switch_needs_no_value_and_accepts_one() {
        let given = |args: &[&str]| Cli::try_parse_from([&["agq"][..], args].concat()).unwrap().options;
        assert_eq!(given(&["--no-tcp", "--socket", "s"]).no_tcp, Some(true));
        assert_eq!(given(&["--insecure=false"]).insecure, Some(false));
        assert_eq!(given(&[]).no_quarantine, None);
        assert!(Cli::try_parse_from(["agq", "--insecure=perhaps"]).is_err());
    }

    #[test]
    fn listening_beyond_loopback_needs_tls() {
        for ip in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(listen_addresses(&options(&format!("bind = '{ip}'"))).is_ok(), "{ip}");
        }
        for ip in ["0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::ffff:10.0.0.1"] {
            let error = listen_addresses(&options(&format!("bind = '{ip}'"))).unwrap_err().to_string();
            assert!(error.contains(&format!("refusing to listen on {ip} without TLS")), "{error}");
            assert!(listen_addresses(&options(&format!("bind = '{ip}'\ninsecure = true"))).is_ok(), "{ip}");
            let tls = format!("bind = '{ip}'\ntls-cert = 'c'\ntls-key = 'k'");
            assert!(listen_addresses(&options(&tls)).is_ok(), "{ip}");
        }
    }

    #[test]
    fn http_beyond_loopback_needs_tls_with_and_without_tcp() {
        for tcp in ["", "no-tcp = true\nsocket = 's'\n"] {
            let listen = |text: &str| listen_addresses(&options(&format!("{tcp}{text}")));
            assert!(listen("http = '127.0.0.1:1'").unwrap().tls.is_none());
            for ip in ["0.0.0.0", "[::]", "10.0.0.1", "[::ffff:10.0.0.1]"] {
                let http = format!("http = '{ip}:1'");
                let error = listen(&http).unwrap_err().to_string();
                assert!(error.contains(&format!("refusing to speak HTTP on {ip}:1 without TLS")), "{error}");
                assert!(listen(&format!("{http}\ninsecure = true")).is_ok(), "{tcp}{ip}");
                let with_tls = listen(&format!("{http}\ntls-cert = 'c'\ntls-key = 'k'")).unwrap();
                assert!(with_tls.tls.is_some() && with_tls.http.is_some(), "{tcp}{ip}");
            }
        }
        let alone = "no-tcp = true\nsocket = 's'\ntls-cert = 'c'\ntls-key = 'k'";
        assert!(listen_addresses(&options(alone)).unwrap().tls.is_none(), "a socket has no TLS");
    }

    #[test]
    fn store_is_a_postgresql_url_or_the_data_directory() {
        let place = |text: &str| store_location(&options(text)).map_err(|error| error.to_string());
        assert_eq!(place(""), Ok(StoreLocation::DataDir));
        let url = "postgres://agq@db/agq".to_owned();
        let settings = PostgresSettings::default();
        assert_eq!(
            place(&format!("store = '{url}'")),
            Ok(StoreLocation::Postgres { url: url.clone(), settings })
        );
        let [timeout, poll, term] = [1500, 500, 2000].map(Duration::from_millis);
        let settings = PostgresSettings { connections: 4, timeout, listens: false, poll, term };
        let text = format!(
            "store = '{url}'\nstore-connections = 4\nstore-timeout = 1.5\nstore-no-listen = true\nstore-poll-interval = 0.5\nstore-lease = 2"
        );
        assert_eq!(place(&text), Ok(StoreLocation::Postgres { url, settings }));
        for (name, least) in [("store-timeout", 0.5), ("store-poll-interval", 0.01), ("store-lease", 0.5)] {
            let with = |seconds: f64| place(&format!("store = 'postgres://h/d'\n{name} = {seconds}"));
            assert!(with(least).is_ok() && with(3600.0).is_ok(), "{name}");
            for beyond in [least - 0.001, 3600.5] {
                let refused = with(beyond).unwrap_err();
                assert_eq!(refused, format!("{name} is {beyond}: give seconds between {least} and 3600"));
            }
        }
        assert!(place("store = 'agq.redb'").unwrap_err().contains("write postgres://USER@HOST/DATABASE"));
        assert!(place("store = 'postgres://h/d'\nstore-connections = 3").unwrap_err().contains("at least 4"));
        assert!(place("store = 'postgres://h/d'\ndurability = 'always'").unwrap_err().contains("durability"));
    }

    #[test]
    fn incomplete_listen_settings_are_rejected() {
        for (text, words) in [
            ("tls-cert = 'c'", "give tls-key as well"),
            ("tls-key = 'k'", "give tls-cert as well"),
            ("tls-client-ca = 'ca'", "give tls-cert and tls-key as well"),
            ("no-tcp = true", "give --socket PATH"),
        ] {
            let error = listen_addresses(&options(text)).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let unix = listen_addresses(&options("no-tcp = true\nsocket = 's'\nbind = '0.0.0.0'")).unwrap();
        assert!(unix.tcp.is_none() && unix.socket.is_some(), "what TCP would do does not matter");
        let both = listen_addresses(&options("socket = 's'")).unwrap();
        assert_eq!(both.tcp.unwrap().to_string(), "127.0.0.1:6380");
    }
}
