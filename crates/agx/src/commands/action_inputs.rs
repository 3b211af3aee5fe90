//! Inputs of an action, from files or lines.

use std::path::{Path, PathBuf};

use agenix_protocol::documents::parse;
use clap::Args;
use serde_json::value::RawValue;

use super::{line_inputs::LineInputs, read};
use crate::{
    error::{CliError, Result},
    output::OutputFormat,
};

/// Maximum number of lines of an action that agx submits as a whole, because they are in memory.
const MAX_LINES: usize = 10_000_000;
/// Maximum number of bytes of all lines of such an action.
const MAX_BYTES: usize = 1024 * 1024 * 1024;

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("source")))]
pub(crate) struct InputFiles {
    /// JSON array of objects, one per job; - reads stdin
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) inputs: Option<PathBuf>,
    /// Lines of text, one per job: each line becomes {"line": …}; - reads stdin
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) lines: Option<PathBuf>,
    /// Field that holds the line
    #[arg(long, value_name = "NAME", default_value = "line")]
    pub(crate) field: String,
}

/// Reads the inputs of the file that `args` names, or returns `None` if there is none.
pub(super) fn inputs(args: &InputFiles, output: OutputFormat) -> Result<Option<Vec<Box<RawValue>>>> {
    if let Some(file) = &args.inputs {
        let help = "the file is a JSON array of objects, one a job: [{\"file\": \"a.txt\"}, …], or one object a line";
        let wrong = |problem: String| CliError::usage(format!("{}: {problem}", file.display()), help);
        return objects(&read(file)?).map_err(wrong).map(Some);
    }
    args.lines.as_ref().map(|file| lines(file, &args.field, output)).transpose()
}

/// Reads one input from each line of a file to its end.
fn lines(file: &Path, field: &str, output: OutputFormat) -> Result<Vec<Box<RawValue>>> {
    let (mut lines, mut inputs, mut bytes) = (LineInputs::open(file, field, output)?, Vec::new(), 0);
    while let Some(next) = lines.next_inputs()? {
        bytes += next.iter().map(|input| input.get().len()).sum::<usize>();
        inputs.extend(next);
        if inputs.len() > MAX_LINES || bytes > MAX_BYTES {
            return Err(CliError::usage(
                format!("{} has more than {MAX_LINES} lines or 1 GiB of inputs", file.display()),
                "submit the action with --open and without inputs, then give the lines to `agx action add`, \
                 which sends them as they come",
            ));
        }
    }
    Ok(inputs)
}

/// Parses a JSON array of objects, or consecutive objects as of `jq -c`.
pub(super) fn objects(json: &[u8]) -> Result<Vec<Box<RawValue>>, String> {
    match json.trim_ascii_start().first() {
        Some(b'{') => {
            let objects = serde_json::Deserializer::from_slice(json).into_iter();
            (1..).zip(objects).map(|(at, one)| one.map_err(|error| format!("object {at}: {error}"))).collect()
        }
        Some(b'[') => parse(json).map_err(|error| error.to_string()),
        Some(b'"') => Err("it is a text in quotation marks, and no array of objects".into()),
        Some(_) => Err("it begins neither with [ nor with {".into()),
        None => Err("it is empty: an array without inputs is []".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::objects;

    #[test]
    fn inputs_are_a_json_array_or_consecutive_objects() {
        let texts = |json: &str| -> Result<Vec<String>, String> {
            Ok(objects(json.as_bytes())?.iter().map(|object| object.get().to_owned()).collect())
        };
        for json in [
            "[{\"a\":1}, {\"a\":2}]",
            "{\"a\":1}\n{\"a\":2}\n",
            "{\"a\":1}{\"a\":2}",
            "\r\n{\"a\":1}\r\n{\"a\":2}",
        ] {
            assert_eq!(texts(json).unwrap(), ["{\"a\":1}", "{\"a\":2}"], "{json}");
        }
        assert_eq!(texts("{\"a\":1.10}").unwrap(), ["{\"a\":1.10}"]);
        assert!(texts("[]").unwrap().is_empty());
        for (json, expected) in [
            ("{\"a\":1}\n{\"a\":}\n", "object 2: expected value at line 2 column 6"),
            ("{\"a\":1},\n{}", "object 2: expected value at line 1 column 8"),
            ("[{\"a\":1}", "at line 1 column 8"),
            ("\"x\"", "a text in quotation marks"),
            ("7", "neither with [ nor with {"),
            ("", "is empty"),
        ] {
            let error = texts(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
