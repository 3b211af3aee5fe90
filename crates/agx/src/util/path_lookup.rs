//! Programs in PATH, and similar names.

use std::{collections::BTreeSet, ffi::OsStr, os::unix::fs::PermissionsExt, path::Path};

use agenix_protocol::byte_escape::encode_os;
use rustix::fs::{Access, access};

/// Minimum similarity of a suggestion, from 0 to 1.
const ALIKE: f64 = 0.8;

/// Returns the names of the programs in `path`.
pub(crate) fn on(path: &OsStr) -> BTreeSet<String> {
    let entries =
        std::env::split_paths(path).filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
    entries.filter(|entry| is_program(&entry.path())).map(|entry| encode_os(&entry.file_name())).collect()
}

/// Returns true if `path` is a file that this user may execute. Follows symbolic links.
pub(crate) fn is_program(path: &Path) -> bool {
    let Ok(found) = std::fs::metadata(path) else { return false };
    match found.permissions().mode() & 0o111 {
        0 => false,
        // Most programs are for all users, and need no further system call.
        0o111 => found.is_file(),
        _ => found.is_file() && access(path, Access::EXEC_OK).is_ok(),
    }
}

/// Returns the name most similar to `name`, if any is similar enough.
pub(crate) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let alike =
        names.map(|other| (strsim::jaro_winkler(name, other), other)).filter(|(alike, _)| *alike >= ALIKE);
    alike.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{is_program, nearest, on};

    #[test]
    fn nearest_finds_a_typo() {
        let names = ["sort", "sed", "grep", "sha1sum"];
        let of = |name| nearest(name, names.into_iter());
        assert_eq!([of("sortt"), of("gerp"), of("sha1sm")], [Some("sort"), Some("grep"), Some("sha1sum")]);
        assert_eq!([of("ffmpeg"), of("")], [None, None]);
    }

    #[test]
    fn path_lookup_finds_only_files_that_this_user_may_execute() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tool");
        std::fs::write(&file, "").unwrap();
        let may_execute = |mode| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            is_program(&file)
        };
        assert_eq!([0o755, 0o700, 0o644].map(may_execute), [true, true, false]);
        // Others may execute the file, and its owner may not, unless the owner is root.
        assert_eq!(may_execute(0o655), rustix::process::geteuid().is_root());
    }

    #[test]
    fn path_lookup_finds_executable_files() {
        assert!(on(std::env::var_os("PATH").unwrap().as_os_str()).contains("sh"));
        assert!(on("/nowhere".as_ref()).is_empty());
    }
}
