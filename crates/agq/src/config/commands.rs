//! What agq does besides running the queue, as it is said on the command line. What stands here is the help.

use std::path::PathBuf;

use agenix_client::{Address, KEY_HELP, KeyError, Server, Tls, session_key};
use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};

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
    /// Where the database is kept.
    pub(crate) fn data_dir(&self) -> anyhow::Result<PathBuf> {
        self.data_dir.clone().map_or_else(default_data_dir, Ok)
    }
}

/// Where the running agq is, as agx is told it.
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
    /// Where it is and how to log in.
    pub(crate) fn server(&self) -> anyhow::Result<Server> {
        let key = match session_key(self.session_key_file.as_deref()) {
            Ok(key) => Some(key),
            // The certificate may say who we are.
            Err(KeyError::Missing) if self.tls_cert.is_some() => None,
            Err(error) => bail!("{error}: {KEY_HELP}"),
        };
        let tls = Tls { ca: self.tls_ca.clone(), cert: self.tls_cert.clone(), key: self.tls_key.clone() };
        let server = Address::parse(&self.addr).and_then(|address| Server::with_tls(vec![address], tls, key));
        server.map_err(|what| anyhow!("{what}; say where agq is with --addr or AGQ_ADDR"))
    }
}
