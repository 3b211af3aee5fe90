//! Interpreters: further files that the kernel executes to run a program, namely the dynamic loader
//! of an ELF file, and the interpreter in the first line of a script.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
};

/// PATH of every task.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Maximum depth of scripts that interpret scripts, as in Linux.
const MAX_DEPTH: usize = 5;
/// Bytes of the first line that Linux reads.
const MAX_LINE_BYTES: usize = 256;
/// Maximum length of the path of a loader, as in Linux (`PATH_MAX`).
const MAX_PATH_BYTES: u64 = 4096;
/// Maximum number of program headers, as in Linux (64 KiB of them).
const MAX_HEADERS: u64 = 1170;

/// Returns the files that have to be executable so that `programs` run: the programs and their
/// interpreters. The order is stable, and no file occurs twice.
///
/// # Errors
///
/// Returns the path and the error of a file that cannot be read.
pub(crate) fn executed_files(programs: &[PathBuf]) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let mut files = Vec::new();
    for program in programs {
        add(&mut files, program.clone(), 0)?;
    }
    Ok(files)
}

fn add(files: &mut Vec<PathBuf>, program: PathBuf, depth: usize) -> Result<(), (PathBuf, io::Error)> {
    if files.contains(&program) || depth > MAX_DEPTH {
        return Ok(());
    }
    let interpreters = File::open(&program).and_then(|mut file| interpreters_of(&mut file));
    let interpreters = interpreters.map_err(|error| (program.clone(), error))?;
    files.push(program);
    // An absent interpreter fails the start of the program, with the usual error.
    let present = interpreters.into_iter().filter(|path| path.exists());
    present.into_iter().try_for_each(|path| add(files, path, depth + 1))
}

fn interpreters_of(file: &mut File) -> io::Result<Vec<PathBuf>> {
    let mut start = Vec::new();
    file.by_ref().take(MAX_LINE_BYTES as u64).read_to_end(&mut start)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        return Ok(of_first_line(line));
    }
    Ok(loader_of(&start, |bytes, at| file.read_exact_at(bytes, at))?.into_iter().collect())
}

/// Returns the interpreter that the first line of a script names, and the program that env(1)
/// looks up for the script.
fn of_first_line(line: &[u8]) -> Vec<PathBuf> {
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
    let Some(interpreter) = words.next() else { return Vec::new() };
    let interpreter = PathBuf::from(OsStr::from_bytes(interpreter));
    let looked_up = words.find(|word| !word.starts_with(b"-")).filter(|_| interpreter.ends_with("env"));
    let looked_up = looked_up.and_then(|name| {
        let directories = PATH.split(':').map(Path::new);
        directories.map(|directory| directory.join(OsStr::from_bytes(name))).find(|path| path.is_file())
    });
    [interpreter].into_iter().chain(looked_up).collect()
}

/// Returns the loader of a 64-bit little-endian ELF file that starts with `start`. `read` reads the
/// file at an offset. Other files have no loader.
fn loader_of(start: &[u8], read: impl Fn(&mut [u8], u64) -> io::Result<()>) -> io::Result<Option<PathBuf>> {
    /// Program header of the path of the loader (`PT_INTERP`).
    const INTERPRETER: u64 = 3;
    let (Some(header), true) = (start.get(..64), start.starts_with(b"\x7fELF\x02\x01")) else {
        return Ok(None);
    };
    let (at, size) = (number(&header[32..40]), number(&header[54..56]));
    let count = number(&header[56..58]).min(MAX_HEADERS);
    if size < 56 {
        return Ok(None);
    }
    for index in 0..count {
        let mut entry = [0; 56];
        let Some(place) = at.checked_add(index * size) else { return Ok(None) };
        read(&mut entry, place)?;
        if number(&entry[..4]) != INTERPRETER {
            continue;
        }
        let (place, length) = (number(&entry[8..16]), number(&entry[32..40]));
        if length == 0 || length > MAX_PATH_BYTES {
            return Ok(None);
        }
        let mut path = vec![0; usize::try_from(length).unwrap_or_default()];
        read(&mut path, place)?;
        let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
        return Ok(Some(PathBuf::from(OsStr::from_bytes(path))));
    }
    Ok(None)
}

/// Returns a little-endian number of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use proptest::prelude::*;

    use super::{executed_files, loader_of, of_first_line};

    #[test]
    fn program_needs_its_loader() {
        let files = executed_files(&["/bin/sh".into(), "/bin/cat".into()]).unwrap();
        assert_eq!(files[0], PathBuf::from("/bin/sh"));
        assert_eq!(files.len(), 3, "the loader of both: {files:?}");
        assert!(files[1].to_str().unwrap().contains("ld"), "{files:?}");
    }

    #[test]
    fn script_needs_its_interpreter_and_the_loader_of_that() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "#! /bin/sh -e\necho").unwrap();
        let files = executed_files(std::slice::from_ref(&script)).unwrap();
        assert_eq!(files[..2], [script, "/bin/sh".into()]);
        assert_eq!(files.len(), 3);
    }

    #[test]
    fn script_of_env_needs_the_program_that_env_looks_up() {
        let expected = ["/usr/bin/env".into(), PathBuf::from("/usr/bin/sort")];
        assert_eq!(of_first_line(b"/usr/bin/env sort\n"), expected);
        assert_eq!(of_first_line(b" /usr/bin/env -S sort -n\nx"), expected);
        assert_eq!(of_first_line(b"/usr/bin/env no-such-program\n"), expected[..1]);
        assert_eq!(of_first_line(b"/bin/sh sort\n"), [PathBuf::from("/bin/sh")]);
        assert!(of_first_line(b"  \n/bin/sh").is_empty());
    }

    #[test]
    fn scripts_that_interpret_each_other_end() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::write(&one, format!("#!{}\n", two.display())).unwrap();
        fs::write(&two, format!("#!{}\n", one.display())).unwrap();
        assert_eq!(executed_files(std::slice::from_ref(&one)).unwrap(), [one, two]);
    }

    #[test]
    fn absent_program_is_named() {
        let (path, error) = executed_files(&["/no/such/program".into()]).unwrap_err();
        assert_eq!((path, error.kind()), ("/no/such/program".into(), std::io::ErrorKind::NotFound));
    }

    proptest! {
        #[test]
        fn loader_search_survives_any_file(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let magic = b"\x7fELF\x02\x01";
            let length = bytes.len().min(magic.len());
            bytes[..length].copy_from_slice(&magic[..length]);
            let read = |into: &mut [u8], at: u64| {
                let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..into.len()));
                from.map(|from| into.copy_from_slice(from)).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
            };
            let _ = loader_of(&bytes, read);
        }
    }
}
