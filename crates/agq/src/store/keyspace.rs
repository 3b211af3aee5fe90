//! The keys of users: strings, lists and sorted sets, as Redis has them. Every write is durable when it is answered.

use bytes::Bytes;

use super::{Answer, Ruled};

/// Strings, lists and sorted sets. A key of another type is refused with [`agenix_rules::rejection::Rejection::WrongType`].
pub(crate) trait Keyspace: Send + Sync + 'static {
    /// Sets a string, whatever was there.
    fn set(&self, key: Bytes, value: Bytes) -> Answer<()>;
    /// Reads a string.
    fn get(&self, key: Bytes) -> Answer<Ruled<Option<Bytes>>>;
    /// Removes keys of any type; how many there were.
    fn del(&self, keys: Vec<Bytes>) -> Answer<usize>;
    /// How many of the keys are there; a key named twice counts twice.
    fn exists(&self, keys: Vec<Bytes>) -> Answer<usize>;
    /// Puts values at the head of a list, one after the other; its new length.
    fn push_head(&self, key: Bytes, values: Vec<Bytes>) -> Answer<Ruled<usize>>;
    /// Puts a value back at the tail, where it was taken from.
    fn push_tail(&self, key: Bytes, value: Bytes) -> Answer<Ruled<usize>>;
    /// Takes the tail of a list.
    fn pop_tail(&self, key: Bytes) -> Answer<Ruled<Option<Bytes>>>;
    /// A list's length.
    fn list_length(&self, key: Bytes) -> Answer<Ruled<usize>>;
    /// Adds a member to a sorted set, or moves it; whether it is new.
    fn add_scored(&self, key: Bytes, score: f64, member: Bytes) -> Answer<Ruled<bool>>;
    /// Members with `min` <= score <= `max`, by score, then by name.
    fn range_by_score(&self, key: Bytes, min: f64, max: f64) -> Answer<Ruled<Vec<Bytes>>>;
}
