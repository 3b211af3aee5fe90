//! Commands on keys of users, as in Redis 7 (RESP spec §5.2).

mod encode;
mod parse;
mod table;

use std::ops::Bound;

use bytes::Bytes;

pub use self::parse::integer_of;
pub(super) use self::table::KEY_COMMANDS;
use super::BlockingWait;
use crate::time::Timestamp;

/// Command on keys.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "docs/protocol/keys.md describes each command and its arguments")]
pub enum KeyCommand {
    Get { key: Bytes },
    Set { key: Bytes, value: Bytes, options: SetOptions },
    Add { key: Bytes, by: i64 },
    MGet { keys: Vec<Bytes> },
    MSet { pairs: Vec<[Bytes; 2]> },
    Del { keys: Vec<Bytes> },
    Exists { keys: Vec<Bytes> },
    Expire { key: Bytes, after_ms: i64, only: Conditions },
    Ttl { key: Bytes },
    PTtl { key: Bytes },
    Persist { key: Bytes },
    Type { key: Bytes },
    Keys { pattern: Bytes },
    Scan { cursor: u64, pattern: Option<Bytes>, count: usize, kind: Option<Bytes> },
    DbSize,
    Push { key: Bytes, values: Vec<Bytes>, to: ListEnd },
    Pop { key: Bytes, from: ListEnd, count: Option<usize> },
    LLen { key: Bytes },
    LRange { key: Bytes, start: i64, stop: i64 },
    LRem { key: Bytes, count: i64, value: Bytes },
    LMove { key: Bytes, from: ListEnd, to: (Bytes, ListEnd) },
    ZAdd { key: Bytes, options: ZAddOptions, members: Vec<(f64, Bytes)> },
    ZRange { key: Bytes, span: Span, is_reversed: bool, with_scores: bool },
    ZRem { key: Bytes, members: Vec<Bytes> },
    ZCard { key: Bytes },
    ZScore { key: Bytes, member: Bytes },
    ZPopMin { key: Bytes, count: Option<usize> },
    SMembers { key: Bytes },
    SIsMember { key: Bytes, member: Bytes },
    HGetAll { key: Bytes },
    HGet { key: Bytes, field: Bytes },
}

/// End of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListEnd {
    /// End of LPUSH and LPOP.
    Head,
    /// End of RPUSH and RPOP.
    Tail,
}

/// BRPOP, BLPOP or BLMOVE: a pop that blocks while its lists are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockingPop {
    /// Keys in the order in which they are tried, at least one. BLMOVE has one.
    pub keys: Vec<Bytes>,
    /// End of the list from which the element is removed: the tail for BRPOP, the head for BLPOP.
    pub from: ListEnd,
    /// Destination of BLMOVE: a list and one of its ends. The reply of BLMOVE is the bare element.
    pub to: Option<(Bytes, ListEnd)>,
    /// Timeout.
    pub timeout: BlockingWait,
}

/// Conditions of a write. SET supports `nx` and `xx`, EXPIRE and ZADD support all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conditions {
    /// The write needs a missing value.
    pub nx: bool,
    /// The write needs an existing value.
    pub xx: bool,
    /// The new value must be greater.
    pub gt: bool,
    /// The new value must be less.
    pub lt: bool,
}

/// Options of SET.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetOptions {
    /// NX, XX.
    pub only: Conditions,
    /// GET: the reply is the previous value.
    pub returns_old: bool,
    /// Expiry of the key.
    pub expiry: Expiry,
}

/// Expiry of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// The key does not expire.
    #[default]
    Never,
    /// The key keeps its expiry (KEEPTTL).
    Kept,
    /// Milliseconds until the key expires (EX, PX).
    AfterMs(u64),
    /// Time at which the key expires (EXAT, PXAT).
    At(Timestamp),
}

/// Options of ZADD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZAddOptions {
    /// NX, XX, GT, LT.
    pub only: Conditions,
    /// CH: the reply counts members with a changed score, too.
    pub counts_changed: bool,
    /// INCR: the score is added to the current one, and the reply is the sum.
    pub is_increment: bool,
}

/// Range of a sorted set.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Span {
    /// Range by rank, both ends included. Negative ranks count from the end.
    Ranks { start: i64, stop: i64 },
    /// Range by score, of which `skip` members are skipped and at most `take` are returned.
    Scores { min: Bound<f64>, max: Bound<f64>, skip: usize, take: usize },
}

impl KeyCommand {
    /// Returns the keys of the command.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let (mut few, mut many, mut pairs): ([Option<&Bytes>; 2], &[Bytes], &[[Bytes; 2]]) =
            ([None; 2], &[], &[]);
        match self {
            Self::Keys { .. } | Self::Scan { .. } | Self::DbSize => {}
            Self::MGet { keys } | Self::Del { keys } | Self::Exists { keys } => many = keys,
            Self::MSet { pairs: all } => pairs = all,
            Self::LMove { key, to: (target, _), .. } => few = [Some(key), Some(target)],
            Self::Get { key }
            | Self::Set { key, .. }
            | Self::Add { key, .. }
            | Self::Expire { key, .. }
            | Self::Ttl { key }
            | Self::PTtl { key }
            | Self::Persist { key }
            | Self::Type { key }
            | Self::Push { key, .. }
            | Self::Pop { key, .. }
            | Self::LLen { key }
            | Self::LRange { key, .. }
            | Self::LRem { key, .. }
            | Self::ZAdd { key, .. }
            | Self::ZRange { key, .. }
            | Self::ZRem { key, .. }
            | Self::ZCard { key }
            | Self::ZScore { key, .. }
            | Self::ZPopMin { key, .. }
            | Self::SMembers { key }
            | Self::SIsMember { key, .. }
            | Self::HGetAll { key }
            | Self::HGet { key, .. } => few = [Some(key), None],
        }
        few.into_iter().flatten().chain(many).chain(pairs.iter().map(|[key, _]| key))
    }

    /// Returns the names in the command: its keys, and the pattern of KEYS and SCAN.
    pub fn names(&self) -> impl Iterator<Item = &Bytes> {
        let pattern = match self {
            Self::Keys { pattern } | Self::Scan { pattern: Some(pattern), .. } => Some(pattern),
            _ => None,
        };
        pattern.into_iter().chain(self.keys())
    }

    /// Returns the number of bytes of the keys, values and members in the command.
    pub fn byte_len(&self) -> usize {
        let values: usize = match self {
            Self::Set { value, .. } | Self::LRem { value, .. } => value.len(),
            Self::MSet { pairs } => pairs.iter().map(|[_, value]| value.len()).sum(),
            Self::Push { values, .. } => values.iter().map(Bytes::len).sum(),
            Self::ZAdd { members, .. } => members.iter().map(|(_, member)| member.len()).sum(),
            Self::ZRem { members, .. } => members.iter().map(Bytes::len).sum(),
            Self::ZScore { member, .. } | Self::SIsMember { member, .. } => member.len(),
            _ => 0,
        };
        values + self.keys().map(Bytes::len).sum::<usize>()
    }

    /// Returns true if the command may change data.
    pub fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Set { .. }
                | Self::Add { .. }
                | Self::MSet { .. }
                | Self::Del { .. }
                | Self::Expire { .. }
                | Self::Persist { .. }
                | Self::Push { .. }
                | Self::Pop { .. }
                | Self::LRem { .. }
                | Self::LMove { .. }
                | Self::ZAdd { .. }
                | Self::ZRem { .. }
                | Self::ZPopMin { .. }
        )
    }
}

#[cfg(test)]
mod tests;
