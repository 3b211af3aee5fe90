//! Lines of a file or of stdin, as inputs.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::PathBuf,
};

use agenix_protocol::byte_escape::encode;

use super::row::SourceValue;
use crate::{
    error::{CliError, Result},
    util::{
        shorten::shortened,
        text::{not_utf_8, without_mark},
    },
};

/// Maximum number of bytes of an input with its delimiter, which agx holds in memory. An agq with
/// its default settings takes fewer bytes.
pub(super) const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Open file or stdin, which continues after the line that was read last.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    /// `None` is stdin, whose buffer belongs to the process, because the lock of stdin cannot
    /// change threads.
    file: Option<BufReader<File>>,
    /// Terminator of a line.
    delimiter: u8,
    /// Number of lines that were read.
    count: u64,
}

impl Lines {
    /// Opens a file; `-` is stdin.
    pub(super) fn open(path: PathBuf, delimiter: u8) -> Result<Self> {
        let file = if path.as_os_str() == "-" {
            None
        } else {
            Some(BufReader::new(File::open(&path).map_err(|error| cannot_read(&path, &error))?))
        };
        Ok(Self { path, file, delimiter, count: 0 })
    }

    /// Passes the following lines to `take` until `take` returns false.
    pub(super) fn each(&mut self, mut take: impl FnMut(SourceValue) -> bool) -> Result<()> {
        let mut stdin;
        let reader: &mut dyn BufRead = match &mut self.file {
            Some(file) => file,
            None => {
                stdin = agenix_cli::stdin().map_err(|error| cannot_read(&self.path, &error))?;
                &mut stdin
            }
        };
        loop {
            let mut line = Vec::new();
            let read = read_line(reader, self.delimiter, MAX_BYTES, &mut line);
            let bytes = read.map_err(|error| cannot_read(&self.path, &error))?;
            if bytes == 0 {
                break;
            }
            self.count += 1;
            // Inputs that end with NUL are names, not a text from an editor.
            if self.count == 1 && self.delimiter == b'\n' {
                line = without_mark(&line).map_err(|encoding| not_utf_8(&self.path, encoding))?.to_vec();
                if line.is_empty() {
                    break;
                }
            }
            if line.last() == Some(&self.delimiter) {
                line.pop();
            }
            let shown = || format!("input {} of {}", self.count, shortened(&self.path.display().to_string()));
            let value = if bytes > MAX_BYTES as u64 {
                Err(format!(
                    "{} has {bytes} bytes, and agx takes at most {MAX_BYTES}: with -0 inputs end with NUL",
                    shown()
                ))
            } else {
                text(&line, shown)
            };
            if !take(value) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the next line, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<SourceValue>> {
        let mut next = None;
        self.each(|line| {
            next = Some(line);
            false
        })?;
        Ok(next)
    }
}

/// Appends the bytes up to `delimiter` to `line`, at most `most` of them, and discards further
/// ones. Returns the number of all these bytes.
pub(super) fn read_line(
    reader: &mut dyn BufRead,
    delimiter: u8,
    most: usize,
    line: &mut Vec<u8>,
) -> io::Result<u64> {
    let read = (&mut *reader).take(most as u64).read_until(delimiter, line)?;
    let is_cut = read == most && line.last() != Some(&delimiter);
    let discarded = if is_cut { reader.skip_until(delimiter)? } else { 0 };
    Ok(read as u64 + discarded as u64)
}

fn cannot_read(path: &std::path::Path, error: &std::io::Error) -> CliError {
    let shown = shortened(&path.display().to_string());
    CliError::usage(format!("cannot read {shown}: {error}"), "give a readable file, or - for stdin")
}

/// Returns the text of `bytes`, with byte escapes, if a process can get them as an argument.
fn text(bytes: &[u8], named: impl Fn() -> String) -> SourceValue {
    if bytes.contains(&0) {
        return Err(format!(
            "{} contains a NUL byte, which no process can be given: with -0 inputs end with NUL",
            named()
        ));
    }
    Ok(encode(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{Lines, encode, read_line};

    #[test]
    fn byte_order_mark_belongs_to_a_list_of_lines() {
        let read = |content: &[u8], delimiter: u8| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), content).unwrap();
            let first = Lines::open(file.path().to_owned(), delimiter).and_then(|mut lines| lines.next());
            first.map(|line| line.map(Result::unwrap)).map_err(|failure| failure.to_string())
        };
        assert_eq!(read(b"\xef\xbb\xbfa\nb\n", b'\n'), Ok(Some("a".into())));
        assert_eq!(read(b"\xef\xbb\xbfa\0b\0", 0), Ok(Some("\u{feff}a".into())));
        assert_eq!(read(b"\xef\xbb\xbf", b'\n'), Ok(None));
        assert!(read(b"\xff\xfea\0\n\0", b'\n').unwrap_err().contains("is UTF-16"));
        assert_eq!(read(b"\xff\xfea\0b\0", 0), Ok(Some(encode(b"\xff\xfea").into_owned())));
    }

    #[test]
    fn lines_are_read_up_to_a_bound_and_counted_beyond_it() {
        let mut reader = &b"abc\nabcd\nabcdefgh\nab"[..];
        let mut next = || {
            let mut line = Vec::new();
            let bytes = read_line(&mut reader, b'\n', 4, &mut line).unwrap();
            (bytes, String::from_utf8(line).unwrap())
        };
        assert_eq!(next(), (4, "abc\n".into()), "at the bound");
        assert_eq!(next(), (5, "abcd".into()), "one byte beyond it");
        assert_eq!(next(), (9, "abcd".into()));
        assert_eq!(next(), (2, "ab".into()));
        assert_eq!(next(), (0, String::new()));
    }
}
