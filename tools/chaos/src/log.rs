//! A log of agq that cannot be written: a full device, or a pipe that is full for a while and then
//! has no reader.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

use super::pause;

/// Log that stands at the place of agq's log until it is dropped.
pub(super) struct FailingLog {
    path: PathBuf,
    kept: PathBuf,
    /// Reader of the pipe, if it is a pipe.
    reader: Option<File>,
}

impl FailingLog {
    /// Replaces the log for an agq that is still to start.
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

    /// Fills the pipe, so that whoever logs waits for `duration`; then leaves it without a reader.
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
        // The directory is temporary, and a log that is missing is made anew.
        let _missing = fs::rename(&self.kept, &self.path);
    }
}
