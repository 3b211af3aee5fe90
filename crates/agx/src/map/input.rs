//! Inputs of a map on their way from the sources to agq.

use serde_json::{Value, value::RawValue};
use tokio::sync::OwnedSemaphorePermit;

use crate::{error::CliError, map::fields::InputFields};

/// Field of a block of stdin (`--pipe`).
pub(crate) const BLOCK: &str = "block";

/// Values of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapInput {
    /// Number of the input, counted from 1.
    pub(crate) seq: u64,
    /// One value per source.
    pub(crate) args: Vec<String>,
    /// Block of stdin, cleared as soon as agq has it.
    pub(crate) block: Option<String>,
}

impl MapInput {
    /// Returns the number of bytes of the input.
    pub(crate) fn bytes(&self) -> usize {
        self.args.iter().chain(&self.block).map(String::len).sum()
    }

    /// Returns the input as a JSON object with the fields that the plan uses.
    pub(super) fn document(&self, fields: &InputFields) -> Result<Box<RawValue>, String> {
        let mut fields = fields.of(&self.args, self.seq);
        if let Some(block) = &self.block {
            fields.insert(BLOCK.into(), Value::from(block.as_str()));
        }
        RawValue::from_string(Value::Object(fields).to_string()).map_err(|error| error.to_string())
    }
}

/// Input that no job can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidInput {
    /// Number of the input, counted from 1.
    pub(crate) seq: u64,
    pub(crate) why: String,
}

/// Result of one read.
#[derive(Debug)]
pub(crate) enum Read {
    /// Input, with the permit for its bytes until the permit is dropped.
    Input(MapInput, OwnedSemaphorePermit),
    Unfit(InvalidInput),
    /// Failure after which no more inputs come.
    Failed(CliError),
}
