//! Records to bytes and back: MessagePack, as in redb.

use std::{
    marker::PhantomData,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::{
    Deserializer, Serialize,
    de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor},
    forward_to_deserialize_any,
};
use sqlx::{Error, Row, postgres::PgRow};
use tracing::error;

pub(super) fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, Error> {
    rmp_serde::to_vec(record).map_err(|error| Error::Encode(Box::new(error)))
}

/// Reads a record. Ignores fields that a node of a later version may have appended to the record.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let mut from = rmp_serde::Deserializer::from_read_ref(bytes);
    T::deserialize(Prefix(&mut from)).map_err(|error| Error::Decode(Box::new(error)))
}

/// Decodes the records in the first column of `rows`. Passes over an unreadable record and logs an
/// error, so that one bad record keeps nobody from the others.
pub(super) fn readable<T: DeserializeOwned>(rows: &[PgRow]) -> Vec<T> {
    rows.iter().filter_map(|row| or_pass_over(row.try_get(0).and_then(decode))).collect()
}

/// Returns the record. If the record is unreadable, returns `None` and logs the error, at most once
/// in ten seconds.
pub(super) fn or_pass_over<T>(read: Result<T, Error>) -> Option<T> {
    match read {
        Ok(record) => Some(record),
        Err(error) => {
            if LAST_COMPLAINT.is_due() {
                error!(
                    %error,
                    "a {} in the database cannot be read and is passed over; a newer agq may have written it",
                    kind_of::<T>()
                );
            }
            None
        }
    }
}

static LAST_COMPLAINT: Complaint = Complaint(Mutex::new(None));

/// Rate limit of a log message about an error that recurs.
struct Complaint(Mutex<Option<Instant>>);

impl Complaint {
    /// Returns whether the message is due again, and if so records it as logged.
    fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| at.elapsed() > Duration::from_secs(10));
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

/// Returns the name of a type without its path.
fn kind_of<T>() -> &'static str {
    std::any::type_name::<T>().rsplit("::").next().unwrap_or("record")
}

/// Reads a structure from the first elements of an array, and ignores the others.
struct Prefix<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Prefix<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, First(visitor, PhantomData))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct First<'de, V>(V, PhantomData<&'de ()>);

impl<'de, V: Visitor<'de>> Visitor<'de> for First<'de, V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.expecting(formatter)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<V::Value, A::Error> {
        let record = self.0.visit_seq(&mut elements)?;
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
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
    fn fields_that_a_later_version_appended_are_ignored() {
        let new = New { id: "a".into(), times: Some(7), labels: vec![vec!["x".into()], vec![]] };
        let old = decode::<Old>(&encode(&new).unwrap()).unwrap();
        assert_eq!(old, Old { id: "a".into(), times: Some(7) });
    }

    #[test]
    fn fields_that_an_earlier_version_did_not_have_are_their_defaults() {
        assert_eq!(decode::<Old>(&encode(&("a",)).unwrap()).unwrap(), Old { id: "a".into(), times: None });
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bytes in [&b""[..], b"\x90", b"\x92\xa1a", b"\xc3"] {
            assert!(decode::<Old>(bytes).is_err(), "{bytes:?}");
        }
        // This field has another type than before.
        assert!(decode::<Old>(&encode(&("a", "b")).unwrap()).is_err());
    }
}
