//! Makes the log of agq unwritable: a full device, or a pipe that is full for a while and then has
//! no reader.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

use super::pause;

/// Replacement of the log of agq. The drop restores the log.
pub(super) struct FailingLog {
    path: PathBuf,
    kept: PathBuf,
    /// Reader of the pipe, if the log is a pipe.
    reader: Option<File>,
}

impl FailingLog {
    /// Replaces the log before agq starts.
    pub(super) fn at(path: &Path, is_pipe: bool) -> io::Result<Self> {
        let kept = path.with_extension("kept");
        fs::rename(path, &kept)?;
        let mut log = Self { path: path.to_owned(), kept, reader: None };
        if is_pipe {
            mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
            // agq can open the pipe only while it has a reader.
            log.reader = Some(without_waiting(File::options().read(true), path)?);
        } else {
            symlink("/dev/full", path)?;
        }
        Ok(log)
    }

    /// Fills the pipe, so that writers block for `duration`, and then closes its reader.
    pub(super) fn break_pipe(&mut self, duration: Duration) -> io::Result<()> {
        let Some(reader) = self.reader.take() else { return Ok(()) };
        let mut writer = without_waiting(File::options().write(true), &self.path)?;
        loop {
            match writer.write(&[b'\n'; 4096]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        pause(duration);
        drop(reader);
        Ok(())
    }
}

fn without_waiting(options: &mut fs::OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

impl Drop for FailingLog {
    fn drop(&mut self) {
        // A failure does not matter, because agq creates a missing log.
        let _missing = fs::rename(&self.kept, &self.path);
    }
}
