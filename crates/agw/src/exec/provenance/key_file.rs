//! File of the key with which the worker signs statements. The worker makes the key at its first
//! start.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use agenix_cli::sync_directory;
use agenix_order::SigningKey;
use anyhow::{Context, bail};
use tracing::info;

/// Bits of a mode that let others read or write.
const OF_OTHERS: u32 = 0o077;

/// Returns the key in the file `path`, which is made if it is missing.
pub(super) fn open(path: &Path) -> anyhow::Result<SigningKey> {
    let shown = path.display();
    if let Some(key) = read(path)? {
        return Ok(key);
    }
    match create(path) {
        Ok(()) => info!("a key that signs provenance was made: {shown}"),
        // Another worker has made the key at the same time.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => bail!("provenance.key: {shown} cannot be made: {error}"),
    }
    read(path)?.with_context(|| format!("provenance.key: {shown} has disappeared"))
}

fn read(path: &Path) -> anyhow::Result<Option<SigningKey>> {
    let shown = path.display();
    let mode = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata.with_context(|| format!("provenance.key: {shown}"))?.permissions().mode(),
    };
    if mode & OF_OTHERS != 0 {
        bail!(
            "provenance.key: others may read or write {shown}: chmod 600 it if nobody has read it, or remove it"
        );
    }
    let line = fs::read_to_string(path).with_context(|| format!("provenance.key: {shown}"))?;
    SigningKey::parse(&line).map(Some).with_context(|| format!("provenance.key: {shown}"))
}

/// Writes a random key. The file appears whole, and only its owner may read it.
fn create(path: &Path) -> io::Result<()> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    writeln!(file, "{}", SigningKey::from_seed(&seed).to_line())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    sync_directory(directory)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::open;

    #[test]
    fn key_is_made_once_and_only_its_owner_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("provenance.key");
        let made = open(&path).unwrap().public();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(open(&path).unwrap().public(), made);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let exposed = open(&path).unwrap_err().to_string();
        assert!(exposed.contains("others may read or write"), "{exposed}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "no key").unwrap();
        let damaged = format!("{:#}", open(&path).unwrap_err());
        assert!(damaged.ends_with("it is not the line of a private key"), "{damaged}");
        let missing = open(&dir.path().join("no/key")).unwrap_err().to_string();
        assert!(missing.contains("cannot be made"), "{missing}");
    }
}
