//! The users' keys in a script, by the names that Redis has for what is done.

use std::error::Error;

use bytes::Bytes;
use goldenscript::ArgumentConsumer;

use super::commands::{Lines, ruled, show};
use crate::store::Store;

pub(super) fn run(
    store: &dyn Store,
    name: &str,
    args: &mut ArgumentConsumer<'_>,
) -> Result<Option<Lines>, Box<dyn Error>> {
    const NAMES: [&str; 10] =
        ["set", "get", "del", "exists", "lpush", "rpush", "rpop", "llen", "zadd", "zrangebyscore"];
    if !NAMES.contains(&name) {
        return Ok(None);
    }
    let words: Vec<Bytes> =
        std::iter::from_fn(|| args.next_pos()).map(|arg| Bytes::from(arg.to_owned())).collect();
    let word = |at: usize| words.get(at).cloned().ok_or("an argument is missing");
    let score = |at: usize| Ok::<f64, Box<dyn Error>>(std::str::from_utf8(&word(at)?)?.parse()?);
    let text = |value: Bytes| String::from_utf8_lossy(&value).into_owned();
    let value = move |value: Option<Bytes>| vec![value.map_or("none".into(), text)];
    let number = |number: usize| vec![number.to_string()];
    Ok(Some(match name {
        "set" => show(store.set(word(0)?, word(1)?), |()| vec!["ok".into()]),
        "get" => show(store.get(word(0)?), move |answer| ruled(answer, value)),
        "del" => show(store.del(words), number),
        "exists" => show(store.exists(words), number),
        "lpush" => show(store.push_head(word(0)?, words[1..].to_vec()), move |answer| ruled(answer, number)),
        "rpush" => show(store.push_tail(word(0)?, word(1)?), move |answer| ruled(answer, number)),
        "rpop" => show(store.pop_tail(word(0)?), move |answer| ruled(answer, value)),
        "llen" => show(store.list_length(word(0)?), move |answer| ruled(answer, number)),
        "zadd" => show(store.add_scored(word(0)?, score(1)?, word(2)?), |answer| {
            ruled(answer, |new| vec![new.to_string()])
        }),
        _ => show(store.range_by_score(word(0)?, score(1)?, score(2)?), move |answer| {
            ruled(answer, |members| members.into_iter().map(text).collect())
        }),
    }))
}
