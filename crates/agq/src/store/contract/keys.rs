//! Commands of a script on users' keys: whole commands of Redis, with `at=5` for the time. Also the
//! command for expired keys.

use agenix_protocol::{
    request::{Request, RequestError},
    resp::Reply,
};
use bytes::Bytes;

use super::commands::{Args, CommandLines, at, show};
use crate::{
    redis,
    store::{Store, change},
};

pub(super) fn run(store: &dyn Store, name: &str, args: &mut Args<'_>) -> CommandLines {
    let mut words = vec![Bytes::from(name.to_owned())];
    let is_unknown = matches!(Request::parse(&words), Err(RequestError::Unknown(_)));
    if is_unknown && name != "overdue" {
        return Ok(None);
    }
    let now = at(args)?;
    words.extend(std::iter::from_fn(|| args.next_pos()).map(|arg| Bytes::from(lengthened(arg))));
    if is_unknown {
        return Ok(Some(show(store.overdue_keys(now, 100), |keys| {
            keys.iter().map(|key| text(key)).collect()
        })));
    }
    let command = match Request::parse(&words) {
        Ok((_, Request::Key(command))) => command,
        Ok(_) => return Err(format!("{name} is no command on keys").into()),
        Err(error) => return Err(error.line().into()),
    };
    let bytes = command.byte_len();
    let reply = Box::pin(change(store, bytes, move |all| redis::ruled(redis::apply(all, &command, now))));
    Ok(Some(show(reply, |reply| vec![reply.map_or_else(|refusal| refusal.line(), |reply| shown(&reply))])))
}

/// Prefix of words that stand for long texts: `long-5000-z` is a filler of 5,000 bytes and a `z`.
const LONG: &str = "long-";
/// Minimum number of bytes of filler that is shown as a number.
const SHORTENED: usize = 100;

/// Returns the first bytes of the filler, which is the same everywhere. The filler is pseudorandom,
/// because PostgreSQL compresses what repeats itself, and bounds what an index holds after that.
fn filler(count: usize) -> String {
    let mut random = fastrand::Rng::with_seed(1);
    std::iter::repeat_with(|| random.alphanumeric()).take(count).collect()
}

fn lengthened(word: &str) -> String {
    let parts = word.strip_prefix(LONG).and_then(|rest| rest.split_once('-'));
    let long = parts.and_then(|(count, end)| Some(filler(count.parse().ok()?) + end));
    long.unwrap_or_else(|| word.to_owned())
}

pub(super) fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let same = text.chars().zip(filler(text.len()).chars()).take_while(|(one, other)| one == other).count();
    if same < SHORTENED { text } else { format!("{LONG}{same}-{}", &text[same..]) }
}

/// Formats a reply on one line: texts and numbers as they are, arrays in brackets.
fn shown(reply: &Reply) -> String {
    let all = |items: &[Reply]| items.iter().map(shown).collect::<Vec<_>>().join(" ");
    match reply {
        Reply::Simple(text) | Reply::Error(text) => text.clone(),
        Reply::Integer(number) => number.to_string(),
        Reply::Bulk(bytes) => format!("{:?}", text(bytes)),
        Reply::Nil => "nil".into(),
        Reply::NilArray => "no array".into(),
        Reply::Double(number) => format!("{number:?}"),
        Reply::Array(items) | Reply::Several(items) => format!("[{}]", all(items)),
        Reply::Set(items) | Reply::Push(items) => format!("{{{}}}", all(items)),
        Reply::Map(pairs) => {
            let pair = |(key, value): &(Reply, Reply)| format!("{}: {}", shown(key), shown(value));
            format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        Reply::Scored(members) => {
            let pair = |(member, score): &(Bytes, f64)| format!("{:?}: {score:?}", text(member));
            format!("[{}]", members.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
    }
}
