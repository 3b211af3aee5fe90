//! Encoder of commands on keys: the inverse of the parser.

use std::ops::Bound;

use bytes::Bytes;

use super::{BlockingPop, Conditions, Expiry, KeyCommand, ListEnd, SetOptions, Span, ZAddOptions};

/// Returns the words of a command: its name and its arguments.
fn words<'a>(name: &'static str, args: impl IntoIterator<Item = &'a Bytes>) -> Vec<Bytes> {
    std::iter::once(Bytes::from(name)).chain(args.into_iter().cloned()).collect()
}

fn number(number: impl Copy + ToString) -> Bytes {
    number.to_string().into()
}

fn side(end: ListEnd) -> Bytes {
    Bytes::from(if end == ListEnd::Head { "LEFT" } else { "RIGHT" })
}

/// Returns the words of the set flags.
fn flags<const N: usize>(flags: [(&'static str, bool); N]) -> impl Iterator<Item = Bytes> {
    flags.into_iter().filter(|(_, is_set)| *is_set).map(|(word, _)| Bytes::from(word))
}

impl KeyCommand {
    /// Returns the words of the command. The parser parses them to an equal command.
    pub fn encode(&self) -> Vec<Bytes> {
        match self {
            Self::Get { key } => words("GET", [key]),
            Self::Set { key, value, options } => [words("SET", [key, value]), options.encode()].concat(),
            Self::Add { key, by } => words("INCRBY", [key, &number(*by)]),
            Self::MGet { keys } => words("MGET", keys),
            Self::MSet { pairs } => words("MSET", pairs.iter().flatten()),
            Self::Del { keys } => words("DEL", keys),
            Self::Exists { keys } => words("EXISTS", keys),
            Self::Expire { key, after_ms, only } => {
                [words("PEXPIRE", [key, &number(*after_ms)]), only.encode()].concat()
            }
            Self::Ttl { key } => words("TTL", [key]),
            Self::PTtl { key } => words("PTTL", [key]),
            Self::Persist { key } => words("PERSIST", [key]),
            Self::Type { key } => words("TYPE", [key]),
            Self::Keys { pattern } => words("KEYS", [pattern]),
            Self::Scan { cursor, pattern, count, kind } => {
                let mut args = words("SCAN", [&number(*cursor), &Bytes::from("COUNT"), &number(*count)]);
                args.extend(pattern.iter().flat_map(|pattern| [Bytes::from("MATCH"), pattern.clone()]));
                args.extend(kind.iter().flat_map(|kind| [Bytes::from("TYPE"), kind.clone()]));
                args
            }
            Self::DbSize => words("DBSIZE", []),
            Self::SMembers { key } => words("SMEMBERS", [key]),
            Self::SIsMember { key, member } => words("SISMEMBER", [key, member]),
            Self::HGetAll { key } => words("HGETALL", [key]),
            Self::HGet { key, field } => words("HGET", [key, field]),
            _ => self.encode_list().unwrap_or_else(|| self.encode_sorted_set()),
        }
    }

    fn encode_list(&self) -> Option<Vec<Bytes>> {
        Some(match self {
            Self::Push { key, values, to } => {
                let name = if *to == ListEnd::Head { "LPUSH" } else { "RPUSH" };
                words(name, std::iter::once(key).chain(values))
            }
            Self::Pop { key, from, count } => {
                let name = if *from == ListEnd::Head { "LPOP" } else { "RPOP" };
                words(name, std::iter::once(key).chain(&count.map(number)))
            }
            Self::LLen { key } => words("LLEN", [key]),
            Self::LRange { key, start, stop } => words("LRANGE", [key, &number(*start), &number(*stop)]),
            Self::LRem { key, count, value } => words("LREM", [key, &number(*count), value]),
            Self::LMove { key, from, to: (target, to) } => {
                words("LMOVE", [key, target, &side(*from), &side(*to)])
            }
            _ => return None,
        })
    }

    /// Encodes the commands on sorted sets.
    fn encode_sorted_set(&self) -> Vec<Bytes> {
        match self {
            Self::ZAdd { key, options, members } => {
                let pairs = members.iter().flat_map(|(score, member)| [number(*score), member.clone()]);
                words("ZADD", [key]).into_iter().chain(options.encode()).chain(pairs).collect()
            }
            Self::ZRange { key, span, is_reversed, with_scores } => {
                let mut args = words("ZRANGE", [key]);
                args.extend(span.encode(*is_reversed));
                args.extend(flags([("REV", *is_reversed), ("WITHSCORES", *with_scores)]));
                args
            }
            Self::ZRem { key, members } => words("ZREM", std::iter::once(key).chain(members)),
            Self::ZCard { key } => words("ZCARD", [key]),
            Self::ZScore { key, member } => words("ZSCORE", [key, member]),
            Self::ZPopMin { key, count } => words("ZPOPMIN", std::iter::once(key).chain(&count.map(number))),
            _ => unreachable!("the functions above encode the rest"),
        }
    }
}

impl BlockingPop {
    /// Returns the words of the command. The parser parses them to an equal command.
    pub fn encode(&self) -> Vec<Bytes> {
        let name = match (&self.to, self.from) {
            (Some(_), _) => "BLMOVE",
            (None, ListEnd::Head) => "BLPOP",
            (None, ListEnd::Tail) => "BRPOP",
        };
        let mut args = words(name, &self.keys);
        args.extend(self.to.iter().flat_map(|(key, to)| [key.clone(), side(self.from), side(*to)]));
        args.push(self.timeout.encode());
        args
    }
}

impl Conditions {
    fn encode(self) -> Vec<Bytes> {
        flags([("NX", self.nx), ("XX", self.xx), ("GT", self.gt), ("LT", self.lt)]).collect()
    }
}

impl SetOptions {
    fn encode(self) -> Vec<Bytes> {
        let mut args = self.only.encode();
        args.extend(flags([("GET", self.returns_old)]));
        match self.expiry {
            Expiry::Never => {}
            Expiry::Kept => args.push("KEEPTTL".into()),
            Expiry::AfterMs(ms) => args.extend(["PX".into(), number(ms)]),
            Expiry::At(time) => args.extend(["PXAT".into(), number(time.0)]),
        }
        args
    }
}

impl ZAddOptions {
    fn encode(self) -> Vec<Bytes> {
        let mut args = self.only.encode();
        args.extend(flags([("CH", self.counts_changed), ("INCR", self.is_increment)]));
        args
    }
}

impl Span {
    fn encode(self, is_reversed: bool) -> Vec<Bytes> {
        match self {
            Self::Ranks { start, stop } => vec![number(start), number(stop)],
            Self::Scores { min, max, skip, take } => {
                let (min, max) = (edge(min, "-inf"), edge(max, "inf"));
                let (first, last) = if is_reversed { (max, min) } else { (min, max) };
                // No list has more elements than an `i64` can count.
                let take = i64::try_from(take).map_or_else(|_| number(-1), number);
                vec![first, last, "BYSCORE".into(), "LIMIT".into(), number(skip), take]
            }
        }
    }
}

fn edge(bound: Bound<f64>, unbounded: &'static str) -> Bytes {
    match bound {
        Bound::Included(score) => number(score),
        Bound::Excluded(score) => format!("({score}").into(),
        Bound::Unbounded => Bytes::from(unbounded),
    }
}
