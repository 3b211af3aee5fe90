//! Inputs of an action, from files, from lines or from the command line.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::value::RawValue;

use super::{
    json_inputs::JsonInputs,
    line_inputs::{LineInputs, input},
};
use crate::{
    error::{CliError, Result},
    output::OutputFormat,
};

/// Maximum number of inputs of an action that agx submits as a whole, because they are in memory.
const MAX_INPUTS: usize = 10_000_000;
/// Maximum number of bytes of all inputs of such an action.
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

/// Inputs that arrive.
pub(super) enum InputStream<'a> {
    Json(JsonInputs<'a>),
    Lines(LineInputs<'a>),
    Values(Vec<Box<RawValue>>),
}

impl InputStream<'_> {
    /// Waits for further inputs, and returns them, or `None` at the end.
    pub(super) fn next_inputs(&mut self) -> Result<Option<Vec<Box<RawValue>>>> {
        match self {
            Self::Json(json) => json.next_inputs(),
            Self::Lines(lines) => lines.next_inputs(),
            Self::Values(values) => Ok(Some(std::mem::take(values)).filter(|values| !values.is_empty())),
        }
    }
}

impl InputFiles {
    /// Opens the file that the arguments name, or returns `None` if they name none.
    fn open(&self, output: OutputFormat) -> Result<Option<InputStream<'_>>> {
        if let Some(file) = &self.inputs {
            return JsonInputs::open(file).map(InputStream::Json).map(Some);
        }
        self.lines.as_deref().map(|file| self.open_lines(file, output)).transpose()
    }

    fn open_lines<'a>(&'a self, file: &'a Path, output: OutputFormat) -> Result<InputStream<'a>> {
        LineInputs::open(file, &self.field, output).map(InputStream::Lines)
    }

    /// Returns the inputs of `values`, if there are some, otherwise those of the file that the
    /// arguments name, or of the lines of stdin.
    pub(super) fn stream(&self, values: &[String], output: OutputFormat) -> Result<InputStream<'_>> {
        if !values.is_empty() {
            let values = values.iter().map(|value| input(&self.field, value)).collect::<Result<Vec<_>>>();
            return values.map(InputStream::Values);
        }
        match self.open(output)? {
            Some(stream) => Ok(stream),
            None => self.open_lines(Path::new("-"), output),
        }
    }

    /// Reads all inputs of the file that the arguments name, or returns `None` if they name none.
    pub(super) fn read_all(&self, output: OutputFormat) -> Result<Option<Vec<Box<RawValue>>>> {
        let Some(mut stream) = self.open(output)? else { return Ok(None) };
        let (mut inputs, mut bytes) = (Vec::new(), 0);
        while let Some(next) = stream.next_inputs()? {
            bytes += next.iter().map(|input| input.get().len()).sum::<usize>();
            inputs.extend(next);
            if inputs.len() > MAX_INPUTS || bytes > MAX_BYTES {
                return Err(CliError::usage(
                    format!("there are more than {MAX_INPUTS} inputs, or 1 GiB of them"),
                    "submit the action with --open and without inputs, then give the inputs to `agx action add`, \
                     which sends them as they come",
                ));
            }
        }
        Ok(Some(inputs))
    }
}
