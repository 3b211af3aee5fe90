//! Keys of the user that sign orders: a file for each name, which only its owner may read.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use agenix_order::{InvalidKey, SigningKey};

use crate::{
    error::{CliError, Result},
    profiles::{UserDir, check_name, write_secret},
};

/// Suffix of the file of a key.
const KEY: &str = "key";
/// Suffix of the file of the key that the current one has replaced.
const PREVIOUS: &str = "previous";
/// Mode of the directory.
const OWN: u32 = 0o700;
/// Bits of a mode that let others read or write.
const OF_OTHERS: u32 = 0o077;

/// Directory of the keys of a user.
#[derive(Debug)]
pub(crate) struct SigningKeys(PathBuf);

/// Keys of a name.
#[derive(Debug)]
pub(crate) struct NamedKeys {
    pub(crate) current: SigningKey,
    /// Key before the last rotation.
    pub(crate) previous: Option<SigningKey>,
}

impl SigningKeys {
    pub(crate) fn find() -> Result<Self> {
        Ok(Self(UserDir::find()?.keys_path()))
    }

    /// Makes a key with a new name.
    pub(crate) fn create(&self, name: &str) -> Result<SigningKey> {
        check_name(name)?;
        if self.path(name, KEY).exists() {
            return Err(CliError::usage(
                format!("there is a key '{name}' already"),
                "choose another name, or replace the key with `agx key rotate`",
            ));
        }
        let made = fs::DirBuilder::new().recursive(true).mode(OWN).create(&self.0);
        made.map_err(|error| cannot_read(&self.0, &error))?;
        self.write(name, KEY, &random_key()?)
    }

    /// Replaces a key by a new one, and keeps the old one as its previous key. Returns the new and
    /// the old one.
    pub(crate) fn rotate(&self, name: &str) -> Result<(SigningKey, SigningKey)> {
        let old = self.get(name)?.current;
        let old = self.write(name, PREVIOUS, &old)?;
        Ok((self.write(name, KEY, &random_key()?)?, old))
    }

    /// Returns the keys of a name.
    pub(crate) fn get(&self, name: &str) -> Result<NamedKeys> {
        check_name(name)?;
        let current = self.read(name, KEY)?.ok_or_else(|| {
            CliError::usage(
                format!("there is no key '{name}'"),
                "see the keys with `agx key list`; `agx key new` makes one",
            )
        })?;
        Ok(NamedKeys { current, previous: self.read(name, PREVIOUS)? })
    }

    /// Returns all keys by their names.
    pub(crate) fn all(&self) -> Result<BTreeMap<String, NamedKeys>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries.map_err(|error| cannot_read(&self.0, &error))?,
        };
        let mut keys = BTreeMap::new();
        for entry in entries {
            let path = entry.map_err(|error| cannot_read(&self.0, &error))?.path();
            if path.extension().is_some_and(|suffix| suffix == KEY)
                && let Some(name) = path.file_stem().and_then(|name| name.to_str())
            {
                keys.insert(name.to_owned(), self.get(name)?);
            }
        }
        Ok(keys)
    }

    fn path(&self, name: &str, suffix: &str) -> PathBuf {
        self.0.join(format!("{name}.{suffix}"))
    }

    fn write(&self, name: &str, suffix: &str, key: &SigningKey) -> Result<SigningKey> {
        let path = write_secret(&self.0, &format!("{name}.{suffix}"), &key.to_line())?;
        self.read(name, suffix)?.ok_or_else(|| cannot_read(&path, &io::ErrorKind::NotFound.into()))
    }

    /// Reads a key that only its owner may read.
    fn read(&self, name: &str, suffix: &str) -> Result<Option<SigningKey>> {
        let path = self.path(name, suffix);
        let mode = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata.map_err(|error| cannot_read(&path, &error))?.permissions().mode(),
        };
        if mode & OF_OTHERS != 0 {
            return Err(CliError::usage(
                format!("others may read or write the key {}", path.display()),
                format!("make a new key, or run `chmod 600 {}` if nobody has read it", path.display()),
            ));
        }
        let line = fs::read_to_string(&path).map_err(|error| cannot_read(&path, &error))?;
        let wrong =
            |error: InvalidKey| CliError::usage(format!("{}: {error}", path.display()), "make a new key");
        SigningKey::parse(&line).map(Some).map_err(wrong)
    }
}

fn random_key() -> Result<SigningKey> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| {
        CliError::usage(format!("the system gives no random numbers: {error}"), "try it again")
    })?;
    Ok(SigningKey::from_seed(&seed))
}

fn cannot_read(path: &Path, error: &io::Error) -> CliError {
    CliError::usage(
        format!("cannot use {}: {error}", path.display()),
        "look at its owner and its permissions, or choose another place with AGX_HOME",
    )
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::SigningKeys;

    #[test]
    fn key_is_private_and_is_replaced_by_a_rotation_only() {
        let dir = tempfile::tempdir().unwrap();
        let keys = SigningKeys(dir.path().join(".keys"));
        assert!(keys.all().unwrap().is_empty());
        let made = keys.create("ci").unwrap();
        let mode = |path: &str| fs::metadata(keys.0.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(""), mode("ci.key")), (0o700, 0o600));
        assert!(keys.create("ci").unwrap_err().to_string().contains("there is a key 'ci' already"));
        assert!(keys.create("../ci").is_err() && keys.get("other").is_err());

        let (new, old) = keys.rotate("ci").unwrap();
        assert_eq!(old.public(), made.public());
        let all = keys.all().unwrap();
        assert_eq!(all["ci"].current.public(), new.public());
        assert_eq!(all["ci"].previous.as_ref().unwrap().public(), made.public());
    }

    #[test]
    fn key_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let keys = SigningKeys(dir.path().join(".keys"));
        keys.create("ci").unwrap();
        fs::set_permissions(keys.0.join("ci.key"), fs::Permissions::from_mode(0o640)).unwrap();
        let refused = keys.get("ci").unwrap_err();
        assert!(refused.to_string().starts_with("others may read or write the key"), "{refused}");
        fs::set_permissions(keys.0.join("ci.key"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(keys.0.join("ci.key"), "secret").unwrap();
        let damaged = keys.get("ci").unwrap_err().to_string();
        assert!(damaged.contains("it is not the line of a private key") && !damaged.contains("secret"));
    }
}
