//! Options that select agq and the session key: flags, environment variables and profiles.

use std::{io::Write, path::PathBuf, sync::Once};

use agenix_client::{
    Address, ClientError, Connection, KEY_HELP, Server, SessionKeyError, Tls, key_in, session_key,
};
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
/// Environment variables with the address of agq. The first one that is set counts.
const ADDRESSES: [&str; 2] = ["AGQ_ADDR", "AGQ_URL"];
/// Environment variable with the name of a profile.
const PROFILE: &str = "AGX_PROFILE";

/// Address of agq, and credentials.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Address of agq: HOST:PORT, rediss://HOST:PORT for TLS, or unix:/PATH; a list with commas if
    /// several nodes share a database: agx tries the next node if one is down
    ///
    /// [env: AGQ_ADDR, otherwise AGQ_URL] [default: 127.0.0.1:6380]
    #[arg(long, global = true, value_name = "ADDRESS")]
    agq: Option<String>,
    /// Use this profile instead of the default profile [env: AGX_PROFILE]
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "agq")]
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

/// Selection of an agq by an option or a variable.
#[derive(Debug, PartialEq, Eq)]
enum Selection {
    Address(String),
    /// Name of a profile.
    Profile(String),
    /// Neither an option nor a variable selects an agq.
    None,
}

impl ServerArgs {
    pub(crate) async fn connect(&self) -> Result<Connection> {
        Ok(Connection::open(&self.server()?).await?)
    }

    /// Returns the server that an address or a profile names, or `None`.
    pub(crate) fn given(&self) -> Result<Option<Server>> {
        let selection = self.selection()?;
        let is_given = matches!(selection, Selection::Address(_)) || stored_profile(&selection)?.is_some();
        if is_given { self.server().map(Some) } else { Ok(None) }
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
            Selection::Address(address) => Some(address),
            _ => None,
        })
    }

    fn selection(&self) -> Result<Selection> {
        let set = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        selected(self.agq.as_deref(), self.profile.as_deref(), set)
    }

    /// Returns the environment variables that stand for these options, with absolute paths.
    pub(crate) fn variables(&self) -> Result<Vec<(&'static str, String)>> {
        let path = |file: &Option<PathBuf>| {
            let absolute = std::path::absolute(file.as_ref()?).ok()?;
            Some(absolute.display().to_string())
        };
        let (address, profile) = match self.selection()? {
            Selection::Address(address) => (Some(address), None),
            Selection::Profile(profile) => (None, Some(profile)),
            Selection::None => (None, None),
        };
        let all = [
            (ADDRESSES[0], address),
            (PROFILE, profile),
            ("AGQ_SESSION_KEY_FILE", path(&self.session_key_file)),
            ("AGQ_CA", path(&self.tls_ca)),
            ("AGQ_CERT", path(&self.tls_cert)),
            ("AGQ_KEY_FILE", path(&self.tls_key)),
        ];
        Ok(all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }

    /// Returns these options as a profile, with absolute paths.
    pub(crate) fn as_profile(&self) -> Result<Profile> {
        let Selection::Address(agq) = self.selection()? else {
            return Err(CliError::usage(
                "there is no address to store",
                "give --agq ADDRESS, and --session-key-file FILE",
            ));
        };
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
        let selection = self.selection()?;
        let stored = stored_profile(&selection)?;
        let address = match selection {
            Selection::Address(address) => Some(address),
            _ => None,
        };
        let own = self.session_key_file.as_deref();
        let key = match stored.as_ref().and_then(|stored| own.or(stored.session_key_file.as_deref())) {
            // The key of a profile belongs to its address, so it overrides the environment.
            Some(file) => key_in(file),
            None => session_key(own),
        };
        let is_named = stored.is_some() || address.is_some() || self.tls_cert.is_some();
        if !is_named && matches!(key, Err(SessionKeyError::Missing)) {
            return Err(CliError::NoServer { what: NOTHING_RUNS.into(), help: START_ONE.into() });
        }
        let stored = stored.unwrap_or_else(|| Profile::new(DEFAULT_ADDRESS));
        let profile = Profile {
            agq: address.unwrap_or(stored.agq),
            session_key_file: None,
            tls_ca: self.tls_ca.clone().or(stored.tls_ca),
            tls_cert: self.tls_cert.clone().or(stored.tls_cert),
            tls_key: self.tls_key.clone().or(stored.tls_key),
        };
        server_with(&profile, key)
    }
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
    matches!(failure, ClientError::Unreachable { .. }) && failure.connection_limit_help().is_none()
}

/// Returns the agq that the options `agq` and `profile` or the variables select. An option
/// overrides variables.
fn selected(
    agq: Option<&str>,
    profile: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Selection> {
    if let Some(address) = agq {
        return Ok(Selection::Address(address.to_owned()));
    }
    if let Some(name) = profile {
        return Ok(Selection::Profile(name.to_owned()));
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
        (Some((_, address)), None) => Ok(Selection::Address(address)),
        (None, Some(profile)) => Ok(Selection::Profile(profile)),
        (None, None) => Ok(Selection::None),
    }
}

fn is_of_http(address: &str) -> bool {
    let scheme = address.trim_start().split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| scheme == "http" || scheme == "https")
}

/// Returns the selected profile, or the current one if nothing is selected.
fn stored_profile(selection: &Selection) -> Result<Option<Profile>> {
    match selection {
        Selection::Address(_) => return Ok(None),
        Selection::Profile(name) => return Ok(UserDir::find()?.profiles()?.get(Some(name))?.cloned()),
        Selection::None => {}
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

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixListener,
    };

    use agenix_client::Server;

    use super::{
        Selection::{self, Address, Profile},
        open_default, selected,
    };
    use crate::error::CliError;

    fn of(agq: Option<&str>, profile: Option<&str>, set: &[(&str, &str)]) -> Result<Selection, String> {
        let variable = |name: &str| Some(set.iter().find(|(known, _)| *known == name)?.1.to_owned());
        selected(agq, profile, variable).map_err(|failure| failure.to_string())
    }

    #[test]
    fn server_options_override_variables() {
        let all = [("AGQ_ADDR", "a:1"), ("AGQ_URL", "u:1"), ("AGX_PROFILE", "p")];
        assert_eq!(of(Some("o:1"), None, &all), Ok(Address("o:1".into())));
        assert_eq!(of(None, Some("o"), &all), Ok(Profile("o".into())));
        assert_eq!(of(None, None, &all[..2]), Ok(Address("a:1".into())));
        assert_eq!(of(None, None, &all[1..2]), Ok(Address("u:1".into())));
        assert_eq!(of(None, None, &all[2..]), Ok(Profile("p".into())));
        assert_eq!(of(None, None, &[("AGQ_ADDR", " "), ("AGX_PROFILE", "")]), Ok(Selection::None));
    }

    #[test]
    fn server_variables_that_contradict_each_other_are_named() {
        let refused = of(None, None, &[("AGQ_URL", "u:1"), ("AGX_PROFILE", "p")]).unwrap_err();
        assert!(refused.contains("AGQ_URL and AGX_PROFILE"), "{refused}");
    }

    #[test]
    fn server_variable_with_an_address_of_http_is_named() {
        for address in ["http://h:6381", "HTTPS://h"] {
            let refused = of(None, None, &[("AGQ_URL", address)]).unwrap_err();
            assert!(refused.contains("variable AGQ_URL has an address of HTTP"), "{refused}");
            assert_eq!(of(None, Some("p"), &[("AGQ_URL", address)]), Ok(Profile("p".into())));
        }
        assert_eq!(of(None, None, &[("AGQ_URL", "redis://h")]), Ok(Address("redis://h".into())));
    }

    #[tokio::test]
    async fn server_at_the_default_address_counts_if_it_answers() {
        let without_key = Err(CliError::NoServer { what: String::new(), help: String::new() });
        assert!(open_default(without_key).await.unwrap().is_none());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agq.sock");
        let server = Server::new(&format!("unix:{}", path.display()), "key".to_owned().into()).unwrap();
        assert!(open_default(Ok(server.clone())).await.unwrap().is_none());
        let listener = UnixListener::bind(&path).unwrap();
        // The thread ends with the connection.
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut buffer = [0; 1024];
            while let Ok(length @ 1..) = client.read(&mut buffer) {
                // Each command begins with an asterisk.
                let commands = buffer[..length].iter().filter(|byte| **byte == b'*').count();
                if client.write_all("+OK\r\n".repeat(commands).as_bytes()).is_err() {
                    break;
                }
            }
        });
        let (_connection, address) = open_default(Ok(server)).await.unwrap().unwrap();
        assert_eq!(address, format!("unix:{}", path.display()));
    }
}
