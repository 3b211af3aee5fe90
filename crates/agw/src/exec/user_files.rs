//! Files that a plan names for stdin, stdout and stderr of a task. agw opens such a file without
//! waiting, and never makes a terminal its controlling terminal.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use agenix_protocol::byte_escape::decode_os;
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};

use crate::exec::{resource_wait, stages::StageCommand};

/// Opens a file for reading.
pub(crate) fn open(command: &StageCommand, field: &str, path: &str) -> io::Result<File> {
    let opened = opened(&place(command, path), OpenOptions::new().read(true));
    // The error is rewritten, because `NotFound` would mean that the program was not found.
    opened.map_err(|error| named(&error, io::ErrorKind::Other, field, path))
}

/// Creates or truncates a file for writing.
pub(crate) fn create(command: &StageCommand, field: &str, path: &str) -> io::Result<File> {
    let opened = opened(&place(command, path), OpenOptions::new().write(true).create(true).truncate(true));
    opened.map_err(|error| named(&error, error.kind(), field, path))
}

fn place(command: &StageCommand, path: &str) -> PathBuf {
    let cwd = decode_os(command.cwd.as_deref().unwrap_or("."));
    Path::new(&cwd).join(decode_os(path))
}

/// Opens a file. Refuses FIFOs, because the open of one waits for its other end.
fn opened(place: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(place);
    let file = match file {
        Ok(file) if file.metadata()?.file_type().is_fifo() => return Err(fifo()),
        // A FIFO that nobody reads cannot be opened for writing without waiting.
        Err(error) if is_fifo_without_reader(place, &error) => return Err(fifo()),
        opened => opened?,
    };
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn is_fifo_without_reader(place: &Path, error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
        && place.metadata().is_ok_and(|found| found.file_type().is_fifo())
}

fn fifo() -> io::Error {
    io::Error::other("it is a FIFO: name a file")
}

/// Names the field and the path in an error, unless the error is that of a shortage.
fn named(error: &io::Error, kind: io::ErrorKind, field: &str, path: &str) -> io::Error {
    match error.raw_os_error() {
        Some(errno) if resource_wait::is_descriptor_shortage(error) => io::Error::from_raw_os_error(errno),
        _ => io::Error::new(kind, format!("{field} '{path}': {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write, os::unix::fs::OpenOptionsExt, time::Duration};

    use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, mknodat};

    use super::{create, open};
    use crate::exec::stages::{StageCommand, Stderr, Stdin, Stdout};

    fn in_directory(directory: &std::path::Path) -> StageCommand {
        StageCommand {
            task_number: 1,
            program: "cat".into(),
            args: Vec::new(),
            env: Vec::new(),
            secret_env: Vec::new(),
            cwd: Some(directory.to_str().unwrap().to_owned()),
            stdin: Stdin::Empty,
            stdout: Stdout::Spool,
            stderr: Stderr::Spool,
            timeout: Duration::from_secs(1),
            idle_timeout: None,
            is_last: true,
        }
    }

    #[test]
    fn file_of_a_plan_is_relative_to_its_cwd_and_blocks_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let command = in_directory(directory.path());
        let mut written = create(&command, "stdout", "f").unwrap();
        written.write_all(b"x").unwrap();
        let read = open(&command, "stdin_file", "f").unwrap();
        for file in [&written, &read] {
            assert!(!fcntl_getfl(file).unwrap().contains(OFlags::NONBLOCK));
        }
        assert_eq!(std::fs::read(directory.path().join("f")).unwrap(), b"x");
        let error = open(&command, "stdin_file", "none").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Other);
        assert!(error.to_string().starts_with("stdin_file 'none': No such file"), "{error}");
    }

    #[test]
    fn fifo_is_refused_without_a_wait_for_its_other_end() {
        let directory = tempfile::tempdir().unwrap();
        let command = in_directory(directory.path());
        let path = directory.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let refused = || {
            let errors = [open(&command, "stdin_file", "pipe"), create(&command, "stdout", "pipe")];
            errors.map(|opened| opened.unwrap_err().to_string())
        };
        let expected =
            ["stdin_file", "stdout"].map(|field| format!("{field} 'pipe': it is a FIFO: name a file"));
        assert_eq!(refused(), expected);
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        let _reader = File::options().read(true).custom_flags(nonblocking).open(&path).unwrap();
        assert_eq!(refused(), expected, "with a reader");
    }
}
