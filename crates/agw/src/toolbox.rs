//! What this machine can run: the programs on PATH, narrowed by an allow-list where one was given.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// How agentic units are named.
const UNIT_PREFIX: &str = "agx-";

/// The programs that this worker offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Toolbox {
    names: BTreeSet<String>,
}

impl Toolbox {
    /// Looks through the directories of `path`, as the PATH variable lists them.
    pub(crate) fn find(path: &OsStr, allowed: Option<&[String]>) -> Self {
        let found = std::env::split_paths(path).flat_map(|directory| programs_in(&directory));
        let is_allowed = |name: &String| allowed.is_none_or(|allowed| allowed.contains(name));
        Self { names: found.filter(is_allowed).collect() }
    }

    /// Whether a program may be run.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// How many programs there are.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Ordinary programs and agentic units, apart.
    pub(crate) fn split(&self) -> (Vec<String>, Vec<String>) {
        self.names.iter().cloned().partition(|name| !name.starts_with(UNIT_PREFIX))
    }
}

fn programs_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let entries = entries.filter_map(Result::ok);
    entries
        .filter(|entry| is_program(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn is_program(path: &PathBuf) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::Toolbox;

    #[test]
    fn programs_are_executable_files_and_units_are_apart() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("sort", 0o755), ("agx-ocr", 0o755), ("notes.txt", 0o644)] {
            fs::write(dir.path().join(name), "").unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(dir.path().join("folder")).unwrap();
        let all = Toolbox::find(dir.path().as_os_str(), None);
        assert_eq!(all.split(), (vec!["sort".to_owned()], vec!["agx-ocr".to_owned()]));
        let narrowed = Toolbox::find(dir.path().as_os_str(), Some(&["sort".to_owned(), "jq".to_owned()]));
        assert!(narrowed.has("sort") && !narrowed.has("agx-ocr") && !narrowed.has("jq"));
    }
}
