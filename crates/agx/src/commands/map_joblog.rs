//! The joblog of `agx map`: its path, and the check that it is not a file of inputs.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
};

use super::map_args::MapArgs;
use crate::{
    error::{CliError, Result},
    map::{CompletedInputs, JobLog, ResumeScope, Sources, done},
};

/// Returns the path of the joblog, and whether agx appends (`+FILE`, as in GNU Parallel).
fn path_of(args: &MapArgs) -> Option<(PathBuf, bool)> {
    let given = args.joblog.as_ref()?;
    let appended = given.as_os_str().as_bytes().strip_prefix(b"+").filter(|file| !file.is_empty());
    Some(appended.map_or_else(|| (given.clone(), false), |file| (OsStr::from_bytes(file).into(), true)))
}

/// Returns the inputs that `--resume` or `--resume-failed` skips.
pub(super) fn completed(args: &MapArgs) -> Result<CompletedInputs> {
    match (path_of(args), args.resume, args.resume_failed) {
        (Some((log, _)), true, _) => done(&log, ResumeScope::Ended),
        (Some((log, _)), _, true) => done(&log, ResumeScope::Well),
        _ => Ok(CompletedInputs::new()),
    }
}

/// Opens the joblog, if one is wanted. The inputs must not have been read yet.
pub(super) fn open(args: &MapArgs, sources: &Sources) -> Result<Option<JobLog>> {
    let Some((path, is_appended)) = path_of(args) else { return Ok(None) };
    if sources.files().any(|source| are_same(source, &path)) {
        return Err(CliError::usage(
            format!("{} is the joblog, and the inputs are read from it", path.display()),
            "give another file with --joblog",
        ));
    }
    JobLog::open(&path, is_appended || args.resume || args.resume_failed).map(Some)
}

/// Returns true if a source, whose path `-` is stdin, is the file `path`.
fn are_same(source: &Path, path: &Path) -> bool {
    let stdin = || File::from(io::stdin().as_fd().try_clone_to_owned()?).metadata();
    let source = if source.as_os_str() == "-" { stdin() } else { source.metadata() };
    match (source, path.metadata()) {
        (Ok(source), Ok(log)) => log.is_file() && (source.dev(), source.ino()) == (log.dev(), log.ino()),
        // A file that does not exist is no other one.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::are_same;

    #[test]
    fn joblog_of_the_same_file_under_another_name_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("list"), "a\n").unwrap();
        std::os::unix::fs::symlink(at("list"), at("link")).unwrap();
        assert!(are_same(&at("list"), &at("list")) && are_same(&at("list"), &at("link")));
        std::fs::write(at("log"), "").unwrap();
        assert!(!are_same(&at("list"), &at("log")) && !are_same(&at("list"), &at("new")));
        assert!(!are_same("/dev/null".as_ref(), "/dev/null".as_ref()), "a device keeps no lines");
    }
}
