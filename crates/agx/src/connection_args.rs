//! Options that select agq and the session key: flags, environment variables and profiles.

use std::{
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
    sync::Once,
};

use agenix_client::{
    Address, ClientError, Connection, KEY_HELP, Server, SessionKeyError, Tls, key_in, session_key,
};
use agenix_protocol::byte_escape::encode_os;
use clap::Args;
use secrecy::SecretString;

use crate::{
    error::{CliError, Result},
    profiles::{LOCAL, ServerProfile, UserDir},
    util::{path_text::PathText, printable::one_line, text::any_bytes},
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
/// Environment variables with the address of agq. The first one that is set counts.
const ADDRESSES: [&str; 2] = ["AGQ_ADDR", "AGQ_URL"];
/// Environment variable with the name of a profile.
const PROFILE: &str = "AGX_PROFILE";
/// Options that name a file, and the environment variable of each.
const FILES: [(&str, &str); 4] = [
    ("session-key-file", "AGQ_SESSION_KEY_FILE"),
    ("tls-ca", "AGQ_CA"),
    ("tls-cert", "AGQ_CERT"),
    ("tls-key", "AGQ_KEY_FILE"),
];

/// Address of agq, and credentials.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArgs {
    /// Address of agq: HOST:PORT, rediss://HOST:PORT for TLS, or unix:/PATH; a list with commas if
    /// several nodes share a database: agx tries the next node if one is down
    ///
    /// [env: AGQ_ADDR, otherwise AGQ_URL] [default: 127.0.0.1:6380]
    #[arg(long, global = true, value_name = "ADDRESS", value_parser = any_bytes())]
    agq: Option<String>,
    /// Use this profile instead of the default profile [env: AGX_PROFILE]
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "agq")]
    profile: Option<String>,
    /// File with the session key [env: AGQ_SESSION_KEY_FILE, unless a profile is in use]
    #[arg(long, global = true, value_name = "FILE")]
    session_key_file: Option<PathBuf>,
    /// CA of agq's certificate, PEM [env: AGQ_CA, unless a profile is in use] [default: the CAs of
    /// the system]
    #[arg(long, global = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Client certificate, PEM, if agq requires one; a certificate that names a client replaces the
    /// session key [env: AGQ_CERT, unless a profile is in use]
    #[arg(long, global = true, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, PEM [env: AGQ_KEY_FILE, unless a profile is in use]
    #[arg(long, global = true, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

/// Environment variables and arguments that stand for [`ConnectionArgs`].
#[derive(Debug)]
pub(crate) struct ServerSettings {
    pub(crate) variables: Vec<(&'static str, String)>,
    pub(crate) arguments: Vec<String>,
}

/// Selection of an agq by an option or a variable.
#[derive(Debug, PartialEq, Eq)]
enum ServerSelection {
    Address(String),
    /// Name of a profile.
    Profile(String),
    /// Neither an option nor a variable selects an agq.
    None,
}

impl ConnectionArgs {
    pub(crate) async fn connect(&self) -> Result<Connection> {
        Ok(Connection::open(&self.server()?).await?)
    }

    /// Returns the server that an address or a profile names, or `None`.
    pub(crate) fn given(&self) -> Result<Option<Server>> {
        if self.is_given()? { self.server().map(Some) } else { Ok(None) }
    }

    /// Returns true if an address or a profile names a server.
    pub(crate) fn is_given(&self) -> Result<bool> {
        let selection = self.selection()?;
        Ok(selection != ServerSelection::None || stored_profile(&selection)?.is_some())
    }

    /// Returns true if no option and no variable selects a server, and the default profile is that
    /// of `agx up`.
    pub(crate) fn is_default_of_up(&self) -> Result<bool> {
        if self.selection()? != ServerSelection::None {
            return Ok(false);
        }
        let (profiles, _) = UserDir::find()?.readable_profiles()?;
        Ok(profiles.current.as_deref() == Some(LOCAL))
    }

    /// Connects to the server that is given, or to one at the default address. Returns the address,
    /// too, and `None` if no server is given and none can be reached there.
    pub(crate) async fn connect_if_any(&self) -> Result<Option<(Connection, String)>> {
        match self.given()? {
            Some(server) => Ok(Some((Connection::open(&server).await?, server.address()))),
            None => open_default(self.server()).await,
        }
    }

    /// Returns the address of agq from `--agq`, AGQ_ADDR or AGQ_URL, unless a profile is selected.
    pub(crate) fn address(&self) -> Result<Option<String>> {
        Ok(match self.selection()? {
            ServerSelection::Address(address) => Some(address),
            _ => None,
        })
    }

    fn selection(&self) -> Result<ServerSelection> {
        let set = |name: &str| Some(encode_os(&std::env::var_os(name)?));
        selected(self.agq.as_deref(), self.profile.as_deref(), set)
    }

    /// Returns the files of the options in the order of [`FILES`]. Without a profile, a variable
    /// stands for a missing option: the files of a profile belong to its address.
    fn files(
        &self,
        has_profile: bool,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> [Option<PathBuf>; FILES.len()] {
        let options = [&self.session_key_file, &self.tls_ca, &self.tls_cert, &self.tls_key];
        let set = |name: &str| variable(name).filter(|value| !value.is_empty() && !has_profile);
        std::array::from_fn(|n| options[n].clone().or_else(|| set(FILES[n].1).map(PathBuf::from)))
    }

    /// Returns the environment variables and the arguments that stand for these options, with
    /// absolute paths. Variables do not replace the files of a profile, and arguments do.
    pub(crate) fn settings(&self) -> Result<ServerSettings> {
        let selection = self.selection()?;
        let has_profile =
            matches!(selection, ServerSelection::Profile(_)) || stored_profile(&selection)?.is_some();
        let mut variables = match selection {
            ServerSelection::Address(address) => vec![(ADDRESSES[0], address)],
            ServerSelection::Profile(profile) => vec![(PROFILE, profile)],
            ServerSelection::None => Vec::new(),
        };
        let mut arguments = Vec::new();
        let files = self.files(has_profile, environment_variable);
        for ((option, variable), file) in FILES.into_iter().zip(files) {
            let Some(Ok(file)) = file.map(std::path::absolute) else { continue };
            if has_profile {
                arguments.push(format!("--{option}={}", file.display()));
            } else {
                variables.push((variable, file.display().to_string()));
            }
        }
        Ok(ServerSettings { variables, arguments })
    }

    /// Returns these options as a profile, with absolute paths.
    pub(crate) fn as_profile(&self) -> Result<ServerProfile> {
        let ServerSelection::Address(agq) = self.selection()? else {
            return Err(CliError::usage(
                "there is no address to store",
                "give --agq ADDRESS, and --session-key-file FILE",
            ));
        };
        let whole = |file: Option<PathBuf>| {
            let file = file.map(std::path::absolute).transpose();
            let file = file.map_err(|error| CliError::usage(error.to_string(), "name a file"))?;
            Ok::<_, CliError>(file.map(PathText::from))
        };
        let [session_key_file, tls_ca, tls_cert, tls_key] = self.files(false, environment_variable);
        let profile = ServerProfile {
            agq,
            session_key_file: whole(session_key_file)?,
            tls_ca: whole(tls_ca)?,
            tls_cert: whole(tls_cert)?,
            tls_key: whole(tls_key)?,
        };
        server_of(&profile)?;
        Ok(profile)
    }

    /// Returns the server. Options override the profile, and the profile overrides variables.
    pub(crate) fn server(&self) -> Result<Server> {
        let selection = self.selection()?;
        let stored = stored_profile(&selection)?;
        let address = match selection {
            ServerSelection::Address(address) => Some(address),
            _ => None,
        };
        let [key_file, tls_ca, tls_cert, tls_key] = self.files(stored.is_some(), environment_variable);
        let own = key_file.as_deref();
        let key = match stored.as_ref().and_then(|stored| own.or(stored.session_key_file.as_deref())) {
            // The key of a profile belongs to its address, so it overrides the environment.
            Some(file) => key_in(file),
            None => session_key(own),
        };
        let is_named = stored.is_some() || address.is_some() || tls_cert.is_some();
        if !is_named && matches!(key, Err(SessionKeyError::Missing)) {
            return Err(CliError::NoServer { problem: NOTHING_RUNS.into(), help: START_ONE.into() });
        }
        let stored = stored.unwrap_or_else(|| ServerProfile::new(DEFAULT_ADDRESS));
        let profile = ServerProfile {
            agq: address.unwrap_or(stored.agq),
            session_key_file: None,
            tls_ca: tls_ca.map(PathText::from).or(stored.tls_ca),
            tls_cert: tls_cert.map(PathText::from).or(stored.tls_cert),
            tls_key: tls_key.map(PathText::from).or(stored.tls_key),
        };
        server_with(&profile, key)
    }
}

fn environment_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Connects to the server at the default address. Returns `None` if there is no key for `server`,
/// or no agq answers there.
async fn open_default(server: Result<Server>) -> Result<Option<(Connection, String)>> {
    let server = match server {
        Ok(server) => server,
        Err(CliError::NoServer { .. }) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    match Connection::open(&server).await {
        Ok(connection) => Ok(Some((connection, server.address()))),
        Err(failure) if is_absent(&failure) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

/// Returns true if no agq answers at all.
pub(crate) fn is_absent(failure: &ClientError) -> bool {
    matches!(failure, ClientError::Unreachable { .. }) && failure.limit_help().is_none()
}

/// Returns the agq that the options `agq` and `profile` or the variables select. An option
/// overrides variables.
fn selected(
    agq: Option<&str>,
    profile: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<ServerSelection> {
    if let Some(address) = agq {
        return Ok(ServerSelection::Address(address.to_owned()));
    }
    if let Some(name) = profile {
        return Ok(ServerSelection::Profile(name.to_owned()));
    }
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let address = ADDRESSES.into_iter().find_map(|name| Some((name, set(name)?)));
    match (address, set(PROFILE)) {
        (Some((name, _)), Some(_)) => Err(CliError::usage(
            format!("the variables {name} and {PROFILE} are set, and each selects an agq"),
            "unset one of them, or give --agq or --profile, which override both",
        )),
        (Some((name, address)), None) if is_of_http(&address) => Err(CliError::usage(
            format!("the variable {name} has an address of HTTP, and agx connects to the other port of agq"),
            "set AGQ_ADDR, or give --agq: HOST:PORT, rediss://HOST:PORT for TLS, or unix:/PATH; AGQ_URL does not count then",
        )),
        (Some((_, address)), None) => Ok(ServerSelection::Address(address)),
        (None, Some(profile)) => Ok(ServerSelection::Profile(profile)),
        (None, None) => Ok(ServerSelection::None),
    }
}

fn is_of_http(address: &str) -> bool {
    let scheme = address.trim_start().split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| scheme == "http" || scheme == "https")
}

/// Returns the selected profile, or the current one if nothing is selected.
fn stored_profile(selection: &ServerSelection) -> Result<Option<ServerProfile>> {
    match selection {
        ServerSelection::Address(_) => return Ok(None),
        ServerSelection::Profile(name) => return Ok(UserDir::find()?.profiles()?.get(Some(name))?.cloned()),
        ServerSelection::None => {}
    }
    // A user without a directory for profiles has no profiles.
    let Ok(home) = UserDir::find() else { return Ok(None) };
    let (profiles, why_none) = home.readable_profiles()?;
    if let Some(why) = why_none {
        note_once(&why);
    }
    Ok(profiles.get(None)?.cloned())
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
pub(crate) fn server_of(profile: &ServerProfile) -> Result<Server> {
    server_with(profile, profile.session_key_file.as_deref().map_or_else(|| session_key(None), key_in))
}

fn server_with(profile: &ServerProfile, key: Result<SecretString, SessionKeyError>) -> Result<Server> {
    let key = match key {
        Ok(key) => Some(key),
        // The certificate may authenticate the client.
        Err(SessionKeyError::Missing) if profile.tls_cert.is_some() => None,
        Err(error @ SessionKeyError::Missing) => {
            return Err(CliError::NoServer { problem: error.to_string(), help: NO_KEY.into() });
        }
        Err(error) => return Err(CliError::usage(error.to_string(), KEY_HELP)),
    };
    let help = "give the address of agq with --agq or AGQ_ADDR, and the certificates for TLS with --tls-ca, \
                --tls-cert and --tls-key";
    let wrong = |problem| CliError::usage(problem, help);
    let [ca, cert, key_of_cert] = [&profile.tls_ca, &profile.tls_cert, &profile.tls_key]
        .map(|file| file.as_deref().map(Path::to_owned));
    let tls = Tls { ca, cert, key: key_of_cert };
    let addresses = Address::parse_all(&profile.agq).map_err(wrong)?;
    Server::with_tls(addresses, tls, key).map_err(wrong)
}

#[cfg(test)]
mod tests;
