//! Inputs of an action from JSON: an array of objects, or consecutive objects as they arrive.

use std::{
    io::{self, ErrorKind, Read},
    path::Path,
};

use agenix_protocol::documents::parse;
use serde_json::value::RawValue;

use super::{open, unreadable};
use crate::{
    error::{CliError, Result},
    util::text::{not_utf_8, without_mark},
};

/// Number of bytes that are read at once.
const READ_BYTES: usize = 1024 * 1024;
/// Maximum number of bytes of an object, and of an array, which agx reads as a whole.
const MAX_OBJECT_BYTES: usize = 64 * 1024 * 1024;
pub(super) const MAX_ARRAY_BYTES: usize = 1024 * 1024 * 1024;
/// Number of bytes that tell the encoding of a text.
const MARK_BYTES: usize = 4;

/// Form of a JSON text with inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonForm {
    /// No character has arrived.
    Unknown,
    Array,
    Objects,
}

/// Search for the end of an object in a text that arrives in parts.
#[derive(Default)]
struct ObjectScan {
    /// Number of brackets and braces that are open; 0 between objects.
    depth: usize,
    is_in_text: bool,
    is_escaped: bool,
}

impl ObjectScan {
    /// Returns the number of bytes to the end of the object, or `None` if `bytes` does not have it.
    fn end_in(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            if self.is_in_text {
                self.is_in_text = self.is_escaped || *byte != b'"';
                self.is_escaped = !self.is_escaped && *byte == b'\\';
                continue;
            }
            match byte {
                b'"' => self.is_in_text = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => continue,
            }
            if self.depth == 0 {
                return Some(at + 1);
            }
        }
        None
    }
}

/// Reader of inputs from JSON.
pub(super) struct JsonInputs<'a> {
    file: &'a Path,
    source: Box<dyn Read>,
    buffer: Vec<u8>,
    /// Text that has arrived, without the objects that were returned.
    begun: Vec<u8>,
    form: JsonForm,
    /// Number of bytes of `begun` that `scan` has seen.
    searched: usize,
    scan: ObjectScan,
    /// Number of objects that were found.
    count: u64,
}

impl<'a> JsonInputs<'a> {
    /// Opens `file`, or stdin if `file` is `-`.
    pub(super) fn open(file: &'a Path) -> Result<Self> {
        Ok(Self::of(open(file)?, file))
    }

    fn of(source: Box<dyn Read>, file: &'a Path) -> Self {
        let (buffer, begun) = (vec![0; READ_BYTES], Vec::new());
        let (form, scan) = (JsonForm::Unknown, ObjectScan::default());
        Self { file, source, buffer, begun, form, searched: 0, scan, count: 0 }
    }

    /// Waits for further inputs, and returns those that have arrived, or `None` at the end.
    pub(super) fn next_inputs(&mut self) -> Result<Option<Vec<Box<RawValue>>>> {
        loop {
            let is_end = self.read_more()?;
            if self.form == JsonForm::Unknown {
                self.form = self.form_of_begun(is_end)?;
            }
            let most = match self.form {
                JsonForm::Objects => {
                    let inputs = self.arrived()?;
                    if !inputs.is_empty() {
                        return Ok(Some(inputs));
                    }
                    if is_end && !self.begun.is_empty() {
                        return Err(self.wrong(&format!("object {} has no end", self.count + 1)));
                    }
                    if is_end {
                        return Ok(None);
                    }
                    MAX_OBJECT_BYTES
                }
                JsonForm::Array if is_end => return self.array().map(Some),
                JsonForm::Array | JsonForm::Unknown => MAX_ARRAY_BYTES,
            };
            if self.begun.len() > most {
                let mebibytes = most / 1024 / 1024;
                return Err(self.wrong(&format!("an array or an object has more than {mebibytes} MiB")));
            }
        }
    }

    /// Reads further text. Returns true at the end.
    fn read_more(&mut self) -> Result<bool> {
        let count = loop {
            match self.source.read(&mut self.buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.map_err(|error| unreadable(self.file, &error))?,
            }
        };
        self.begun.extend_from_slice(&self.buffer[..count]);
        if count == 0 {
            // A further read of a terminal would ask for more input.
            self.source = Box::new(io::empty());
        }
        Ok(count == 0)
    }

    /// Returns the form of the text by its first character, and removes a byte order mark.
    fn form_of_begun(&mut self, is_end: bool) -> Result<JsonForm> {
        // The shortest object, {}, has fewer bytes than a mark.
        if !is_end && self.begun.len() < MARK_BYTES && !self.begun.contains(&b'}') {
            return Ok(JsonForm::Unknown);
        }
        let text = without_mark(&self.begun).map_err(|encoding| not_utf_8(self.file, encoding))?;
        let form = match text.trim_ascii_start().first() {
            Some(b'{') => JsonForm::Objects,
            Some(b'[') => JsonForm::Array,
            None if !is_end => return Ok(JsonForm::Unknown),
            other => return Err(self.wrong(fault_of(other))),
        };
        self.begun = text.to_vec();
        Ok(form)
    }

    /// Returns the objects that have arrived completely.
    fn arrived(&mut self) -> Result<Vec<Box<RawValue>>> {
        let (mut inputs, mut start) = (Vec::new(), 0);
        loop {
            if self.scan.depth == 0 {
                let blanks = self.begun[start..].iter().take_while(|byte| byte.is_ascii_whitespace());
                start += blanks.count();
                self.searched = start;
                if self.begun.get(start).is_some_and(|byte| *byte != b'{') {
                    let problem = format!("object {} does not begin with {{", self.count + 1);
                    return Err(self.wrong(&problem));
                }
            }
            let Some(length) = self.scan.end_in(&self.begun[self.searched..]) else { break };
            let end = self.searched + length;
            self.count += 1;
            let object = serde_json::from_slice(&self.begun[start..end]);
            inputs
                .push(object.map_err(|error| {
                    self.wrong(&format!("object {}: {error} of this object", self.count))
                })?);
            start = end;
        }
        self.begun.drain(..start);
        self.searched = self.begun.len();
        Ok(inputs)
    }

    /// Returns the objects of the array, after which no inputs follow.
    fn array(&mut self) -> Result<Vec<Box<RawValue>>> {
        let inputs = objects(&self.begun).map_err(|problem| self.wrong(&problem))?;
        (self.form, self.begun) = (JsonForm::Objects, Vec::new());
        Ok(inputs)
    }

    fn wrong(&self, problem: &str) -> CliError {
        CliError::usage(
            format!("{}: {problem}", self.file.display()),
            "the file is a JSON array of objects, one a job: [{\"file\": \"a.txt\"}, …], or one object a line",
        )
    }
}

/// Parses a JSON array of objects, or consecutive objects as of `jq -c`.
pub(super) fn objects(json: &[u8]) -> Result<Vec<Box<RawValue>>, String> {
    match json.trim_ascii_start().first() {
        Some(b'{') => {
            let objects = serde_json::Deserializer::from_slice(json).into_iter();
            (1..).zip(objects).map(|(at, one)| one.map_err(|error| format!("object {at}: {error}"))).collect()
        }
        Some(b'[') => parse(json).map_err(|error| error.to_string()),
        other => Err(fault_of(other).into()),
    }
}

/// Returns the reason why a text that begins with `first` has no inputs.
fn fault_of(first: Option<&u8>) -> &'static str {
    match first {
        Some(b'"') => "it is a text in quotation marks, and no array of objects",
        Some(_) => "it begins neither with [ nor with {",
        None => "it is empty: an array without inputs is []",
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Cursor, Read, Write},
        path::Path,
    };

    use serde_json::value::RawValue;

    use super::{JsonInputs, MAX_OBJECT_BYTES, objects};

    fn inputs_of(source: impl Read + 'static) -> JsonInputs<'static> {
        JsonInputs::of(Box::new(source), Path::new("-"))
    }

    /// Returns the inputs of a text that is read as a whole, and of one that is read as it arrives.
    fn texts(json: &[u8]) -> [Result<Vec<String>, String>; 2] {
        let texts_of = |inputs: Vec<Box<RawValue>>| {
            inputs.iter().map(|input| input.get().to_owned()).collect::<Vec<String>>()
        };
        [objects(json).map(texts_of), arriving(json).map(texts_of)]
    }

    fn arriving(json: &[u8]) -> Result<Vec<Box<RawValue>>, String> {
        let (mut inputs, mut all) = (inputs_of(Cursor::new(json.to_vec())), Vec::new());
        while let Some(next) = inputs.next_inputs().map_err(|error| error.to_string())? {
            all.extend(next);
        }
        Ok(all)
    }

    #[test]
    fn inputs_are_a_json_array_or_consecutive_objects() {
        for json in [
            "[{\"a\":1}, {\"a\":2}]",
            "\n [{\"a\":1},\n{\"a\":2}]\n",
            "{\"a\":1}\n{\"a\":2}\n",
            "{\"a\":1}{\"a\":2}",
            "\r\n{\"a\":1}\r\n{\"a\":2}",
        ] {
            for texts in texts(json.as_bytes()) {
                assert_eq!(texts.unwrap(), ["{\"a\":1}", "{\"a\":2}"], "{json}");
            }
        }
        for json in ["{}", "{\"a\":1.10}", "{\"a\":[{\"b\":[]}]}", "{\"}\":\"{\\\\\\\"]\\\\\"}"] {
            for texts in texts(json.as_bytes()) {
                assert_eq!(texts.unwrap(), [json]);
            }
        }
        assert_eq!(texts(b"[]").map(Result::unwrap), [[""; 0]; 2]);
    }

    #[test]
    fn text_without_inputs_is_refused_with_the_place() {
        let place = "object 2: expected value at line";
        for (json, whole, arriving) in [
            ("{\"a\":1}\n{\"a\":}\n", "object 2: expected value at line 2 column 6", place),
            ("{\"a\":1},\n{}", "object 2: expected value at line 1 column 8", "2 does not begin with {"),
            ("{\"a\":1} {\"a\":", "object 2: EOF while", "object 2 has no end"),
            ("{\"a\":1]", "object 1: ", "object 1: "),
            ("[{\"a\":1}", "at line 1 column 8", "at line 1 column 8"),
            ("\"x\"", "a text in quotation marks", "a text in quotation marks"),
            ("7", "neither with [ nor with {", "neither with [ nor with {"),
            (" \n", "is empty", "is empty"),
        ] {
            let errors = texts(json.as_bytes()).map(Result::unwrap_err);
            assert!(errors[0].contains(whole) && errors[1].contains(arriving), "{json}: {errors:?}");
        }
    }

    #[test]
    fn objects_are_inputs_as_soon_as_they_arrive() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut inputs = inputs_of(reader);
        let mut next = || inputs.next_inputs().unwrap().map(|inputs| inputs.len());
        writer.write_all(b"\xef\xbb\xbf{\"a\":1}\n{}{\"a\\").unwrap();
        assert_eq!(next(), Some(2));
        writer.write_all(b"\"{\":3}\n").unwrap();
        assert_eq!(next(), Some(1));
        writer.write_all(b" {}").unwrap();
        assert_eq!(next(), Some(1));
        drop(writer);
        assert_eq!([next(), next()], [None, None]);
    }

    #[test]
    fn object_without_end_is_refused() {
        let mut inputs = inputs_of(Cursor::new(b"{\"a\":\"".to_vec()).chain(io::repeat(b'x')));
        let error = inputs.next_inputs().unwrap_err().to_string();
        assert!(error.contains("an array or an object has more than 64 MiB"), "{error}");
        assert!(inputs.begun.len() < 2 * MAX_OBJECT_BYTES);
    }

    #[test]
    fn inputs_in_another_encoding_are_refused() {
        let json: Vec<u8> = "{\"a\":1}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let error = inputs_of(Cursor::new(json)).next_inputs().unwrap_err().to_string();
        assert!(error.contains("- is UTF-16"), "{error}");
    }
}
