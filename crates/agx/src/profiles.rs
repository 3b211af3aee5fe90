//! Profiles of the user, and the directories of the processes that `agx up` and `agx join` start.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use agenix_protocol::documents::{parse, to_json};
use serde::{Deserialize, Serialize};

use crate::{
    error::{CliError, Result},
    util::{atomic_file::write_private, path_text::PathText},
};

/// Name of the profile that `agx up` creates.
pub(crate) const LOCAL: &str = "local";
/// Environment variable for a directory other than `~/.agx`.
const VARIABLE: &str = "AGX_HOME";
const FILE: &str = "profiles.json";
/// Name of the file that a process locks while it changes the profiles.
const LOCK: &str = "profiles.lock";
/// Mode of the directory: only its owner may read it, because it has keys.
const OWN: u32 = 0o700;

/// Directory for the data of one user.
#[derive(Debug, Clone)]
pub(crate) struct UserDir(PathBuf);

/// Address of an agq, and credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerProfile {
    /// One address, or several with commas between them.
    pub(crate) agq: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session_key_file: Option<PathText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tls_ca: Option<PathText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tls_cert: Option<PathText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tls_key: Option<PathText>,
}

/// All profiles, and the name of the default profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerProfiles {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    pub(crate) profiles: BTreeMap<String, ServerProfile>,
}

impl ServerProfile {
    pub(crate) fn new(agq: &str) -> Self {
        Self { agq: agq.into(), session_key_file: None, tls_ca: None, tls_cert: None, tls_key: None }
    }
}

impl UserDir {
    /// Returns `AGX_HOME`, or `~/.agx`.
    pub(crate) fn find() -> Result<Self> {
        let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let place = named.or_else(|| Some(std::env::home_dir()?.join(".agx")));
        place
            .map(Self)
            .ok_or_else(|| CliError::usage("there is no home directory", format!("name one with {VARIABLE}")))
    }

    /// Returns the directory of the background processes named `name`, and creates it if missing.
    pub(crate) fn default_path(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        let place = self.0.join(name);
        let made = fs::DirBuilder::new().recursive(true).mode(OWN).create(&place);
        made.and_then(|()| fs::set_permissions(&place, fs::Permissions::from_mode(OWN)))
            .map_err(|error| self.cannot("make a directory in", &error))?;
        fs::canonicalize(&place).map_err(|error| self.cannot("find", &error))
    }

    /// Returns the directory of [`Self::default_path`] if it exists already.
    pub(crate) fn known_path(&self, name: &str) -> Result<Option<PathBuf>> {
        check_name(name)?;
        match fs::canonicalize(self.0.join(name)) {
            Err(error) if is_missing(&error) => Ok(None),
            found => found.map(Some).map_err(|error| self.cannot("find", &error)),
        }
    }

    /// Returns the directory of the keys that sign orders. No profile can have the name of this
    /// directory.
    pub(crate) fn keys_path(&self) -> PathBuf {
        self.0.join(".keys")
    }

    /// Returns the profiles, or none if the file is missing.
    pub(crate) fn profiles(&self) -> Result<ServerProfiles> {
        self.read()
            .map_err(|error| self.cannot("read the profiles in", &error))
            .and_then(|json| self.parsed(&json))
    }

    /// Returns the profiles, or none and the reason if the file is unreadable (a foreign HOME).
    pub(crate) fn readable_profiles(&self) -> Result<(ServerProfiles, Option<String>)> {
        match self.read() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let why = format!(
                    "the profiles in {} cannot be read and do not count ({error}); {VARIABLE} names another place",
                    self.0.display()
                );
                Ok((ServerProfiles::default(), Some(why)))
            }
            Err(error) => Err(self.cannot("read the profiles in", &error)),
            Ok(json) => Ok((self.parsed(&json)?, None)),
        }
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        match fs::read(self.0.join(FILE)) {
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            read => read,
        }
    }

    fn parsed(&self, json: &[u8]) -> Result<ServerProfiles> {
        // A full disk may have left an empty file.
        if json.trim_ascii().is_empty() {
            return Ok(ServerProfiles::default());
        }
        let file = self.0.join(FILE);
        parse(json).map_err(|error| {
            CliError::usage(format!("{}: {error}", file.display()), "fix it, or remove and recreate it")
        })
    }

    /// Changes the profiles under a file lock.
    pub(crate) fn change(&self, change: impl FnOnce(&mut ServerProfiles)) -> Result<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(OWN).create(&self.0);
        made.map_err(|error| self.cannot("make", &error))?;
        // The lock is needed, because two changes at once could overwrite each other. On a file
        // system without locks, the change continues without the lock.
        let lock = fs::File::create(self.0.join(LOCK)).map_err(|error| self.cannot("write in", &error))?;
        let _held_or_without = lock.lock();
        let mut profiles = self.profiles()?;
        change(&mut profiles);
        // The file is replaced atomically, and only its owner may read it.
        write_private(&self.0, FILE, to_json(&profiles).as_bytes())
    }

    fn cannot(&self, operation: &str, error: &io::Error) -> CliError {
        CliError::usage(
            format!("cannot {operation} {}: {error}", self.0.display()),
            format!("look at its owner and its permissions, or choose another place with {VARIABLE}"),
        )
    }
}

impl ServerProfiles {
    pub(crate) fn get(&self, name: Option<&str>) -> Result<Option<&ServerProfile>> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(None) };
        let found = self.profiles.get(name);
        found.map(Some).ok_or_else(|| not_found(name))
    }
}

/// Returns true if the file is missing. HOME may be a file such as `/dev/null` (`NotADirectory`).
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

pub(crate) fn not_found(name: &str) -> CliError {
    CliError::usage(
        format!("there is no profile '{name}'"),
        "see the profiles with `agx profile list`; `agx up`, `agx join` and `agx profile set` make one",
    )
}

/// Checks that `name` can name a profile.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.len() <= 64 && name.chars().all(is_legal) && !name.starts_with('.') {
        return Ok(());
    }
    Err(CliError::usage(
        format!("'{name}' cannot be the name of a profile"),
        "use letters, digits, '-', '_' and '.', at most 64 of them",
    ))
}

/// Writes a secret to a file that only its owner may read.
pub(crate) fn write_secret(dir: &Path, name: &str, secret: &str) -> Result<PathBuf> {
    write_private(dir, name, format!("{secret}\n").as_bytes())?;
    Ok(dir.join(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{ServerProfile, UserDir, check_name};

    #[test]
    fn profiles_are_private_to_their_user() {
        let dir = tempfile::tempdir().unwrap();
        let home = UserDir(dir.path().join("agx"));
        assert_eq!(home.profiles().unwrap().get(None).unwrap(), None);
        home.change(|all| {
            all.profiles.insert("a".into(), ServerProfile::new("a:1"));
            all.current = Some("a".into());
        })
        .unwrap();
        let kept = home.profiles().unwrap();
        assert_eq!(kept.get(None).unwrap(), Some(&ServerProfile::new("a:1")));
        assert!(kept.get(Some("b")).unwrap_err().to_string().contains("no profile 'b'"));
        let mode = |path: &str| std::fs::metadata(home.0.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(""), mode("profiles.json")), (0o700, 0o600));
    }

    #[test]
    fn profiles_are_empty_without_a_home_directory() {
        let dir = tempfile::tempdir().unwrap();
        let none = |home: &UserDir| home.profiles().unwrap().profiles.is_empty();
        for nowhere in ["/dev/null/.agx", "/nonexistent/.agx"] {
            let home = UserDir(nowhere.into());
            assert!(none(&home) && home.readable_profiles().unwrap().1.is_none(), "{nowhere}");
            assert_eq!(home.known_path("local").unwrap(), None);
        }
        for empty in ["", "\n"] {
            std::fs::write(dir.path().join("profiles.json"), empty).unwrap();
            assert!(none(&UserDir(dir.path().into())));
        }
        std::fs::write(dir.path().join("profiles.json"), "{").unwrap();
        assert!(UserDir(dir.path().into()).readable_profiles().is_err(), "a broken one is told");
    }

    #[test]
    fn profiles_of_another_user_are_ignored_and_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let home = UserDir(dir.path().into());
        home.change(|all| all.current = Some("theirs".into())).unwrap();
        let file = dir.path().join("profiles.json");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).unwrap();
        if std::fs::read(&file).is_ok() {
            // The superuser can read every file.
            return;
        }
        let (profiles, why) = home.readable_profiles().unwrap();
        assert!(profiles.current.is_none() && why.unwrap().contains("AGX_HOME"));
        assert!(home.change(|all| all.current = None).is_err());
    }

    #[test]
    fn concurrent_profile_changes_are_all_kept() {
        let dir = tempfile::tempdir().unwrap();
        let home = UserDir(dir.path().into());
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d", "e", "f"] {
                let home = &home;
                scope.spawn(move || {
                    home.change(|all| drop(all.profiles.insert(name.into(), ServerProfile::new("a:1"))))
                        .unwrap();
                });
            }
        });
        assert_eq!(home.profiles().unwrap().profiles.len(), 6);
    }

    #[test]
    fn profile_names_cannot_escape_their_directory() {
        for wrong in ["", "..", ".x", "a/b", "a b", &"x".repeat(65)] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
        assert!(check_name("local").is_ok() && check_name(&"x".repeat(64)).is_ok());
    }
}
