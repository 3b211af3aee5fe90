//! The commands on keys.

use bytes::Bytes;

use super::{Request, RequestError, Wait, arguments::score_of};

/// The commands that any Redis has, on keys.
pub(super) fn keyspace(name: &str, args: &[Bytes], rest: &[Bytes]) -> Result<Request, RequestError> {
    let usage = |syntax: &str| RequestError::Arguments(format!("use {name} {syntax}"));
    Ok(match (name, rest) {
        ("SET", [key, value]) => Request::Set { key: key.clone(), value: value.clone() },
        ("SET", _) => return Err(usage("<key> <value>")),
        ("GET", [key]) => Request::Get { key: key.clone() },
        ("GET", _) => return Err(usage("<key>")),
        ("DEL", keys @ [_, ..]) => Request::Del { keys: keys.to_vec() },
        ("EXISTS", keys @ [_, ..]) => Request::Exists { keys: keys.to_vec() },
        ("DEL" | "EXISTS", []) => return Err(usage("<key> [key ...]")),
        ("LPUSH", [key, values @ ..]) if !values.is_empty() => {
            Request::LPush { key: key.clone(), values: values.to_vec() }
        }
        ("LPUSH", _) => return Err(usage("<key> <value> [value ...]")),
        ("RPOP", [key]) => Request::RPop { key: key.clone() },
        ("LLEN", [key]) => Request::LLen { key: key.clone() },
        ("RPOP" | "LLEN", _) => return Err(usage("<key>")),
        ("BRPOP", [key, timeout]) => Request::BRPop { key: key.clone(), timeout: Wait::parse(timeout)? },
        ("BRPOP", _) => return Err(usage("<key> <timeout_seconds>")),
        ("ZADD", [key, score, member]) => {
            Request::ZAdd { key: key.clone(), score: score_of(score)?, member: member.clone() }
        }
        ("ZADD", _) => return Err(usage("<key> <score> <member>")),
        ("ZRANGEBYSCORE", [key, min, max]) => {
            Request::ZRangeByScore { key: key.clone(), min: score_of(min)?, max: score_of(max)? }
        }
        ("ZRANGEBYSCORE", _) => return Err(usage("<key> <min_score> <max_score>")),
        _ => {
            let shown = args.first().map(|name| String::from_utf8_lossy(name).chars().take(64).collect());
            return Err(RequestError::Unknown(shown.unwrap_or_default()));
        }
    })
}
