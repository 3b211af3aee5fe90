//! Inputs of an action from the lines of a file or of stdin, as the lines arrive.

use std::{
    io::{self, ErrorKind, Read},
    path::Path,
};

use agenix_protocol::byte_escape::encode;
use serde_json::{json, value::RawValue};

use super::{open, unreadable};
use crate::{
    error::{CliError, Result},
    output::OutputFormat,
    util::text::{CRLF_HELP, not_utf_8, without_mark},
};

/// Number of bytes that are read at once.
const READ_BYTES: usize = 1024 * 1024;
/// Maximum number of bytes of a line.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

pub(super) struct LineInputs<'a> {
    file: &'a Path,
    field: &'a str,
    output: OutputFormat,
    source: Box<dyn Read>,
    buffer: Vec<u8>,
    /// Beginning of a line whose end has not arrived.
    begun: Vec<u8>,
    /// True until the first lines, before which a byte order mark may be.
    is_first: bool,
    /// True once the user was warned of a carriage return.
    has_noted_crlf: bool,
}

impl<'a> LineInputs<'a> {
    /// Opens `file`, or stdin if `file` is `-`. A line is the value of `field` of its input.
    pub(super) fn open(file: &'a Path, field: &'a str, output: OutputFormat) -> Result<Self> {
        Ok(Self::of(open(file)?, file, field, output))
    }

    fn of(source: Box<dyn Read>, file: &'a Path, field: &'a str, output: OutputFormat) -> Self {
        let (buffer, begun) = (vec![0; READ_BYTES], Vec::new());
        Self { file, field, output, source, buffer, begun, is_first: true, has_noted_crlf: false }
    }

    /// Waits for further lines, and returns an input for each, or `None` at the end.
    pub(super) fn next_inputs(&mut self) -> Result<Option<Vec<Box<RawValue>>>> {
        loop {
            let count = match self.source.read(&mut self.buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.map_err(|error| unreadable(self.file, &error))?,
            };
            let arrived = &self.buffer[..count];
            let end = arrived.iter().rposition(|&byte| byte == b'\n');
            let end = end.map(|end| self.begun.len() + end);
            self.begun.extend_from_slice(arrived);
            if let Some(end) = end {
                let rest = self.begun.split_off(end + 1);
                let mut lines = std::mem::replace(&mut self.begun, rest);
                lines.truncate(end);
                return self.inputs(&lines).map(Some);
            }
            if count == 0 {
                // A further read of a terminal would ask for more input.
                self.source = Box::new(io::empty());
                let last = std::mem::take(&mut self.begun);
                let is_mark = self.is_first && without_mark(&last).is_ok_and(<[u8]>::is_empty);
                return if last.is_empty() || is_mark { Ok(None) } else { self.inputs(&last).map(Some) };
            }
            if self.begun.len() > MAX_LINE_BYTES {
                let problem = format!("{}: a line has more than 64 MiB", self.file.display());
                return Err(CliError::usage(problem, "give lines of text, one input each"));
            }
        }
    }

    /// Returns the inputs of lines, between which are line feeds.
    fn inputs(&mut self, lines: &[u8]) -> Result<Vec<Box<RawValue>>> {
        let lines = if std::mem::take(&mut self.is_first) {
            without_mark(lines).map_err(|encoding| not_utf_8(self.file, encoding))?
        } else {
            lines
        };
        let has_crlf = lines.ends_with(b"\r") || lines.windows(2).any(|pair| pair == b"\r\n");
        if has_crlf && !std::mem::replace(&mut self.has_noted_crlf, true) {
            let file = self.file.display();
            self.output.note(&format!("agx: a line of {file} ends with \\r: {CRLF_HELP}"));
        }
        lines.split(|&byte| byte == b'\n').map(|line| input(self.field, &encode(line))).collect()
    }
}

/// Returns the input with one field, whose value is `line`, a text with byte escapes.
pub(super) fn input(field: &str, line: &str) -> Result<Box<RawValue>> {
    RawValue::from_string(json!({field: line}).to_string())
        .map_err(|error| CliError::usage(error.to_string(), "write a JSON file of inputs"))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Cursor, Read, Write},
        path::Path,
    };

    use super::{LineInputs, MAX_LINE_BYTES, OutputFormat};

    fn inputs_of(source: impl Read + 'static) -> LineInputs<'static> {
        LineInputs::of(Box::new(source), Path::new("-"), "line", OutputFormat::default())
    }

    fn texts(bytes: &[u8]) -> Vec<String> {
        let (mut inputs, mut texts) = (inputs_of(Cursor::new(bytes.to_vec())), Vec::new());
        while let Some(next) = inputs.next_inputs().unwrap() {
            texts.extend(next.iter().map(|input| input.get().to_owned()));
        }
        texts
    }

    #[test]
    fn each_line_is_an_input_also_an_empty_one() {
        let [empty, a] = [r#"{"line":""}"#, r#"{"line":"a"}"#];
        assert_eq!(texts(b""), [""; 0]);
        assert_eq!(texts(b"\xef\xbb\xbf"), [""; 0], "a byte order mark is no line");
        assert_eq!(texts(b"\n"), [empty]);
        assert_eq!(texts(b"\n\n"), [empty, empty]);
        for text in [&b"a\n"[..], b"a", b"\xef\xbb\xbfa\n"] {
            assert_eq!(texts(text), [a]);
        }
        assert_eq!(texts(b"a\n\na"), [a, empty, a]);
        assert_eq!(texts(b"a\n\n"), [a, empty]);
    }

    #[test]
    fn lines_are_inputs_as_soon_as_they_arrive() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut inputs = inputs_of(reader);
        let mut next = || inputs.next_inputs().unwrap().map(|inputs| inputs.len());
        writer.write_all(b"a\nb\nbegun").unwrap();
        assert_eq!(next(), Some(2));
        writer.write_all(b" and ended\n").unwrap();
        assert_eq!(next(), Some(1));
        drop(writer);
        assert_eq!(next(), None);
    }

    #[test]
    fn line_without_end_is_refused() {
        let mut inputs = inputs_of(io::repeat(b'x'));
        let error = inputs.next_inputs().unwrap_err().to_string();
        assert!(error.contains("a line has more than 64 MiB"), "{error}");
        assert!(inputs.begun.len() < 2 * MAX_LINE_BYTES);
    }
}
