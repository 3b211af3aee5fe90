//! `--results DIR`: a directory for each job, named after its input as GNU Parallel does it: `DIR/1/a.txt/stdout`.

use std::path::{Path, PathBuf};

use crate::{
    failure::Failure,
    files::{cannot_write, write_whole},
};

/// The directory of a job with these inputs.
fn place(dir: &Path, args: &[String]) -> PathBuf {
    let parts = (1..).zip(args).flat_map(|(number, arg): (usize, &String)| [number.to_string(), name(arg)]);
    parts.fold(dir.to_owned(), |dir, part| dir.join(part))
}

/// An input as the name of a directory.
fn name(arg: &str) -> String {
    let name: String = arg
        .chars()
        .map(|c| match c {
            '\\' => "\\\\".to_owned(),
            '/' => "\\_".to_owned(),
            '\t' => "\\t".to_owned(),
            '\0' => "\\0".to_owned(),
            other => other.to_string(),
        })
        .collect();
    match name.as_str() {
        // No name for a directory of its own.
        "" | "." | ".." => format!("\\{name}"),
        _ => name,
    }
}

/// Writes what a job left.
pub(super) fn write(
    dir: &Path,
    args: &[String],
    seq: u64,
    stdout: &[u8],
    stderr: &[u8],
) -> Result<(), Failure> {
    let place = place(dir, args);
    std::fs::create_dir_all(&place).map_err(|error| cannot_write(&place, &error))?;
    write_whole(&place, "seq", format!("{seq}").as_bytes())?;
    write_whole(&place, "stderr", stderr)?;
    // Last: where it is, everything is.
    write_whole(&place, "stdout", stdout)
}

#[cfg(test)]
mod tests {
    use super::{place, write};

    #[test]
    fn a_directory_is_named_after_its_input_and_never_leaves_its_place() {
        let shown = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            place("r".as_ref(), &args).display().to_string()
        };
        assert_eq!(shown(&["a.txt"]), "r/1/a.txt");
        assert_eq!(shown(&["a", "b c"]), "r/1/a/2/b c");
        assert_eq!(shown(&["../x\t\\"]), r"r/1/..\_x\t\\");
        assert_eq!([shown(&[".."]), shown(&["."]), shown(&[""])], [r"r/1/\..", r"r/1/\.", r"r/1/\"]);
    }

    #[test]
    fn everything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &["a".into()], 3, b"out", b"err").unwrap();
        let of = |name: &str| std::fs::read_to_string(dir.path().join("1/a").join(name)).unwrap();
        assert_eq!([of("seq"), of("stdout"), of("stderr")], ["3", "out", "err"]);
    }
}
