//! Subcommands of `agq`, with their arguments. The doc comments are the texts of `--help`.

use std::path::PathBuf;

use agenix_client::{Address, KEY_HELP, Server, SessionKeyError, Tls, Token, session_key};
use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use clap_complete::Shell;
use secrecy::ExposeSecret;

use super::default_data_dir;

const SERVER: &str = "The running agq";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a copy of everything that a running agq remembers into a new file
    ///
    /// The copy is of one moment: all that agq had acknowledged by then is in it. agq goes on working meanwhile. The file is
    /// checked before it gets its name.
    Backup(BackupArgs),
    /// Say whether a database or a backup is sound
    ///
    /// Every page is compared with its checksum, and every record with every index. Nothing is changed, and no agq may have
    /// it open. Exit codes: 0 it is sound, 1 it is not, or cannot be read.
    Check(CheckArgs),
    /// Put a backup where a database is missing
    ///
    /// The backup is checked first. A database that is there already is left alone: move it away. Start agq afterwards.
    Restore(RestoreArgs),
    /// Make agq's tables in a PostgreSQL, or bring them up to date
    ///
    /// A node does that by itself when it starts. Where it may not, this is done before, by a user who may.
    Migrate(MigrateArgs),
    /// Write everything that an agq remembers into a file that any agq can read, whatever its store
    ///
    /// A line of JSON for each plan, action, job with its input and results, worker and key; the last line has their numbers and
    /// hashes. No agq may have the data directory open; a PostgreSQL may be at work: the file is of one moment.
    Export(ExportArgs),
    /// Print the line that makes another machine a worker of this agq
    ///
    /// The line holds the key: whoever has it may do what the key may. With --session-key-file it can be that of a worker alone
    /// (see docs/security.md).
    Token(TokenArgs),
    /// Put what `agq export` wrote into a store that is empty
    ///
    /// What is there afterwards is read again, counted and hashed, and compared with the file before it counts: everything is
    /// there, or nothing.
    Import(ImportArgs),
    /// Print what a shell needs to complete commands of agq
    Completions { shell: Shell },
    /// Write a man page for each command into a directory, as agq-backup.1
    Man { connections: PathBuf },
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Where the other machine reaches agq: HOST:PORT, or rediss://HOST:PORT for TLS
    #[arg(long, value_name = "ADDRESS")]
    address: String,
    /// A file that holds the key to hand on [default: AGQ_SESSION_KEY]
    #[arg(long, env = "AGQ_SESSION_KEY_FILE", value_name = "FILE")]
    session_key_file: Option<PathBuf>,
    /// The CA of agq's certificate, where it is none of the system's; PEM
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

impl TokenArgs {
    /// Returns the token with address, key and CA. Fails if the key is a hash, or if a CA is given
    /// for an address without TLS.
    pub(crate) fn token(&self) -> anyhow::Result<Token> {
        let addresses = Address::parse_all(&self.address).map_err(anyhow::Error::msg)?;
        let key =
            session_key(self.session_key_file.as_deref()).map_err(|error| anyhow!("{error}: {KEY_HELP}"))?;
        if key.expose_secret().starts_with("sha256:") {
            bail!(
                "this is the hash of a key, which lets nobody in: give the key itself with --session-key-file"
            );
        }
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let ca = self.tls_ca.as_ref().map(read).transpose()?;
        if ca.is_some() && !addresses.iter().any(Address::is_tls) {
            bail!("a CA is given, but {} is not TLS: write rediss://host:port", self.address);
        }
        Ok(Token { agq: self.address.clone(), key, ca })
    }
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// What to read: a data directory, a backup, or postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// The file to write, which must not be there yet; - for the standard output
    pub(crate) file: PathBuf,
}

impl ExportArgs {
    pub(crate) fn from(&self) -> DataLocation {
        DataLocation::of(&self.from)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Where to put it: a data directory without a database, or postgres://USER@HOST/DATABASE without contents
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// The file to read; - for the standard input
    pub(crate) file: PathBuf,
}

impl ImportArgs {
    pub(crate) fn to(&self) -> DataLocation {
        DataLocation::of(&self.to)
    }
}

/// Location of a store: an argument of `export` and `import`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DataLocation {
    /// Data directory or database file.
    Path(PathBuf),
    /// URL of a PostgreSQL database.
    Postgres(String),
}

impl DataLocation {
    fn of(place: &str) -> Self {
        let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| place.starts_with(scheme));
        if is_url { Self::Postgres(place.to_owned()) } else { Self::Path(place.into()) }
    }
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Where it is: postgres://USER@HOST/DATABASE. The password is read from ~/.pgpass or PGPASSWORD
    #[arg(long, env = "AGQ_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: String,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The file to write; it must not be there yet
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A data directory, a database or a backup
    pub(crate) path: PathBuf,
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The backup
    pub(crate) file: PathBuf,
    /// Where the database is kept; made when missing [default: ~/.agq]
    #[arg(long, env = "AGQ_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl RestoreArgs {
    /// Returns the data directory, by default `~/.agq`.
    pub(crate) fn data_dir(&self) -> anyhow::Result<PathBuf> {
        self.data_dir.clone().map_or_else(default_data_dir, Ok)
    }
}

/// Address of a running agq, with the same arguments as for agx.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Where it is: HOST:PORT, or rediss://HOST:PORT for TLS, or unix:/PATH
    #[arg(long, env = "AGQ_ADDR", value_name = "ADDRESS", default_value = "127.0.0.1:6380", help_heading = SERVER)]
    addr: String,
    /// A file that holds the session key, or the key of an admin
    #[arg(long, env = "AGQ_SESSION_KEY_FILE", value_name = "FILE", help_heading = SERVER)]
    session_key_file: Option<PathBuf>,
    /// The CA of its certificate, PEM [default: those of the system]
    #[arg(long, env = "AGQ_CA", value_name = "FILE", help_heading = SERVER)]
    tls_ca: Option<PathBuf>,
    /// A certificate of ours, where it asks for one, PEM
    #[arg(long, env = "AGQ_CERT", value_name = "FILE", help_heading = SERVER)]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, PEM
    #[arg(long, env = "AGQ_KEY_FILE", value_name = "FILE", help_heading = SERVER)]
    tls_key: Option<PathBuf>,
}

impl ServerArgs {
    /// Returns the address and the credentials.
    pub(crate) fn server(&self) -> anyhow::Result<Server> {
        let key = match session_key(self.session_key_file.as_deref()) {
            Ok(key) => Some(key),
            // The client certificate may prove the identity without a key.
            Err(SessionKeyError::Missing) if self.tls_cert.is_some() => None,
            Err(error) => bail!("{error}: {KEY_HELP}"),
        };
        let tls = Tls { ca: self.tls_ca.clone(), cert: self.tls_cert.clone(), key: self.tls_key.clone() };
        let server = Address::parse(&self.addr).and_then(|address| Server::with_tls(vec![address], tls, key));
        server.map_err(|what| anyhow!("{what}; say where agq is with --addr or AGQ_ADDR"))
    }
}
