//! Programs of this machine: the executables on PATH, restricted by an allow-list if one is set,
//! and programs by path if the worker allows them.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::OsStr,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use agenix_protocol::byte_escape::{decode_os, encode_os};
use rustix::fs::{Access, access};
use tracing::warn;

use crate::exec::stages::StageCommand;

/// Name prefix of agentic units.
const UNIT_PREFIX: &str = "agx-";

/// Maximum number of bytes of a program's name in agq.
const MAX_NAME_BYTES: usize = 255;
/// Maximum number of bytes of all names, which the worker sends in one message.
const MAX_BYTES: usize = 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OfferedPrograms {
    /// Absolute path of the place where PATH finds each program first.
    programs: BTreeMap<String, PathBuf>,
    /// Programs whose names agq would refuse.
    left_out: Vec<PathBuf>,
    /// Programs that `--tools` names and PATH lacks.
    missing: Vec<String>,
    /// True if a task may name any program by its path.
    has_paths: bool,
}

impl OfferedPrograms {
    /// Searches the directories of `path`, which has the format of the PATH variable.
    pub(crate) fn find(path: &OsStr, allowed: Option<&[String]>) -> Self {
        let is_allowed = |name: &String| allowed.is_none_or(|allowed| allowed.contains(name));
        let (mut programs, mut bytes, mut left_out) = (BTreeMap::new(), 0, Vec::new());
        for directory in std::env::split_paths(path) {
            // A task has another working directory, to which a relative path would refer.
            let Ok(directory) = std::path::absolute(directory) else { continue };
            for (name, path) in programs_in(&directory).into_iter().filter(|(name, _)| is_allowed(name)) {
                if programs.contains_key(&name) {
                    continue;
                }
                // Each name takes two quotes and a comma in JSON.
                bytes += name.len() + 3;
                if bytes > MAX_BYTES || !is_legal(&name) {
                    bytes -= name.len() + 3;
                    left_out.push(path);
                    continue;
                }
                programs.insert(name, path);
            }
        }
        let is_missing = |name: &&String| !programs.contains_key(*name);
        let missing = allowed.unwrap_or_default().iter().filter(is_missing).cloned().collect();
        Self { programs, left_out, missing, has_paths: false }
    }

    /// Returns these programs, and any program by its path if `has_paths` is true.
    pub(crate) fn with_paths(self, has_paths: bool) -> Self {
        Self { has_paths, ..self }
    }

    /// Logs one warning for the programs left out, and one for the missing programs.
    pub(crate) fn warn_of_gaps(&self) {
        if let Some(first) = self.left_out.first() {
            warn!(
                "{} programs on PATH are not offered, for example {first:?}: a name may have at most {MAX_NAME_BYTES} bytes and no control characters, and all names together at most {MAX_BYTES} bytes; choose programs with --tools",
                self.left_out.len()
            );
        }
        if !self.missing.is_empty() {
            let missing = &self.missing;
            warn!("these programs of --tools are not on PATH and are not offered: {missing:?}");
        }
    }

    pub(crate) fn path(&self, name: &str) -> Option<&Path> {
        self.programs.get(name).map(PathBuf::as_path)
    }

    /// Returns the path of the command of a task. The command is a name or, if the worker allows
    /// paths, a path, which stays relative to the working directory of the task.
    pub(crate) fn of_command(&self, command: &str) -> Result<Cow<'_, Path>, io::Error> {
        let not_found = |text: String| io::Error::new(io::ErrorKind::NotFound, text);
        if !command.contains('/') {
            let missing = || not_found(not_offered(command));
            return self.path(command).map(Cow::from).ok_or_else(missing);
        }
        if self.has_paths {
            return Ok(PathBuf::from(decode_os(command)).into());
        }
        Err(not_found(format!("'{command}' is a path, and this worker runs programs of its PATH only")))
    }

    /// Returns the path of the command of a task for a sandbox, whose supervisor has another
    /// working directory.
    pub(crate) fn absolute(&self, command: &StageCommand) -> Result<PathBuf, io::Error> {
        let path = self.of_command(&command.program)?;
        let cwd = command.cwd.as_deref().map(decode_os);
        Ok(cwd.map_or_else(|| path.to_path_buf(), |cwd| Path::new(&cwd).join(&path)))
    }

    pub(crate) fn len(&self) -> usize {
        self.programs.len()
    }

    /// Returns the names of the ordinary programs and of the agentic units.
    pub(crate) fn split(&self) -> (Vec<String>, Vec<String>) {
        self.programs.keys().cloned().partition(|name| !name.starts_with(UNIT_PREFIX))
    }

    /// Returns the names and paths of the agentic units.
    pub(crate) fn units(&self) -> Vec<(String, PathBuf)> {
        let units = self.programs.iter().filter(|(name, _)| name.starts_with(UNIT_PREFIX));
        units.map(|(name, path)| (name.clone(), path.clone())).collect()
    }
}

/// Returns true if agq accepts `name` as the name of a program.
fn is_legal(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.contains(|c: char| c.is_control() || c == '/')
}

fn programs_in(directory: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let named = |entry: std::fs::DirEntry| (encode_os(&entry.file_name()), entry.path());
    entries.flatten().map(named).filter(|(_, path)| is_program(path)).collect()
}

/// Returns true if `path` is a file that this user may execute. As in a shell, any other file hides
/// no program of the same name in a later directory.
fn is_program(path: &Path) -> bool {
    let Ok(found) = std::fs::metadata(path) else { return false };
    match found.permissions().mode() & 0o111 {
        0 => false,
        // Most programs are for all users, and need no further system call.
        0o111 => found.is_file(),
        _ => found.is_file() && access(path, Access::EXEC_OK).is_ok(),
    }
}

/// Returns the reason why a worker does not run the program `name`, and what to do.
pub(crate) fn not_offered(name: &str) -> String {
    format!(
        "this worker has no program '{name}': install it on the PATH of agw and send SIGHUP to agw, or add it to --tools"
    )
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{
            ffi::OsStrExt,
            fs::{OpenOptionsExt, PermissionsExt},
        },
    };

    use super::{OfferedPrograms, is_legal};

    #[test]
    fn programs_are_executable_files_and_units_are_listed_separately() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("sort", 0o755), ("agx-ocr", 0o755), ("notes.txt", 0o644)] {
            fs::write(dir.path().join(name), "").unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(dir.path().join("folder")).unwrap();
        let all = OfferedPrograms::find(dir.path().as_os_str(), None);
        assert_eq!(all.split(), (vec!["sort".to_owned()], vec!["agx-ocr".to_owned()]));
        assert_eq!(all.units(), [("agx-ocr".to_owned(), dir.path().join("agx-ocr"))]);
        let odd = dir.path().join("a\tb");
        fs::write(&odd, "").unwrap();
        fs::set_permissions(&odd, fs::Permissions::from_mode(0o755)).unwrap();
        let with_odd = OfferedPrograms::find(dir.path().as_os_str(), None);
        assert_eq!((with_odd.split(), with_odd.left_out), (all.split(), vec![odd]), "it is left out");
        let narrowed =
            OfferedPrograms::find(dir.path().as_os_str(), Some(&["sort".to_owned(), "jq".to_owned()]));
        assert_eq!(narrowed.path("sort"), Some(dir.path().join("sort").as_path()));
        assert_eq!((narrowed.path("agx-ocr"), narrowed.path("jq")), (None, None));
        assert_eq!(narrowed.missing, ["jq"]);
    }

    #[test]
    fn programs_that_this_user_may_not_execute_hide_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        for (directory, mode) in [(&first, 0o655), (&second, 0o755)] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("tool"), "").unwrap();
            // The owner of a file with the mode 655 may not execute it, unless the owner is root.
            fs::set_permissions(directory.join("tool"), fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = std::env::join_paths([&first, &second]).unwrap();
        let found = OfferedPrograms::find(&path, None);
        let expected = if rustix::process::geteuid().is_root() { first } else { second };
        assert_eq!(found.path("tool"), Some(expected.join("tool").as_path()));
    }

    #[test]
    fn programs_of_a_relative_directory_have_absolute_paths() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("tool");
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let cwd = std::env::current_dir().unwrap();
        let to_root: std::path::PathBuf = cwd.components().skip(1).map(|_| "..").collect();
        let relative = to_root.join(dir.path().strip_prefix("/").unwrap());
        let found = OfferedPrograms::find(relative.as_os_str(), None);
        let path = found.path("tool").unwrap();
        assert!(relative.is_relative() && path.is_absolute(), "{}", path.display());
        assert_eq!(path.canonicalize().unwrap(), program.canonicalize().unwrap());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn programs_have_any_bytes_in_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let found = OfferedPrograms::find(dir.path().as_os_str(), None);
        assert_eq!(found.split().0, ["caf\u{10fee9}"]);
        assert_eq!(found.of_command("caf\u{10fee9}").unwrap(), program);
    }

    #[test]
    fn programs_by_path_need_a_worker_that_allows_them() {
        let dir = tempfile::tempdir().unwrap();
        let names = OfferedPrograms::find(dir.path().as_os_str(), None);
        let refused = names.of_command("./x").unwrap_err().to_string();
        assert_eq!(refused, "'./x' is a path, and this worker runs programs of its PATH only");
        let paths = names.with_paths(true);
        assert_eq!(paths.of_command("./x").unwrap(), std::path::Path::new("./x"));
        let bytes = paths.of_command("./caf\u{10fee9}").unwrap();
        assert_eq!(bytes.as_os_str().as_bytes(), b"./caf\xe9");
        assert!(paths.of_command("x").unwrap_err().to_string().contains("has no program 'x'"));
        assert_eq!(paths.path("./x"), None, "no capability");
    }

    #[test]
    fn programs_exclude_illegal_names_and_fit_into_one_message() {
        for name in ["sort", "a b", "a,b", "ä", &"x".repeat(255)] {
            assert!(is_legal(name), "{name}");
        }
        for name in ["", "a\nb", "\u{1b}[2J", "\u{7f}", "\u{85}", "a/b", &"x".repeat(256)] {
            assert!(!is_legal(name), "{name:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        for number in 0..5000 {
            let path = dir.path().join(format!("{number:0250}"));
            fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path).unwrap();
        }
        let programs = OfferedPrograms::find(dir.path().as_os_str(), None);
        assert!((4000..5000).contains(&programs.len()), "{}", programs.len());
    }
}
