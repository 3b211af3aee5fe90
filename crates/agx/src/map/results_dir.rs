//! Directories of `--results DIR`: one for each job, named after its input as in GNU Parallel:
//! `DIR/1/a.txt/stdout`, or `DIR/NAME/a.txt/stdout` with `--header`. A name that is too long for a
//! directory is cut and gets a hash.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use agenix_protocol::{
    blob::OutputStream,
    byte_escape::{decode, decode_os},
};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::{
    error::Result,
    util::atomic_file::{cannot_write, new_output, write_output},
};

/// Maximum length of the name of a directory, on all common file systems.
const MAX_NAME: usize = 255;
/// Maximum length of the path below DIR: systems limit whole paths to 4,000 bytes, or to 1,000.
const MAX_PATH: usize = 900;
/// Number of bytes of a name in front of the hash.
const KEPT: usize = 64;

/// Returns the directory of a job with these values, each with its label.
fn place(dir: &Path, labelled: &[(String, String)]) -> PathBuf {
    let parts: Vec<[String; 2]> = labelled.iter().map(|(label, arg)| [name(label), name(arg)]).collect();
    let length: usize = parts.iter().flatten().map(|name| decode(name).len() + 1).sum();
    if let [[label, first], _, ..] = &parts[..]
        && length > MAX_PATH
    {
        // The hash of all inputs makes the name unique; the part before it is for readers.
        let all: Vec<&str> = parts.iter().map(|[_, name]| name.as_str()).collect();
        return dir.join(decode_os(label)).join(decode_os(&cut(first, &all.join("\0"))));
    }
    parts.iter().flatten().fold(dir.to_owned(), |dir, name| dir.join(decode_os(name)))
}

/// Returns the beginning of `name` and a hash of `whole`.
fn cut(name: &str, whole: &str) -> String {
    let digest = Sha256::digest(whole);
    let hash: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{}…{hash}", &name[..name.floor_char_boundary(KEPT)])
}

/// Returns an input as the name of a directory, with byte escapes.
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
        // These texts cannot name a directory.
        "" | "." | ".." => format!("\\{name}"),
        _ if decode(&name).len() > MAX_NAME => cut(&name, &name),
        _ => name,
    }
}

/// Files of a job that are being written.
pub(super) struct ResultFiles {
    place: PathBuf,
    /// Stdout and stderr under temporary names.
    streams: [NamedTempFile; 2],
}

/// Begins the files of the job with these values, each with its label.
pub(super) fn begin(dir: &Path, labelled: &[(String, String)]) -> Result<ResultFiles> {
    let place = place(dir, labelled);
    let begin = || {
        std::fs::create_dir_all(&place)?;
        Ok([new_output(&place)?, new_output(&place)?])
    };
    let streams = begin().map_err(|error| cannot_write(&place, &error))?;
    Ok(ResultFiles { place, streams })
}

impl ResultFiles {
    pub(super) fn write(&mut self, stream: OutputStream, chunk: &[u8]) -> Result<()> {
        let written = self.streams[stream as usize].write_all(chunk);
        written.map_err(|error| cannot_write(&self.place.join(stream.as_str()), &error))
    }

    /// Gives the files their names.
    pub(super) fn finish(self, seq: u64) -> Result<()> {
        let Self { place, streams: [stdout, stderr] } = self;
        write_output(&place, "seq", format!("{seq}").as_bytes())?;
        // stdout is named last, so its presence means that all files are complete.
        for (file, stream) in [(stderr, OutputStream::Stderr), (stdout, OutputStream::Stdout)] {
            let path = place.join(stream.as_str());
            file.persist(&path).map_err(|error| cannot_write(&path, &error.error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::{ffi::OsStrExt, fs::PermissionsExt};

    use agenix_protocol::blob::OutputStream;

    use crate::map::Columns;

    fn place(dir: &std::path::Path, args: &[String]) -> std::path::PathBuf {
        super::place(dir, &Columns::default().labelled(args))
    }

    fn write(dir: &std::path::Path, args: &[String], seq: u64, stdout: &[u8], stderr: &[u8]) {
        let mut files = super::begin(dir, &Columns::default().labelled(args)).unwrap();
        files.write(OutputStream::Stdout, stdout).unwrap();
        files.write(OutputStream::Stderr, stderr).unwrap();
        files.finish(seq).unwrap();
    }

    #[test]
    fn results_directory_is_named_after_the_input_and_stays_below_its_root() {
        let shown = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            place("r".as_ref(), &args).display().to_string()
        };
        assert_eq!(shown(&["a.txt"]), "r/1/a.txt");
        assert_eq!(shown(&["a", "b c"]), "r/1/a/2/b c");
        assert_eq!(shown(&["../x\t\\"]), r"r/1/..\_x\t\\");
        let named = super::place("r".as_ref(), &[("../n".into(), "a".into())]);
        assert_eq!(named.display().to_string(), r"r/..\_n/a", "a name of a column");
        assert_eq!([shown(&[".."]), shown(&["."]), shown(&[""])], [r"r/1/\..", r"r/1/\.", r"r/1/\"]);
    }

    #[test]
    fn results_directories_have_the_bytes_of_the_input() {
        let name = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            place("r".as_ref(), &args).as_os_str().as_bytes().to_vec()
        };
        assert_eq!(name(&["caf\u{10fee9}/é", "\u{10feff}"]), b"r/1/caf\xe9\\_\xc3\xa9/2/\xff");
        let longest = "\u{10fee9}".repeat(255);
        assert_eq!(name(&[&longest]), [b"r/1/", &[0xe9; 255][..]].concat(), "255 bytes are a name");
        assert!(name(&[&(longest + "x")]).len() < 120, "256 bytes are none");
    }

    #[test]
    fn results_directories_of_long_inputs_are_distinct() {
        let dir = tempfile::tempdir().unwrap();
        let long = |last: &str| vec!["x".repeat(300) + last];
        let many = |last: &str| (0..20).map(|_| "y".repeat(230)).chain([last.to_owned()]).collect::<Vec<_>>();
        let wide = vec!["é".repeat(200)];
        for (seq, args) in (1..).zip([long("a"), long("b"), many("a"), many("b"), wide]) {
            write(dir.path(), &args, seq, seq.to_string().as_bytes(), b"");
            let place = place(dir.path(), &args);
            let of = |name: &str| std::fs::read_to_string(place.join(name)).unwrap();
            assert_eq!([of("seq"), of("stdout")], [seq.to_string(), seq.to_string()]);
        }
        assert_eq!(std::fs::read_dir(dir.path().join("1")).unwrap().count(), 5, "each its own");
        let shown = place("r".as_ref(), &long("a")).display().to_string();
        assert!(shown.starts_with("r/1/xxx") && shown.len() < 120, "{shown}");
    }

    #[test]
    fn results_files_hold_stdout_stderr_and_seq() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &["a".into()], 3, b"out", b"err");
        let of = |name: &str| std::fs::read_to_string(dir.path().join("1/a").join(name)).unwrap();
        assert_eq!([of("seq"), of("stdout"), of("stderr")], ["3", "out", "err"]);
        std::fs::write(dir.path().join("usual"), "").unwrap();
        let mode = |path: &str| std::fs::metadata(dir.path().join(path)).unwrap().permissions().mode();
        for name in ["seq", "stdout", "stderr"] {
            assert_eq!(mode(&format!("1/a/{name}")), mode("usual"), "{name}");
        }
    }
}
