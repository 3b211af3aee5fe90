//! Encoding of records: MessagePack, with fields by position. New fields are appended with
//! `#[serde(default)]`.

use agenix_protocol::ids::JobId;
use redb::Error;
use rmp_serde::Serializer;
use serde::{Serialize, de::DeserializeOwned};

/// Initial capacity for an encoded record, which most records fit into.
const MAX_BYTES: usize = 512;

pub(crate) fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(MAX_BYTES);
    let written = record.serialize(&mut Serializer::new(&mut bytes));
    written.map_err(|error| Error::Corrupted(format!("a record cannot be written: {error}")))?;
    Ok(bytes)
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    rmp_serde::from_slice(bytes)
        .map_err(|error| Error::Corrupted(format!("a record cannot be read: {error}")))
}

/// Parses the id of a job in a table.
pub(crate) fn job_id(text: &str) -> Result<JobId, Error> {
    JobId::new(text).map_err(|error| Error::Corrupted(error.to_string()))
}

#[cfg(test)]
mod tests {
    use agenix_rules::action::{ActionOptions, SchedulingOptions};

    use agenix_protocol::documents::Quantities;
    use agenix_rules::capability::Needs;

    use super::{decode, encode};

    #[test]
    fn options_of_an_action_keep_their_stored_form_without_scheduling() {
        let options = ActionOptions { open: true, ..ActionOptions::default() };
        let stored = encode(&options).unwrap();
        assert_eq!(stored, [0x93, 0xc0, 0xc0, 0xc3], "run_at, delay_ms and open");
        assert_eq!(decode::<ActionOptions>(&stored).unwrap(), options);
        let scheduling =
            SchedulingOptions { rate: Some("3/10s".parse().unwrap()), ..SchedulingOptions::default() };
        let bounded = ActionOptions { scheduling, ..options };
        assert_eq!(decode::<ActionOptions>(&encode(&bounded).unwrap()).unwrap(), bounded);
    }

    #[test]
    fn needs_keep_their_stored_form_without_quantities_and_share() {
        let needs = Needs { tools: vec!["a".into()], ..Needs::default() };
        assert_eq!(encode(&needs).unwrap(), [0x93, 0x91, 0xa1, b'a', 0x90, 0x80], "tools, tags and labels");
        let limited = Needs { limit: Some("k".into()), ..needs.clone() };
        assert_eq!(encode(&limited).unwrap(), [0x94, 0x91, 0xa1, b'a', 0x90, 0x80, 0xa1, b'k']);
        let charged = Needs { budget: Some("b".into()), ..needs.clone() };
        assert_eq!(encode(&charged).unwrap(), [0x95, 0x91, 0xa1, b'a', 0x90, 0x80, 0xc0, 0xa1, b'b']);
        let mut resources = Quantities::default();
        resources.set("cpus", 150);
        resources.set("gpus", 2);
        let with = Needs { resources: Some(Box::new(resources)), ..needs.clone() };
        let stored = encode(&with).unwrap();
        assert_eq!(stored[..9], [0x96, 0x91, 0xa1, b'a', 0x90, 0x80, 0xc0, 0xc0, 0x82], "a map of two");
        let shared = Needs { share: Some("s".into()), ..needs.clone() };
        let last = [0xc0, 0xc0, 0xc0, 0xa1, b's'];
        assert!(encode(&shared).unwrap().ends_with(&last), "the share is the last field");
        for needs in [needs, limited, charged, with, shared] {
            assert_eq!(decode::<Needs>(&encode(&needs).unwrap()).unwrap(), needs);
        }
    }
}
