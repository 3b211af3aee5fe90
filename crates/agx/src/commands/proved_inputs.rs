//! Inputs of a signed order, each with the proof that it is one of them, in a file that
//! `agx action submit --inputs` takes.

use std::path::Path;

use agenix_order::{InputTree, PROOF_FIELD};

use super::{
    json_inputs::{MAX_ARRAY_BYTES, objects},
    read_at_most,
};
use crate::{
    error::{CliError, Result},
    util::atomic_file::cannot_write,
};

/// Writes the inputs of `file` with their proofs to `proved`. Returns the root of their tree.
pub(super) fn write(file: &Path, proved: &Path) -> Result<String> {
    let wrong = |problem: String| {
        let help = "give a JSON array of objects, whose numbers are whole numbers";
        CliError::usage(format!("{}: {problem}", file.display()), help)
    };
    let inputs = objects(&read_at_most(file, MAX_ARRAY_BYTES)?).map_err(wrong)?;
    if inputs.is_empty() {
        return Err(wrong("there is no input".into()));
    }
    let tree = InputTree::of(&inputs).map_err(|at| {
        wrong(format!(
            "inputs[{at}] is no object, or has a fraction, a field twice, or a field {PROOF_FIELD}"
        ))
    })?;
    let lines: Vec<String> = inputs.iter().enumerate().map(|(at, input)| tree.proved(at, input)).collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    std::fs::write(proved, text).map_err(|error| cannot_write(proved, &error))?;
    Ok(tree.root())
}
