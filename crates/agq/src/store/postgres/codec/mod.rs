//! Encoding of records: MessagePack with fields by position, as in redb.

pub(crate) mod prefix;

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Error, Result, Row, postgres::PgRow};
use tracing::error;

use crate::store::postgres::codec::prefix::Prefix;

pub(super) fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>> {
    rmp_serde::to_vec(record).map_err(|error| Error::Encode(Box::new(error)))
}

/// Reads a record. Ignores fields that a later version may have appended, also nested ones.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let mut from = rmp_serde::Deserializer::from_read_ref(bytes);
    T::deserialize(Prefix(&mut from)).map_err(|error| Error::Decode(Box::new(error)))
}

/// Decodes the records in the first column of `rows`. Skips an unreadable record and logs an error,
/// so that the other records are still returned.
pub(super) fn readable<T: DeserializeOwned>(rows: &[PgRow]) -> Vec<T> {
    rows.iter().filter_map(|row| or_skip(row.try_get(0).and_then(decode))).collect()
}

/// Returns the record, or `None` if it is unreadable, which is logged once in ten seconds.
pub(super) fn or_skip<T>(read: Result<T>) -> Option<T> {
    match read {
        Ok(record) => Some(record),
        Err(error) => {
            if LAST_LOGGED.is_due() {
                error!(
                    %error,
                    "a {} in the database cannot be read and is skipped; a newer agq may have written it",
                    kind_of::<T>()
                );
            }
            None
        }
    }
}

static LAST_LOGGED: LogRateLimit = LogRateLimit(Mutex::new(None));

/// Rate limit of a log message about an error that recurs.
struct LogRateLimit(Mutex<Option<Instant>>);

impl LogRateLimit {
    fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| at.elapsed() > Duration::from_secs(10));
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

fn kind_of<T>() -> &'static str {
    std::any::type_name::<T>().rsplit("::").next().unwrap_or("record")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use super::{decode, encode};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Old {
        id: String,
        #[serde(default)]
        times: Option<u64>,
    }

    #[derive(Serialize)]
    struct New {
        id: String,
        times: Option<u64>,
        labels: Vec<Vec<String>>,
    }

    #[test]
    fn decode_ignores_fields_that_a_later_version_appended() {
        let new = New { id: "a".into(), times: Some(7), labels: vec![vec!["x".into()], vec![]] };
        let old = decode::<Old>(&encode(&new).unwrap()).unwrap();
        assert_eq!(old, Old { id: "a".into(), times: Some(7) });
    }

    #[test]
    fn decode_ignores_fields_that_a_later_version_appended_to_nested_records() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        enum State<R> {
            Done,
            Held(R),
            Waits { record: R, at: u64 },
            Both(R, u8),
        }
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Wrapped<R>(R);
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Outer<R> {
            present: Option<Box<R>>,
            absent: Option<R>,
            list: Vec<(u8, R)>,
            map: BTreeMap<String, R>,
            states: Vec<State<R>>,
            wrapped: Wrapped<R>,
            last: String,
        }
        fn outer<R>(record: impl Fn() -> R) -> Outer<R> {
            Outer {
                present: Some(Box::new(record())),
                absent: None,
                list: vec![(1, record()), (2, record())],
                map: [("a".into(), record()), ("b".into(), record())].into(),
                states: vec![
                    State::Done,
                    State::Held(record()),
                    State::Waits { record: record(), at: 7 },
                    State::Both(record(), 8),
                ],
                wrapped: Wrapped(record()),
                last: "end".into(),
            }
        }
        let old = || Old { id: "a".into(), times: Some(7) };
        let new = || New { id: "a".into(), times: Some(7), labels: vec![vec!["x".into()], vec![]] };
        assert_eq!(decode::<Outer<Old>>(&encode(&outer(new)).unwrap()).unwrap(), outer(old));
        assert_eq!(decode::<Outer<Old>>(&encode(&outer(old)).unwrap()).unwrap(), outer(old));
    }

    #[test]
    fn decode_defaults_fields_that_an_earlier_version_did_not_have() {
        assert_eq!(decode::<Old>(&encode(&("a",)).unwrap()).unwrap(), Old { id: "a".into(), times: None });
    }

    #[test]
    fn decode_refuses_invalid_records() {
        for bytes in [&b""[..], b"\x90", b"\x92\xa1a", b"\xc3"] {
            assert!(decode::<Old>(bytes).is_err(), "{bytes:?}");
        }
        // This field has another type than before.
        assert!(decode::<Old>(&encode(&("a", "b")).unwrap()).is_err());
    }
}
