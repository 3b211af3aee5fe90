//! Which programs there are, and which was meant.

use std::{collections::BTreeSet, ffi::OsStr, os::unix::fs::PermissionsExt};

/// How alike two names must be for one to be meant by the other, from 0 to 1.
const ALIKE: f64 = 0.8;

/// The names of the programs on a PATH.
pub(crate) fn on(path: &OsStr) -> BTreeSet<String> {
    let entries =
        std::env::split_paths(path).filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
    let is_program = |entry: &std::fs::DirEntry| {
        // Through links.
        std::fs::metadata(entry.path())
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    entries.filter(is_program).filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The name that is most like `name`, if one is like it at all.
pub(crate) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let alike =
        names.map(|other| (strsim::jaro_winkler(name, other), other)).filter(|(alike, _)| *alike >= ALIKE);
    alike.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::{nearest, on};

    #[test]
    fn a_slip_of_the_finger_is_found_out() {
        let names = ["sort", "sed", "grep", "sha1sum"];
        let of = |name| nearest(name, names.into_iter());
        assert_eq!([of("sortt"), of("gerp"), of("sha1sm")], [Some("sort"), Some("grep"), Some("sha1sum")]);
        assert_eq!([of("ffmpeg"), of("")], [None, None]);
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(on(std::env::var_os("PATH").unwrap().as_os_str()).contains("sh"));
        assert!(on("/nowhere".as_ref()).is_empty());
    }
}
