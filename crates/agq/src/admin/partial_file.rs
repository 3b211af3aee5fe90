//! A file that comes into its place whole and checked, or not at all.

use std::{
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use crate::store::redb::{DatabaseReport, examine, lock_dir, parent};

/// A file under another name, until it is put into its place. It is removed where that never happens.
pub(super) struct PartialFile {
    place: PathBuf,
    path: PathBuf,
    pub(super) file: File,
}

impl PartialFile {
    /// Begins a file for a place where there is none. Only its owner may read it: it holds whatever was submitted.
    pub(super) fn create(place: &Path) -> anyhow::Result<Self> {
        refuse_to_overwrite(place)?;
        let mut path = place.as_os_str().to_owned();
        path.push(".part");
        let path = PathBuf::from(path);
        let file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(|error| {
                let (shown, is_left) = (path.display(), error.kind() == ErrorKind::AlreadyExists);
                let advice = if is_left { ": if it was left by one that broke off, remove it" } else { "" };
                anyhow::Error::new(error).context(format!("cannot create {shown}{advice}"))
            })?;
        Ok(Self { place: place.to_owned(), path, file })
    }

    /// Where it is for now.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a database into its place, on disk, if it can be read.
    pub(super) fn put_database(self) -> anyhow::Result<DatabaseReport> {
        self.sync()?;
        let found = examine(&self.path)?;
        self.put()?;
        Ok(found)
    }

    fn sync(&self) -> anyhow::Result<()> {
        self.file.sync_all().with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Puts what was written into its place, on disk.
    pub(super) fn put(self) -> anyhow::Result<()> {
        self.sync()?;
        let dir = parent(&self.place);
        // An agq that starts meanwhile would make a new one.
        let _alone = lock_dir(dir).with_context(|| format!("cannot lock {}", dir.display()))?;
        refuse_to_overwrite(&self.place)?;
        fs::rename(&self.path, &self.place)
            .with_context(|| format!("cannot give {} its name", self.place.display()))?;
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.with_context(|| format!("cannot make sure that {} is on disk", self.place.display()))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // Where it was put into its place there is none.
        let _removed = fs::remove_file(&self.path);
    }
}

fn refuse_to_overwrite(place: &Path) -> anyhow::Result<()> {
    if place.symlink_metadata().is_ok() {
        let shown = place.display();
        bail!("{shown} is there already and is not overwritten: move it away first, or choose another place");
    }
    Ok(())
}

/// What a database holds, in words.
pub(super) fn shown(found: &DatabaseReport) -> String {
    let DatabaseReport { bytes, jobs, plans, .. } = found;
    format!("{bytes} bytes, {jobs} jobs, {plans} plans")
}
