//! File that appears at its destination complete and checked, or not at all.

use std::{
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use agenix_cli::sync_directory;
use anyhow::{Context, bail};

use crate::{
    store::redb::{DatabaseReport, examine, lock_dir},
    synced_directory::parent,
};

/// File with a temporary name until it is complete. The file is removed if it never becomes
/// complete.
pub(super) struct PartialFile {
    place: PathBuf,
    path: PathBuf,
    pub(super) file: File,
}

impl PartialFile {
    /// Fails if the destination exists. Only the owner may read the file, because it has all data.
    pub(super) fn create(place: &Path) -> anyhow::Result<Self> {
        refuse_to_overwrite(place)?;
        let mut path = place.as_os_str().to_owned();
        path.push(".part");
        let path = PathBuf::from(path);
        let file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(|error| {
                let (shown, is_left) = (path.display(), error.kind() == ErrorKind::AlreadyExists);
                let advice = if is_left { ": if an interrupted command has left it, remove it" } else { "" };
                anyhow::Error::new(error).context(format!("cannot create {shown}{advice}"))
            })?;
        Ok(Self { place: place.to_owned(), path, file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks the written database, and moves it to its destination. The file is synced first.
    pub(super) fn put_database(self) -> anyhow::Result<DatabaseReport> {
        self.sync()?;
        let found = examine(&self.path)?;
        self.put()?;
        Ok(found)
    }

    pub(super) fn sync(&self) -> anyhow::Result<()> {
        self.file.sync_all().with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub(super) fn put(self) -> anyhow::Result<()> {
        self.sync()?;
        let dir = parent(&self.place);
        // Lock the directory, because an agq that starts meanwhile would create a database there.
        let _alone = lock_dir(dir).with_context(|| format!("cannot lock {}", dir.display()))?;
        refuse_to_overwrite(&self.place)?;
        fs::rename(&self.path, &self.place)
            .with_context(|| format!("cannot rename the finished file to {}", self.place.display()))?;
        sync_directory(dir).with_context(|| format!("cannot sync the directory of {}", self.place.display()))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After the move there is no temporary file.
        let _removed = fs::remove_file(&self.path);
    }
}

fn refuse_to_overwrite(place: &Path) -> anyhow::Result<()> {
    if place.symlink_metadata().is_ok() {
        let shown = place.display();
        bail!("{shown} already exists and is not overwritten: move it away first, or choose another place");
    }
    Ok(())
}

pub(super) fn shown(found: &DatabaseReport) -> String {
    let DatabaseReport { bytes, jobs, plans, .. } = found;
    format!("{bytes} bytes, {jobs} jobs, {plans} plans")
}
