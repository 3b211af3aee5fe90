//! Options that select agq and the session key: flags, environment variables and profiles.

use std::{io::Write, path::PathBuf, sync::Once};

use agenix_client::{Address, Connection, KEY_HELP, Server, SessionKeyError, Tls, key_in, session_key};
use clap::Args;
use secrecy::SecretString;

use crate::{
    error::{CliError, Result},
    profiles::{Profile, UserDir},
    util::printable::one_line,
};

/// Address of agq if neither an option, a variable nor a profile names one.
const DEFAULT_ADDRESS: &str = "127.0.0.1:6380";
/// Advice for an address without a session key.
const NO_KEY: &str = "if no agq is running, `agx up` starts an agq and a worker; otherwise set AGQ_SESSION_KEY or --session-key-file to \
                      the key that agq was started with";
/// Message for a command with neither an address nor a key.
const NOTHING_RUNS: &str = "no agq is configured or running, and there is no session key";
const START_ONE: &str = "`agx up` starts an agq and a worker on this machine; for an agq that runs elsewhere give its address with --agq or \
                         AGQ_ADDR, and set AGQ_SESSION_KEY or --session-key-file";
/// Environment variable with the URL of agq, used if AGQ_ADDR is not set.
const URL: &str = "AGQ_URL";

/// Address of agq, and credentials.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Address of agq: HOST:PORT, rediss://HOST:PORT for TLS, or unix:/PATH; a list with commas if
    /// several nodes share a database: agx tries the next node if one is down
    ///
    /// [default: 127.0.0.1:6380]
    #[arg(long, global = true, env = "AGQ_ADDR", value_name = "ADDRESS")]
    agq: Option<String>,
    /// Use this profile instead of the default profile
    #[arg(long, global = true, env = "AGX_PROFILE", value_name = "NAME", conflicts_with = "agq")]
    profile: Option<String>,
    /// File with the session key
    #[arg(long, global = true, env = "AGQ_SESSION_KEY_FILE", value_name = "FILE")]
    session_key_file: Option<PathBuf>,
    /// CA of agq's certificate, PEM [default: the CAs of the system]
    #[arg(long, global = true, env = "AGQ_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Client certificate, PEM, if agq requires one; a certificate that names a client replaces the
    /// session key
    #[arg(long, global = true, env = "AGQ_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, PEM
    #[arg(long, global = true, env = "AGQ_KEY_FILE", value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

impl ServerArgs {
    pub(crate) async fn connect(&self) -> Result<Connection> {
        Ok(Connection::open(&self.server()?).await?)
    }

    /// Returns the server that an address or a profile names, or `None`.
    pub(crate) fn given(&self) -> Result<Option<Server>> {
        if self.address().is_some() || self.profile()?.is_some() { self.server().map(Some) } else { Ok(None) }
    }

    /// Returns the address of agq from `--agq`, AGQ_ADDR or AGQ_URL.
    pub(crate) fn address(&self) -> Option<String> {
        let set = |name| std::env::var(name).ok().filter(|url: &String| !url.trim().is_empty());
        self.agq.clone().or_else(|| set(URL))
    }

    fn profile(&self) -> Result<Option<Profile>> {
        let named = self.profile.as_deref();
        if named.is_some() {
            return Ok(UserDir::find()?.profiles()?.get(named)?.cloned());
        }
        // A user without a directory for profiles has no profiles.
        let Ok(home) = UserDir::find() else { return Ok(None) };
        let (profiles, why_none) = home.readable_profiles()?;
        if let Some(why) = why_none {
            note_once(&why);
        }
        Ok(profiles.get(None)?.cloned())
    }

    /// Returns the environment variables that stand for these options, with absolute paths.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let path = |file: &Option<PathBuf>| {
            let absolute = std::path::absolute(file.as_ref()?).ok()?;
            Some(absolute.display().to_string())
        };
        let all = [
            ("AGQ_ADDR", self.address()),
            ("AGX_PROFILE", self.profile.clone()),
            ("AGQ_SESSION_KEY_FILE", path(&self.session_key_file)),
            ("AGQ_CA", path(&self.tls_ca)),
            ("AGQ_CERT", path(&self.tls_cert)),
            ("AGQ_KEY_FILE", path(&self.tls_key)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Returns these options as a profile, with absolute paths.
    pub(crate) fn as_profile(&self) -> Result<Profile> {
        let agq = self.address().ok_or_else(|| {
            CliError::usage("there is no address to store", "give --agq ADDRESS, and --session-key-file FILE")
        })?;
        let whole = |file: &Option<PathBuf>| {
            let absolute = |path: &PathBuf| std::path::absolute(path);
            file.as_ref()
                .map(absolute)
                .transpose()
                .map_err(|error| CliError::usage(error.to_string(), "name a file"))
        };
        let profile = Profile {
            agq,
            session_key_file: whole(&self.session_key_file)?,
            tls_ca: whole(&self.tls_ca)?,
            tls_cert: whole(&self.tls_cert)?,
            tls_key: whole(&self.tls_key)?,
        };
        server_of(&profile)?;
        Ok(profile)
    }

    /// Returns the server. Options override the profile.
    pub(crate) fn server(&self) -> Result<Server> {
        let stored = if self.address().is_none() { self.profile()? } else { None };
        let own = self.session_key_file.as_deref();
        let key = match stored.as_ref().and_then(|stored| own.or(stored.session_key_file.as_deref())) {
            // The key of a profile belongs to its address, so it overrides the environment.
            Some(file) => key_in(file),
            None => session_key(own),
        };
        let is_named = stored.is_some() || self.address().is_some() || self.tls_cert.is_some();
        if !is_named && matches!(key, Err(SessionKeyError::Missing)) {
            return Err(CliError::NoServer { what: NOTHING_RUNS.into(), help: START_ONE.into() });
        }
        let stored = stored.unwrap_or_else(|| Profile::new(DEFAULT_ADDRESS));
        let profile = Profile {
            agq: self.address().unwrap_or(stored.agq),
            session_key_file: None,
            tls_ca: self.tls_ca.clone().or(stored.tls_ca),
            tls_cert: self.tls_cert.clone().or(stored.tls_cert),
            tls_key: self.tls_key.clone().or(stored.tls_key),
        };
        server_with(&profile, key)
    }
}

/// Writes `text` to stderr, at most once per process.
fn note_once(text: &str) {
    static WRITTEN: Once = Once::new();
    WRITTEN.call_once(|| {
        // A closed stderr is not an error.
        let _unread = writeln!(std::io::stderr(), "agx: {}", one_line(text));
    });
}

/// Returns the server of `profile`, with the key that the profile names.
pub(crate) fn server_of(profile: &Profile) -> Result<Server> {
    server_with(profile, profile.session_key_file.as_deref().map_or_else(|| session_key(None), key_in))
}

fn server_with(profile: &Profile, key: Result<SecretString, SessionKeyError>) -> Result<Server> {
    let key = match key {
        Ok(key) => Some(key),
        // The certificate may authenticate the client.
        Err(SessionKeyError::Missing) if profile.tls_cert.is_some() => None,
        Err(error @ SessionKeyError::Missing) => {
            return Err(CliError::NoServer { what: error.to_string(), help: NO_KEY.into() });
        }
        Err(error) => return Err(CliError::usage(error.to_string(), KEY_HELP)),
    };
    let help = "give the address of agq with --agq or AGQ_ADDR, and the certificates for TLS with --tls-ca, \
                --tls-cert and --tls-key";
    let wrong = |what| CliError::usage(what, help);
    let tls =
        Tls { ca: profile.tls_ca.clone(), cert: profile.tls_cert.clone(), key: profile.tls_key.clone() };
    let addresses = Address::parse_all(&profile.agq).map_err(wrong)?;
    Server::with_tls(addresses, tls, key).map_err(wrong)
}
