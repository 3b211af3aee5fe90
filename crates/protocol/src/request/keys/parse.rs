//! Parsers of the commands on keys. A wrong form is [`RequestError::Syntax`]. Other refusals have
//! the text of Redis.

use std::ops::Bound;

use bytes::Bytes;

use super::{BlockingPop, Conditions, Expiry, KeyCommand, ListEnd, SetOptions, Span, ZAddOptions};
use crate::{
    request::{BlockingWait, Request, RequestError, arguments::check_queues},
    time::Timestamp,
};

type Parsed = Result<Request, RequestError>;

/// Longest time to live in milliseconds. Added to any current time below 2^47, it fits an `i64`.
const MAX_AFTER_MS: i64 = i64::MAX - (1 << 47);
/// Default number of keys that SCAN examines.
const DEFAULT_SCAN: usize = 10;

const SET_EXPIRY: RequestError = RequestError::Refused("invalid expire time in 'set' command");
const NOT_AN_INTEGER: RequestError = RequestError::Refused("value is not an integer or out of range");
const NOT_POSITIVE: RequestError = RequestError::Refused("value is out of range, must be positive");
const NO_RANGE: RequestError = RequestError::Refused("min or max is not a float");

/// Parses an integer in the exact form of Redis: no sign but `-`, no leading zeros, no blanks.
pub fn integer_of(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

fn integer(arg: &Bytes) -> Result<i64, RequestError> {
    integer_of(arg).ok_or(NOT_AN_INTEGER)
}

fn positive(arg: &Bytes) -> Result<usize, RequestError> {
    integer_of(arg).and_then(|number| usize::try_from(number).ok()).ok_or(NOT_POSITIVE)
}

fn float_of(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // Rust parses a number that is too large as infinite, but only the words for infinity mean
    // infinity.
    let is_word = || text.iter().any(u8::is_ascii_alphabetic) && !text.iter().any(u8::is_ascii_digit);
    Some(number).filter(|number| !number.is_nan() && (number.is_finite() || is_word()))
}

pub(super) fn key(command: KeyCommand) -> Parsed {
    Ok(Request::Key(command))
}

/// Parses `SET <key> <value> [NX|XX] [GET] [EX <s>|PX <ms>|EXAT <s>|PXAT <ms>|KEEPTTL]`.
pub(super) fn set(args: &[Bytes]) -> Parsed {
    let mut options = SetOptions::default();
    let mut rest = args[2..].iter();
    while let Some(word) = rest.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"NX" if !options.only.xx => options.only.nx = true,
            b"XX" if !options.only.nx => options.only.xx = true,
            b"GET" => options.returns_old = true,
            b"KEEPTTL" if options.expiry == Expiry::Never => options.expiry = Expiry::Kept,
            unit @ (b"EX" | b"PX" | b"EXAT" | b"PXAT") if options.expiry == Expiry::Never => {
                let amount = integer(rest.next().ok_or(RequestError::Syntax)?)?;
                options.expiry = expiry(unit, amount).ok_or(SET_EXPIRY)?;
            }
            _ => return Err(RequestError::Syntax),
        }
    }
    key(KeyCommand::Set { key: args[0].clone(), value: args[1].clone(), options })
}

fn expiry(unit: &[u8], amount: i64) -> Option<Expiry> {
    let ms = if unit.starts_with(b"EX") { amount.checked_mul(1000)? } else { amount };
    if !(1..=MAX_AFTER_MS).contains(&ms) {
        return None;
    }
    let ms = ms.cast_unsigned();
    Some(if unit.ends_with(b"AT") { Expiry::At(Timestamp(ms)) } else { Expiry::AfterMs(ms) })
}

/// Parses INCRBY and DECRBY.
pub(super) fn add(args: &[Bytes], sign: i64) -> Parsed {
    let by = integer(&args[1])?.checked_mul(sign).ok_or(RequestError::Refused("decrement would overflow"))?;
    key(KeyCommand::Add { key: args[0].clone(), by })
}

pub(super) fn mset(args: &[Bytes]) -> Parsed {
    let (pairs, []) = args.as_chunks::<2>() else { return Err(RequestError::Syntax) };
    key(KeyCommand::MSet { pairs: pairs.to_vec() })
}

/// Parses `EXPIRE <key> <seconds> [NX|XX|GT|LT ...]`, and PEXPIRE.
pub(super) fn expire(args: &[Bytes], unit_ms: i64, refused: &'static str) -> Parsed {
    let mut only = Conditions::default();
    for word in &args[2..] {
        if !condition(word, &mut only) {
            return Err(RequestError::Syntax);
        }
    }
    if only.nx && (only.xx || only.gt || only.lt) {
        let text = "NX and XX, GT or LT options at the same time are not compatible";
        return Err(RequestError::Refused(text));
    }
    if only.gt && only.lt {
        return Err(RequestError::Refused("GT and LT options at the same time are not compatible"));
    }
    let after_ms = integer(&args[1])?.checked_mul(unit_ms).filter(|ms| *ms <= MAX_AFTER_MS);
    let after_ms = after_ms.ok_or(RequestError::Refused(refused))?;
    key(KeyCommand::Expire { key: args[0].clone(), after_ms, only })
}

/// Stores the condition of `word` in `only`. Returns true if `word` is a condition.
fn condition(word: &Bytes, only: &mut Conditions) -> bool {
    match word.to_ascii_uppercase().as_slice() {
        b"NX" => only.nx = true,
        b"XX" => only.xx = true,
        b"GT" => only.gt = true,
        b"LT" => only.lt = true,
        _ => return false,
    }
    true
}

/// Parses `SCAN <cursor> [MATCH <pattern>] [COUNT <n>] [TYPE <type>]`.
pub(super) fn scan(args: &[Bytes]) -> Parsed {
    let cursor: Option<u64> = std::str::from_utf8(&args[0]).ok().and_then(|text| text.parse().ok());
    let cursor = cursor.ok_or(RequestError::Refused("invalid cursor"))?;
    let (options, []) = args[1..].as_chunks::<2>() else { return Err(RequestError::Syntax) };
    let (mut pattern, mut count, mut kind) = (None, DEFAULT_SCAN, None);
    for [option, value] in options {
        match option.to_ascii_uppercase().as_slice() {
            b"MATCH" => pattern = Some(value.clone()),
            b"COUNT" => match integer(value)? {
                ..1 => return Err(RequestError::Syntax),
                most => count = usize::try_from(most).unwrap_or(usize::MAX),
            },
            b"TYPE" => kind = Some(value.clone()),
            _ => return Err(RequestError::Syntax),
        }
    }
    key(KeyCommand::Scan { cursor, pattern, count, kind })
}

pub(super) fn pop(args: &[Bytes], from: ListEnd) -> Parsed {
    key(KeyCommand::Pop { key: args[0].clone(), from, count: count(&args[1..])? })
}

pub(super) fn zpopmin(args: &[Bytes]) -> Parsed {
    key(KeyCommand::ZPopMin { key: args[0].clone(), count: count(&args[1..])? })
}

fn count(args: &[Bytes]) -> Result<Option<usize>, RequestError> {
    match args {
        [] => Ok(None),
        [count] => positive(count).map(Some),
        _ => Err(RequestError::Syntax),
    }
}

pub(super) fn lrange(args: &[Bytes]) -> Parsed {
    key(KeyCommand::LRange { key: args[0].clone(), start: integer(&args[1])?, stop: integer(&args[2])? })
}

pub(super) fn lrem(args: &[Bytes]) -> Parsed {
    key(KeyCommand::LRem { key: args[0].clone(), count: integer(&args[1])?, value: args[2].clone() })
}

/// Parses `LMOVE <source> <destination> LEFT|RIGHT LEFT|RIGHT`.
pub(super) fn lmove(args: &[Bytes]) -> Parsed {
    let (from, to) = (end(&args[2])?, (args[1].clone(), end(&args[3])?));
    key(KeyCommand::LMove { key: args[0].clone(), from, to })
}

fn end(word: &Bytes) -> Result<ListEnd, RequestError> {
    match word.to_ascii_uppercase().as_slice() {
        b"LEFT" => Ok(ListEnd::Head),
        b"RIGHT" => Ok(ListEnd::Tail),
        _ => Err(RequestError::Syntax),
    }
}

/// Parses BLMOVE: the arguments of LMOVE and a timeout.
pub(super) fn blmove(args: &[Bytes]) -> Parsed {
    let (from, to) = (end(&args[2])?, Some((args[1].clone(), end(&args[3])?)));
    let timeout = BlockingWait::parse(&args[4])?;
    Ok(Request::BlockingPop(BlockingPop { keys: vec![args[0].clone()], from, to, timeout }))
}

/// Parses BRPOP and BLPOP.
pub(super) fn blocking_pop(args: &[Bytes], from: ListEnd) -> Parsed {
    let Some((timeout, keys @ [_, ..])) = args.split_last() else { return Err(RequestError::Syntax) };
    let timeout = BlockingWait::parse(timeout)?;
    check_queues(keys.iter().filter(|key| key.starts_with(b"queue:")).count())?;
    Ok(Request::BlockingPop(BlockingPop { keys: keys.to_vec(), from, to: None, timeout }))
}

/// Parses `ZADD <key> [NX|XX] [GT|LT] [CH] [INCR] <score> <member> [<score> <member> ...]`.
pub(super) fn zadd(args: &[Bytes]) -> Parsed {
    let mut options = ZAddOptions::default();
    let mut rest = &args[1..];
    while let [word, after @ ..] = rest {
        match word.to_ascii_uppercase().as_slice() {
            b"CH" => options.counts_changed = true,
            b"INCR" => options.is_increment = true,
            _ => {
                if !condition(word, &mut options.only) {
                    break;
                }
            }
        }
        rest = after;
    }
    let (pairs @ [_, ..], []) = rest.as_chunks::<2>() else { return Err(RequestError::Syntax) };
    let Conditions { nx, xx, gt, lt } = options.only;
    if nx && xx {
        return Err(RequestError::Refused("XX and NX options at the same time are not compatible"));
    }
    if (gt && (nx || lt)) || (lt && nx) {
        return Err(RequestError::Refused("GT, LT, and/or NX options at the same time are not compatible"));
    }
    if options.is_increment && pairs.len() > 1 {
        return Err(RequestError::Refused("INCR option supports a single increment-element pair"));
    }
    let wrong = RequestError::Refused("value is not a valid float");
    let scored = |[score, member]: &[Bytes; 2]| Some((float_of(score)?, member.clone()));
    let members = pairs.iter().map(scored).collect::<Option<_>>().ok_or(wrong)?;
    key(KeyCommand::ZAdd { key: args[0].clone(), options, members })
}

/// Parses `ZRANGE <key> <start> <stop> [BYSCORE] [REV] [LIMIT <offset> <count>] [WITHSCORES]`.
/// ZRANGEBYSCORE always is by score, and has only LIMIT and WITHSCORES.
pub(super) fn zrange(args: &[Bytes], is_only_by_score: bool) -> Parsed {
    let (mut by_score, mut is_reversed, mut with_scores, mut limit) = (is_only_by_score, false, false, None);
    let mut rest = args[3..].iter();
    while let Some(word) = rest.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"WITHSCORES" => with_scores = true,
            b"LIMIT" => {
                let (Some(offset), Some(count)) = (rest.next(), rest.next()) else {
                    return Err(RequestError::Syntax);
                };
                limit = Some((integer(offset)?, integer(count)?));
            }
            b"BYSCORE" if !is_only_by_score => by_score = true,
            b"REV" if !is_only_by_score => is_reversed = true,
            b"BYLEX" if !is_only_by_score => {
                return Err(RequestError::Refused("BYLEX is not supported: use BYSCORE or indexes"));
            }
            _ => return Err(RequestError::Syntax),
        }
    }
    let span = if by_score {
        let (min, max) = if is_reversed { (&args[2], &args[1]) } else { (&args[1], &args[2]) };
        let (skip, take) = limit.map_or((0, usize::MAX), part);
        Span::Scores { min: bound(min)?, max: bound(max)?, skip, take }
    } else if limit.is_some() {
        let text = "syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
        return Err(RequestError::Refused(text));
    } else {
        Span::Ranks { start: integer(&args[1])?, stop: integer(&args[2])? }
    };
    key(KeyCommand::ZRange { key: args[0].clone(), span, is_reversed, with_scores })
}

/// Converts LIMIT like Redis: nothing for a negative offset, no bound for a negative count.
fn part((offset, count): (i64, i64)) -> (usize, usize) {
    match usize::try_from(offset) {
        Ok(skip) => (skip, usize::try_from(count).unwrap_or(usize::MAX)),
        Err(_negative) => (0, 0),
    }
}

/// Parses a bound: `1.5`, `(1.5` for an exclusive bound, `-inf`, `+inf`.
fn bound(arg: &Bytes) -> Result<Bound<f64>, RequestError> {
    let bound = match &arg[..] {
        [b'(', score @ ..] => float_of(score).map(Bound::Excluded),
        score => float_of(score).map(Bound::Included),
    };
    bound.ok_or(NO_RANGE)
}
