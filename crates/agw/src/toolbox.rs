//! What this machine can run: the programs on PATH, narrowed by an allow-list where one was given.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// How agentic units are named.
const UNIT_PREFIX: &str = "agx-";

/// The programs that this worker offers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Toolbox {
    /// Each program where PATH finds it first.
    programs: BTreeMap<String, PathBuf>,
}

impl Toolbox {
    /// Looks through the directories of `path`, as the PATH variable lists them.
    pub(crate) fn find(path: &OsStr, allowed: Option<&[String]>) -> Self {
        let is_allowed = |name: &String| allowed.is_none_or(|allowed| allowed.contains(name));
        let mut programs = BTreeMap::new();
        for directory in std::env::split_paths(path) {
            for (name, path) in programs_in(&directory).into_iter().filter(|(name, _)| is_allowed(name)) {
                programs.entry(name).or_insert(path);
            }
        }
        Self { programs }
    }

    /// Where a program is that may be run.
    pub(crate) fn path(&self, name: &str) -> Option<&Path> {
        self.programs.get(name).map(PathBuf::as_path)
    }

    /// How many programs there are.
    pub(crate) fn len(&self) -> usize {
        self.programs.len()
    }

    /// Ordinary programs and agentic units, apart.
    pub(crate) fn split(&self) -> (Vec<String>, Vec<String>) {
        self.programs.keys().cloned().partition(|name| !name.starts_with(UNIT_PREFIX))
    }

    /// The agentic units, and where they are.
    pub(crate) fn units(&self) -> Vec<(String, PathBuf)> {
        let units = self.programs.iter().filter(|(name, _)| name.starts_with(UNIT_PREFIX));
        units.map(|(name, path)| (name.clone(), path.clone())).collect()
    }
}

fn programs_in(directory: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let named = |entry: std::fs::DirEntry| Some((entry.file_name().into_string().ok()?, entry.path()));
    entries.filter_map(|entry| named(entry.ok()?)).filter(|(_, path)| is_program(path)).collect()
}

fn is_program(path: &Path) -> bool {
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
        assert_eq!(all.units(), [("agx-ocr".to_owned(), dir.path().join("agx-ocr"))]);
        let narrowed = Toolbox::find(dir.path().as_os_str(), Some(&["sort".to_owned(), "jq".to_owned()]));
        assert_eq!(narrowed.path("sort"), Some(dir.path().join("sort").as_path()));
        assert_eq!((narrowed.path("agx-ocr"), narrowed.path("jq")), (None, None));
    }
}
