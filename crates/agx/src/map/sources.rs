//! Sources of inputs: values after `:::`, files after `::::` or `-a`, and stdin. Several sources
//! are combined.

use std::{
    collections::BTreeMap,
    io::{BufReader, Read},
    path::{Path, PathBuf},
};

use agenix_protocol::byte_escape::{decode_os, encode};

use super::{
    combinations::{SourceGroup, SourceReader, combinations},
    grouping::grouped,
    lines::{Lines, MAX_BYTES, read_line},
    row::{InputRow, SourceValue},
    shuffle::shuffled,
};
use crate::error::{CliError, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InputSource {
    /// Values on the command line.
    Values(Vec<String>),
    /// File with one input per line; `-` is stdin.
    File(PathBuf),
}

/// A source, and whether it is paired (`:::+`) with the previous one or combined (`:::`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkedSource {
    source: InputSource,
    is_linked: bool,
}

#[derive(Debug)]
pub(crate) struct Sources {
    given: Vec<LinkedSource>,
    /// Terminator of an input: a line feed or NUL.
    delimiter: u8,
    /// Files whose first line was read, by the position of their source.
    opened: BTreeMap<usize, Lines>,
    /// Number of inputs per job, if there are several.
    per_job: Option<usize>,
    /// True if the jobs come in random order.
    is_shuffled: bool,
}

/// Splits the command from its sources. `:::` may have no values: a glob may match nothing.
pub(crate) fn split(words: Vec<String>) -> Result<(Vec<String>, Vec<LinkedSource>)> {
    let (mut command, mut given): (Vec<String>, Vec<LinkedSource>) = (Vec::new(), Vec::new());
    let (mut takes_files, mut lacks_file) = (false, false);
    for word in words {
        let begins = match word.as_str() {
            ":::" | ":::+" => Some(false),
            "::::" | "::::+" => Some(true),
            _ => None,
        };
        if let Some(files) = begins {
            check_files(lacks_file)?;
            (takes_files, lacks_file) = (files, files);
            given.push(LinkedSource {
                source: InputSource::Values(Vec::new()),
                is_linked: word.ends_with('+'),
            });
            continue;
        }
        match given.last_mut() {
            None => command.push(word),
            Some(last) if takes_files => {
                // Each file is a source of its own.
                let is_linked = last.is_linked;
                lacks_file = false;
                if last.source == InputSource::Values(Vec::new()) {
                    given.pop();
                }
                let file = PathBuf::from(decode_os(&word));
                given.push(LinkedSource { source: InputSource::File(file), is_linked });
            }
            Some(LinkedSource { source: InputSource::Values(values), .. }) => values.push(word),
            Some(LinkedSource { source: InputSource::File(_), .. }) => {}
        }
    }
    check_files(lacks_file)?;
    Ok((command, given))
}

fn check_files(lacks_file: bool) -> Result<()> {
    if lacks_file {
        return Err(CliError::usage(
            "there is no file after ::::",
            "name a file of inputs, or - for stdin; values go after :::",
        ));
    }
    Ok(())
}

impl Sources {
    /// Creates the sources of a command: files of `-a` first, and stdin if there is no source.
    pub(crate) fn new(files: Vec<PathBuf>, behind: Vec<LinkedSource>, delimiter: u8) -> Self {
        let files =
            files.into_iter().map(|file| LinkedSource { source: InputSource::File(file), is_linked: false });
        let mut given: Vec<LinkedSource> = files.chain(behind).collect();
        if given.is_empty() {
            given.push(LinkedSource { source: InputSource::File("-".into()), is_linked: false });
        }
        Self { given, delimiter, opened: BTreeMap::new(), per_job: None, is_shuffled: false }
    }

    /// Returns the files of the sources; `-` is stdin.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.given.iter().filter_map(|given| match &given.source {
            InputSource::File(file) => Some(file.as_path()),
            InputSource::Values(_) => None,
        })
    }

    /// Returns the number of sources, the highest N of `{N}`.
    pub(crate) fn count(&self) -> usize {
        self.given.len()
    }

    /// Gives each job `per_job` inputs of the only source.
    pub(crate) fn group(&mut self, per_job: usize) {
        self.per_job = Some(per_job);
    }

    /// Puts the jobs in random order.
    pub(crate) fn shuffle(&mut self) {
        self.is_shuffled = true;
    }

    /// Removes the first value of each source (`--header`), and returns these values. The header of
    /// an empty source is empty.
    pub(crate) fn take_headers(&mut self) -> Result<Vec<String>> {
        let mut headers = Vec::new();
        for (at, given) in self.given.iter_mut().enumerate() {
            let header = match &mut given.source {
                InputSource::Values(values) if values.is_empty() => None,
                InputSource::Values(values) => Some(Ok(values.remove(0))),
                InputSource::File(file) => {
                    let mut lines = Lines::open(file.clone(), self.delimiter)?;
                    let header = lines.next()?;
                    self.opened.insert(at, lines);
                    header
                }
            };
            let no_header =
                |why| CliError::usage(why, "--header takes the first input of each source as names");
            headers.push(header.transpose().map_err(no_header)?.unwrap_or_default());
        }
        Ok(headers)
    }

    /// Passes the rows of the jobs until `take` returns false.
    pub(crate) fn each(self, mut take: impl FnMut(InputRow) -> bool) -> Result<()> {
        if self.is_shuffled {
            shuffled(|take| self.in_order(take), &mut take)
        } else {
            self.in_order(&mut take)
        }
    }

    fn in_order(self, take: &mut dyn FnMut(InputRow) -> bool) -> Result<()> {
        match self.per_job {
            Some(per_job) => grouped(per_job, |take| self.combinations(take), take),
            None => self.combinations(take),
        }
    }

    /// Passes combinations, the last source varying fastest, until `take` returns false.
    fn combinations(mut self, take: &mut dyn FnMut(InputRow) -> bool) -> Result<()> {
        let delimiter = self.delimiter;
        let mut groups: Vec<SourceGroup> = Vec::new();
        for (at, given) in self.given.into_iter().enumerate() {
            let source = match given.source {
                InputSource::Values(values) => SourceReader::Values(values.into_iter()),
                InputSource::File(file) => {
                    let opened = self.opened.remove(&at);
                    SourceReader::Lines(opened.map_or_else(|| Lines::open(file, delimiter), Ok)?)
                }
            };
            match groups.last_mut() {
                Some(group) if given.is_linked => group.pair(source),
                _ => groups.push(SourceGroup::new(source)),
            }
        }
        combinations(groups, take)
    }
}

/// Splits stdin into blocks of about `size` bytes of whole lines, until `take` returns false.
pub(crate) fn blocks(size: usize, mut take: impl FnMut(SourceValue) -> bool) -> Result<()> {
    let cannot =
        |error: std::io::Error| CliError::usage(format!("cannot read stdin: {error}"), "is it open?");
    let mut reader = BufReader::new(agenix_cli::stdin().map_err(cannot)?);
    for number in 1_u64.. {
        let mut block = Vec::with_capacity(size);
        (&mut reader).take(size as u64).read_to_end(&mut block).map_err(cannot)?;
        if block.is_empty() {
            break;
        }
        let mut bytes = block.len() as u64;
        if block.last() != Some(&b'\n') {
            bytes += read_line(&mut reader, b'\n', MAX_BYTES, &mut block).map_err(cannot)?;
        }
        let value = if bytes > MAX_BYTES as u64 {
            Err(format!(
                "block {number} of stdin has {bytes} bytes, because its last line is long, and agx takes at most {MAX_BYTES}: \
                 write the parts into files, and give their names as inputs"
            ))
        } else if block.contains(&0) {
            Err(format!(
                "block {number} of stdin contains a NUL byte, which --pipe cannot carry: write the parts into files, and \
                 give their names as inputs"
            ))
        } else {
            Ok(encode(&block).into_owned())
        };
        if !take(value) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsRawFd};

    use super::{InputRow, Sources, split};
    use crate::error::Result;

    fn read(words: &[&str]) -> Result<Vec<InputRow>> {
        let (_, given) = split(words.iter().map(|word| (*word).to_owned()).collect())?;
        let mut rows = Vec::new();
        Sources::new(Vec::new(), given, b'\n').each(|row| {
            rows.push(row);
            true
        })?;
        Ok(rows)
    }

    fn rows(words: &[&str]) -> Vec<String> {
        read(words).unwrap().into_iter().map(|row| row.unwrap().join(" ")).collect()
    }

    #[test]
    fn the_last_source_varies_fastest_and_linked_sources_are_paired() {
        assert_eq!(rows(&["c", ":::", "a", "b"]), ["a", "b"]);
        assert_eq!(rows(&["c", ":::", "a", "b", ":::", "1", "2"]), ["a 1", "a 2", "b 1", "b 2"]);
        assert_eq!(rows(&["c", ":::", "a", "b", "c", ":::+", "1", "2"]), ["a 1", "b 2"], "the shorter ends");
        assert_eq!(
            rows(&["c", ":::", "a", "b", ":::+", "1", "2", ":::", "x", "y"]),
            ["a 1 x", "a 1 y", "b 2 x", "b 2 y"]
        );
        assert!(rows(&["c", ":::"]).is_empty());
        for words in [
            &["c", "::::"][..],
            &["c", "::::", ":::", "a"],
            &["c", ":::", "a", "::::+"],
            &["c", "::::", "f", "::::"],
        ] {
            assert_eq!(read(words).unwrap_err().to_string(), "there is no file after ::::", "{words:?}");
        }
    }

    #[test]
    fn inputs_of_the_first_source_become_jobs_as_they_arrive() {
        for others in [&[":::", "a", "b"][..], &[":::+", "a", "b", ":::", "x", "y"]] {
            // The source has no end, because its writer stays open.
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(b"1\n").unwrap();
            let first = format!("/dev/fd/{}", reader.as_raw_fd());
            let words = [&["c", "::::", &first][..], others].concat();
            let given = split(words.into_iter().map(str::to_owned).collect()).unwrap().1;
            let mut rows = Vec::new();
            let take = |row: InputRow| {
                rows.push(row.unwrap().join(" "));
                if rows.len() == 2 {
                    writer.write_all(b"2\n").unwrap();
                }
                rows.len() < 4
            };
            Sources::new(Vec::new(), given, b'\n').each(take).unwrap();
            let expected = match others.len() {
                3 => ["1 a", "1 b", "2 a", "2 b"],
                _ => ["1 a x", "1 a y", "2 b x", "2 b y"],
            };
            assert_eq!(rows, expected);
        }
        let (reader, _writer) = std::io::pipe().unwrap();
        let first = format!("/dev/fd/{}", reader.as_raw_fd());
        assert!(rows(&["c", "::::", &first, ":::"]).is_empty(), "it is not read without a combination");
    }

    #[test]
    fn words_before_the_sources_are_the_command() {
        let words = ["grep", "-c", "x", ":::", "a"].map(String::from).to_vec();
        assert_eq!(split(words).unwrap().0, ["grep", "-c", "x"]);
    }

    #[test]
    fn each_file_is_a_source_with_an_input_per_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_string_lossy().into_owned()
        };
        let (a, b) = (file("a", "1\n\n2"), file("b", "x\n"));
        assert_eq!(rows(&["c", "::::", &a]), ["1", "", "2"]);
        assert_eq!(rows(&["c", "::::", &a, &b]), ["1 x", " x", "2 x"]);
        assert_eq!(rows(&["c", "::::", &a, ":::+", "p", "q"]), ["1 p", " q"]);
        let read_n = read(&["c", "::::", &file("n", "x\n\0y\nz")]).unwrap();
        let is_nul = |why: String| why.contains("input 2 of") && why.contains("NUL byte");
        let read_n: Vec<_> = read_n.into_iter().map(|row| row.map_err(is_nul)).collect();
        assert_eq!(read_n, [Ok(vec!["x".into()]), Err(true), Ok(vec!["z".into()])]);
        std::fs::write(dir.path().join("b"), b"p\n\xff\nq\n").unwrap();
        assert_eq!(rows(&["c", "::::", &b]), ["p", "\u{10feff}", "q"]);
        std::fs::write(dir.path().join("b"), b"p\n\xff\0\nq\n").unwrap();
        let fit: Vec<bool> =
            read(&["c", "::::", &b, ":::", "1", "2"]).unwrap().iter().map(Result::is_ok).collect();
        assert_eq!(fit, [true, true, false, false, true, true], "each combination with it");
        let marked = file("marked", "\u{feff}x\n\u{feff}y\n");
        assert_eq!(rows(&["c", "::::", &marked]), ["x", "\u{feff}y"], "a mark is at the beginning alone");
        assert!(rows(&["c", "::::", &file("mark", "\u{feff}")]).is_empty());
        let utf16: Vec<u8> = "\u{feff}x\ny\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        std::fs::write(dir.path().join("wide"), utf16).unwrap();
        let wide = dir.path().join("wide").to_string_lossy().into_owned();
        let error = read(&["c", "::::", &wide]).unwrap_err();
        assert!(error.to_string().ends_with("is UTF-16, and text is read as UTF-8"), "{error}");
        let (a, b) = (file("h", "n\tm\n1\t2\n3\t4\n"), file("empty", ""));
        let given = split(Vec::from(["c", "::::", &a, &b, ":::", "x", "y"].map(String::from))).unwrap().1;
        let mut named = Sources::new(Vec::new(), given, b'\n');
        assert_eq!(named.take_headers().unwrap(), ["n\tm", "", "x"]);
        let given = split(Vec::from(["c", "::::", &a, ":::", "x", "y", "z"].map(String::from))).unwrap().1;
        let mut named = Sources::new(Vec::new(), given, b'\n');
        assert_eq!(named.take_headers().unwrap(), ["n\tm", "x"]);
        let mut rows = Vec::new();
        let take = |row: InputRow| {
            rows.push(row.unwrap().join(" "));
            true
        };
        named.each(take).unwrap();
        assert_eq!(rows, ["1\t2 y", "1\t2 z", "3\t4 y", "3\t4 z"], "without the headers");
        let missing = dir.path().join("missing").to_string_lossy().into_owned();
        let error = read(&["c", "::::", &missing]).unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
    }
}
