//! The commands on users' keys, as Redis 7 has them (RESP spec §5.2): what they ask for, not how it is done.

mod encode;
mod parse;
mod table;

use std::ops::Bound;

use bytes::Bytes;

pub use self::parse::integer_of;
pub(super) use self::table::KEY_COMMANDS;
use super::BlockingWait;
use crate::time::Timestamp;

/// A command on keys.
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

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListEnd {
    /// Where LPUSH and LPOP are at work.
    Head,
    /// Where RPUSH and RPOP are at work.
    Tail,
}

/// BRPOP, BLPOP or BLMOVE: a pop that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockingPop {
    /// Where it looks, in this order; never empty. BLMOVE has one.
    pub keys: Vec<Bytes>,
    /// The end that it takes from: the tail for BRPOP, the head for BLPOP.
    pub from: ListEnd,
    /// Only BLMOVE: the list, and the end of it, that gets the element. Its reply is the bare element.
    pub to: Option<(Bytes, ListEnd)>,
    /// How long it waits.
    pub timeout: BlockingWait,
}

/// Under which conditions a write happens: SET knows the first two, EXPIRE and ZADD all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conditions {
    /// Only where there is nothing yet.
    pub nx: bool,
    /// Only where there is something.
    pub xx: bool,
    /// Only to something greater.
    pub gt: bool,
    /// Only to something less.
    pub lt: bool,
}

/// What SET is told besides key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetOptions {
    /// NX, XX.
    pub only: Conditions,
    /// GET: the reply is what was there.
    pub returns_old: bool,
    /// Until when the key is there.
    pub expiry: Expiry,
}

/// Until when a key is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// For good.
    #[default]
    Never,
    /// As long as it would have been (KEEPTTL).
    Kept,
    /// For so many milliseconds (EX, PX).
    AfterMs(u64),
    /// Until then (EXAT, PXAT).
    At(Timestamp),
}

/// What ZADD is told besides scores and members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZAddOptions {
    /// NX, XX, GT, LT.
    pub only: Conditions,
    /// CH: members that got another score count too.
    pub counts_changed: bool,
    /// INCR: the score is added to the one there is; the reply is the sum.
    pub is_increment: bool,
}

/// Which members of a sorted set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Span {
    /// By place, both included; negative ones count from the end.
    Ranks {
        /// The first.
        start: i64,
        /// The last.
        stop: i64,
    },
    /// By score.
    Scores {
        /// The least score.
        min: Bound<f64>,
        /// The greatest score.
        max: Bound<f64>,
        /// How many of them are left out at the beginning.
        skip: usize,
        /// How many there are at most.
        take: usize,
    },
}

impl KeyCommand {
    /// The keys that it names.
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

    /// The names that it gives: of keys, or how those begin that it lists.
    pub fn names(&self) -> impl Iterator<Item = &Bytes> {
        let pattern = match self {
            Self::Keys { pattern } | Self::Scan { pattern: Some(pattern), .. } => Some(pattern),
            _ => None,
        };
        pattern.into_iter().chain(self.keys())
    }

    /// Whether it may change something.
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
