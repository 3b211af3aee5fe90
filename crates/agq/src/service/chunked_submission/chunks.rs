//! Chunks of a submission: consecutive inputs as text, few enough for one write of the store.

use agenix_protocol::{documents::parse, ids::ActionId};
use serde_json::value::RawValue;

use crate::{error::Result, store::StoreError};

/// Number of bytes of inputs after which a chunk ends.
const CHUNK_BYTES: usize = 256 * 1024;

pub(crate) struct InputChunk {
    pub(crate) place: u64,
    /// The inputs, as a JSON array.
    pub(crate) json: String,
}

/// Returns the inputs as the error if one write can store all of them.
pub(crate) fn chunks(
    inputs: Vec<Box<RawValue>>,
    max_inputs: usize,
) -> Result<Vec<InputChunk>, Vec<Box<RawValue>>> {
    if inputs.len() <= max_inputs {
        return Err(inputs);
    }
    let (mut chunks, mut json, mut place, mut count) = (Vec::new(), String::from("["), 0, 0);
    for input in inputs {
        if count >= max_inputs || json.len() >= CHUNK_BYTES {
            json.push(']');
            chunks.push(InputChunk { place, json: std::mem::replace(&mut json, "[".into()) });
            (place, count) = (place + count as u64, 0);
        }
        if count > 0 {
            json.push(',');
        }
        json.push_str(input.get());
        count += 1;
    }
    json.push(']');
    chunks.push(InputChunk { place, json });
    Ok(chunks)
}

pub(crate) fn inputs_of(json: &str) -> Result<Vec<Box<RawValue>>> {
    Ok(parse(json.as_bytes()).map_err(|error| StoreError(format!("inputs cannot be read: {error}")))?)
}

pub(crate) fn name(action_id: &ActionId, place: u64) -> String {
    format!("{action_id}/{place}")
}
