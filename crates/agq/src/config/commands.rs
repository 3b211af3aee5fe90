//! Subcommands of `agq`, with their arguments. The doc comments are the texts of `--help`.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
};

use agenix_client::{Address, KEY_HELP, Server, SessionKeyError, Tls, Token, key_in, session_key};
use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use clap_complete::Shell;
use secrecy::{ExposeSecret, SecretString};

use super::{BLOBS, default_data_dir};
use crate::{auth::session_key::hash_in, blobs::location::BlobLocation};

const SERVER: &str = "The running agq";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy all data of a running agq into a new file
    ///
    /// The copy is a snapshot of one moment with everything that agq had acknowledged by then. agq
    /// keeps working meanwhile. The file gets its final name after it has been checked. Large
    /// outputs are in the directory FILE.blobs beside it.
    Backup(BackupArgs),
    /// Check whether a database or a backup is consistent
    ///
    /// Compares every page with its checksum, and every record with every index. Changes nothing.
    /// No agq may have the file open. Exit codes: 0 the database is consistent, 1 it is not, or
    /// cannot be read.
    Check(CheckArgs),
    /// Restore a backup into a data directory without a database
    ///
    /// Checks the backup first. Never overwrites a database: move an existing one away. Start agq
    /// afterwards. Large outputs come from the directory FILE.blobs beside the backup.
    Restore(RestoreArgs),
    /// Create or upgrade the tables of agq in a PostgreSQL database
    ///
    /// A node does the same when it starts. Use this command if the user of the node may not create
    /// tables.
    Migrate(MigrateArgs),
    /// Write all data of a store into a file that any agq can import, whatever its store
    ///
    /// The file has one line of JSON for each plan, action, job (with input and results), worker
    /// and key. The last line has their numbers and hashes. No agq may have the data directory
    /// open. A PostgreSQL database may be in use: the file is a snapshot of one moment.
    Export(ExportArgs),
    /// Print the command that makes another machine a worker of this agq
    ///
    /// The line contains the key, and whoever has it may do what the key permits. With
    /// --session-key-file, give the key of a single worker (see docs/security.md); `agx join` then
    /// needs --worker-id with the name of that key.
    Token(TokenArgs),
    /// Import a file of `agq export` into an empty store
    ///
    /// Reads the imported data again, counts and hashes it, and compares it with the file. Then all
    /// of it is there, or none.
    Import(ImportArgs),
    /// Print the completion script for a shell
    Completions { shell: Shell },
    /// Write a man page for each command into a directory, such as agq-backup.1
    Man { directory: PathBuf },
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Address of agq for the other machine: HOST:PORT, or rediss://HOST:PORT for TLS
    #[arg(long = "agq", alias = "address", value_name = "ADDRESS")]
    address: String,
    /// File with the key for the other machine, which wins over AGQ_SESSION_KEY [default:
    /// AGQ_SESSION_KEY, or the file that AGQ_SESSION_KEY_FILE names]
    #[arg(long, value_name = "FILE")]
    session_key_file: Option<PathBuf>,
    /// CA of agq's certificate, PEM; needed unless the system trusts it
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

impl TokenArgs {
    /// Returns the token with address, key and CA. Fails if the key is a hash, if a CA is given for
    /// an address without TLS, or if `agx join` would refuse the token because of its length.
    pub(crate) fn token(&self) -> anyhow::Result<Token> {
        let addresses = Address::parse_all(&self.address).map_err(anyhow::Error::msg)?;
        let key = self.session_key_file.as_deref().map_or_else(default_key, key_in);
        let key = key.map_err(|error| anyhow!("{error}: {KEY_HELP}"))?;
        if hash_in(key.expose_secret()).is_some() {
            bail!(
                "this is the hash of a key, which cannot log in: give the key itself with --session-key-file"
            );
        }
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let ca = self.tls_ca.as_ref().map(read).transpose()?;
        if ca.is_some() && !addresses.iter().any(Address::is_tls) {
            bail!("a CA is given, but {} is not TLS: write rediss://host:port", self.address);
        }
        let token = Token { agq: self.address.clone(), key, ca };
        let refused = |problem: String| {
            anyhow!("`agx join` would refuse this token: {problem}; give the CA of agq alone with --tls-ca")
        };
        Token::parse(token.encode().expose_secret()).map_err(refused)?;
        Ok(token)
    }
}

/// Returns the key for a token without `--session-key-file`: from `AGQ_SESSION_KEY`, otherwise from
/// the file that `AGQ_SESSION_KEY_FILE` names. An empty variable counts as unset.
fn default_key() -> Result<SecretString, SessionKeyError> {
    let file = std::env::var_os("AGQ_SESSION_KEY_FILE").filter(|file| !file.is_empty());
    session_key(file.as_deref().map(Path::new))
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Store to read: a data directory, a backup, or postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "PLACE", value_parser = DataLocation::parse)]
    pub(crate) from: DataLocation,
    /// Directory of large outputs, which are copied to FILE.blobs [default: blobs in the data
    /// directory, or those of the backup]
    #[arg(long, env = "AGQ_BLOB_DIR", value_name = "DIR")]
    blob_dir: Option<PathBuf>,
    /// File to write, which must not exist; - for stdout, without large outputs
    pub(crate) file: PathBuf,
}

impl ExportArgs {
    /// Returns the directory of the blobs, if there is one.
    pub(crate) fn blob_dir(&self) -> Option<PathBuf> {
        let own = match &self.from {
            DataLocation::Path(path) if path.is_dir() => Some(path.join(BLOBS)),
            DataLocation::Path(path) => Some(blobs_beside(path)),
            DataLocation::Postgres(_) => None,
        };
        self.blob_dir.clone().or(own).filter(|directory| directory.is_dir())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Store to fill: a data directory without a database, or postgres://USER@HOST/DATABASE without
    /// content
    #[arg(long, value_name = "PLACE", value_parser = DataLocation::parse)]
    pub(crate) to: DataLocation,
    /// Directory for the large outputs of FILE.blobs; created if it is missing [default: blobs in
    /// the data directory]
    #[arg(long, env = "AGQ_BLOB_DIR", value_name = "DIR")]
    blob_dir: Option<PathBuf>,
    /// File to read; - for stdin
    pub(crate) file: PathBuf,
}

impl ImportArgs {
    /// Returns the directory for blobs. Fails for PostgreSQL without a directory.
    pub(crate) fn blob_dir(&self) -> anyhow::Result<PathBuf> {
        match (&self.to, &self.blob_dir) {
            (_, Some(directory)) => for_blobs(directory),
            (DataLocation::Path(data_dir), None) => Ok(data_dir.join(BLOBS)),
            (DataLocation::Postgres(_), None) => {
                bail!("the export has large outputs: name the directory for them with --blob-dir")
            }
        }
    }
}

/// Returns a directory for blobs. Fails for a place that is not a directory.
fn for_blobs(directory: &Path) -> anyhow::Result<PathBuf> {
    let place = directory.to_string_lossy();
    if place == "off" || place.contains("://") {
        bail!("--blob-dir is {place}: name the directory for the large outputs");
    }
    Ok(directory.to_owned())
}

/// Location of a store: an argument of `export` and `import`.
#[derive(Debug, Clone)]
pub(crate) enum DataLocation {
    /// Data directory or database file.
    Path(PathBuf),
    /// URL of a PostgreSQL database.
    Postgres(String),
}

impl DataLocation {
    fn parse(place: &str) -> Result<Self, Infallible> {
        let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| place.starts_with(scheme));
        Ok(if is_url { Self::Postgres(place.to_owned()) } else { Self::Path(place.into()) })
    }
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// URL of the database: postgres://USER@HOST/DATABASE. The password is read from ~/.pgpass or
    /// PGPASSWORD
    #[arg(long, env = "AGQ_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: String,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// File to write; it must not exist, and FILE.blobs must not either
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Data directory, database or backup
    pub(crate) path: PathBuf,
    /// Directory of large outputs, whose files are checked too [default: blobs in the data
    /// directory, or PATH.blobs beside a backup]
    #[arg(long, env = "AGQ_BLOB_DIR", value_name = "DIR")]
    blob_dir: Option<PathBuf>,
    /// Location of large outputs, instead of --blob-dir: s3://BUCKET/PREFIX or file:///DIR
    #[arg(long, env = "AGQ_BLOBS", value_name = "WHERE", hide_env_values = true)]
    blobs: Option<String>,
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

impl CheckArgs {
    /// Returns the location of large outputs, or `None` if there is none to check.
    pub(crate) fn blobs(&self) -> anyhow::Result<Option<BlobLocation>> {
        let selected = BlobLocation::selected(self.blobs.as_deref(), self.blob_dir.as_deref())?;
        let beside = if self.path.is_dir() { self.path.join(BLOBS) } else { blobs_beside(&self.path) };
        Ok(selected.or_else(|| beside.is_dir().then_some(BlobLocation::Directory(beside))))
    }
}

/// Returns the directory of the blobs of a backup.
pub(crate) fn blobs_beside(backup: &Path) -> PathBuf {
    backup.with_added_extension(BLOBS)
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// File of the backup
    pub(crate) file: PathBuf,
    /// Data directory; created if it is missing [default: ~/.agq]
    #[arg(long, env = "AGQ_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Directory for large outputs; created if it is missing [default: blobs in the data directory]
    #[arg(long, env = "AGQ_BLOB_DIR", value_name = "DIR")]
    blob_dir: Option<PathBuf>,
}

impl RestoreArgs {
    /// Returns the directory for blobs. Fails for a place that is not a directory.
    pub(crate) fn blob_dir(&self, data_dir: &Path) -> anyhow::Result<PathBuf> {
        self.blob_dir.as_deref().map_or_else(|| Ok(data_dir.join(BLOBS)), for_blobs)
    }

    /// Returns the data directory, by default `~/.agq`.
    pub(crate) fn data_dir(&self) -> anyhow::Result<PathBuf> {
        self.data_dir.clone().map_or_else(default_data_dir, Ok)
    }
}

/// Address of a running agq, with the same arguments as for agx.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Address of agq: HOST:PORT, or rediss://HOST:PORT for TLS, or unix:/PATH
    #[arg(long = "agq", alias = "addr", env = "AGQ_ADDR", value_name = "ADDRESS", default_value = "127.0.0.1:6380", help_heading = SERVER)]
    addr: String,
    /// File with the session key, or with the key of an admin
    #[arg(long, env = "AGQ_SESSION_KEY_FILE", value_name = "FILE", help_heading = SERVER)]
    session_key_file: Option<PathBuf>,
    /// CA of agq's certificate, PEM [default: those of the system]
    #[arg(long, env = "AGQ_CA", value_name = "FILE", help_heading = SERVER)]
    tls_ca: Option<PathBuf>,
    /// Client certificate, if agq requires one, PEM
    #[arg(long, env = "AGQ_CERT", value_name = "FILE", help_heading = SERVER)]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, PEM
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
        server.map_err(|problem| anyhow!("{problem}; give the address of agq with --agq or AGQ_ADDR"))
    }
}

#[cfg(test)]
mod tests {
    use super::TokenArgs;

    #[test]
    fn token_that_agx_join_refuses_is_not_printed() {
        let dir = tempfile::tempdir().unwrap();
        let [key, ca] = ["worker.key", "ca.pem"].map(|name| dir.path().join(name));
        let args = TokenArgs {
            address: "rediss://agq.example:6380".into(),
            session_key_file: Some(key.clone()),
            tls_ca: Some(ca.clone()),
        };
        let token = |key_text: &str, ca_bytes: usize| {
            std::fs::write(&key, key_text).unwrap();
            std::fs::write(&ca, "c".repeat(ca_bytes)).unwrap();
            args.token().map(drop).map_err(|error| error.to_string())
        };
        let key_text = "k".repeat(64);
        assert_eq!(token(&key_text, 40_000), Ok(()));
        let refused = token(&key_text, 50_000).unwrap_err();
        assert!(refused.contains("it has more than 65536 bytes; give the CA of agq alone"), "{refused}");
        for hash in ["sha256:0123", "\u{feff}sha256:0123"] {
            assert!(token(hash, 1).unwrap_err().contains("this is the hash of a key"), "{hash:?}");
        }
    }
}
