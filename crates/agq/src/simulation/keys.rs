//! Model of users' keys: a few Redis commands on a map, with every version since the last one that
//! must not be lost.

use std::collections::{BTreeMap, VecDeque};

use agenix_protocol::resp::Reply;
use bytes::Bytes;
use fastrand::Rng;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum KeyValue {
    Text(String),
    List(VecDeque<String>),
    Scores(BTreeMap<String, i64>),
}

pub(super) type KeysVersion = BTreeMap<&'static str, KeyValue>;

#[derive(Debug, Clone)]
pub(super) enum KeyOperation {
    Set(&'static str, String),
    Increment,
    Push { list: &'static str, left: bool, value: String },
    Pop { list: &'static str, left: bool },
    Move,
    Score(String, i64),
    Unscore(String),
    Delete(&'static str),
}

pub(super) const TEXTS: [&str; 2] = ["t1", "t2"];
pub(super) const LISTS: [&str; 2] = ["l1", "l2"];
pub(super) const COUNTER: &str = "n";
pub(super) const SCORES: &str = "z";

impl KeyOperation {
    /// Returns a random command; `fresh` is a text that was never used.
    pub(super) fn any(rng: &mut Rng, fresh: String) -> Self {
        let (text, list) = (TEXTS[rng.usize(..2)], LISTS[rng.usize(..2)]);
        match rng.u8(..9) {
            0 | 1 => Self::Set(text, fresh),
            2 => Self::Increment,
            3 | 4 => Self::Push { list, left: rng.bool(), value: fresh },
            5 => Self::Pop { list, left: rng.bool() },
            6 => Self::Move,
            7 if rng.bool() => Self::Score(format!("m{}", rng.u8(..3)), rng.i64(-5..5)),
            7 => Self::Unscore(format!("m{}", rng.u8(..3))),
            _ => Self::Delete([text, list, COUNTER, SCORES][rng.usize(..4)]),
        }
    }

    pub(super) fn words(&self) -> Vec<String> {
        let words: Vec<&str> = match self {
            Self::Set(key, value) => vec!["SET", key, value],
            Self::Increment => vec!["INCR", COUNTER],
            Self::Push { list, left, value } => vec![if *left { "LPUSH" } else { "RPUSH" }, list, value],
            Self::Pop { list, left } => vec![if *left { "LPOP" } else { "RPOP" }, list],
            Self::Move => vec!["LMOVE", LISTS[0], LISTS[1], "LEFT", "RIGHT"],
            Self::Score(member, score) => {
                return vec!["ZADD".into(), SCORES.into(), score.to_string(), member.clone()];
            }
            Self::Unscore(member) => vec!["ZREM", SCORES, member],
            Self::Delete(key) => vec!["DEL", key],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// Applies the command to `keys`, and returns the expected reply.
    fn apply(&self, keys: &mut KeysVersion) -> Reply {
        let element = |value: Option<String>| value.map_or(Reply::Nil, Reply::bulk);
        match self {
            Self::Set(key, value) => {
                keys.insert(key, KeyValue::Text(value.clone()));
                Reply::ok()
            }
            Self::Increment => {
                let number = match keys.get(COUNTER) {
                    Some(KeyValue::Text(text)) => text.parse::<i64>().unwrap_or_default() + 1,
                    _ => 1,
                };
                keys.insert(COUNTER, KeyValue::Text(number.to_string()));
                Reply::Integer(number)
            }
            Self::Push { list, left, value } => {
                let KeyValue::List(items) =
                    keys.entry(list).or_insert_with(|| KeyValue::List(VecDeque::new()))
                else {
                    return Reply::Nil;
                };
                if *left {
                    items.push_front(value.clone());
                } else {
                    items.push_back(value.clone());
                }
                Reply::count(items.len())
            }
            Self::Pop { list, left } => element(pop(keys, list, *left)),
            Self::Move => {
                let moved = pop(keys, LISTS[0], true);
                if let Some(value) = &moved {
                    Self::Push { list: LISTS[1], left: false, value: value.clone() }.apply(keys);
                }
                element(moved)
            }
            Self::Score(member, score) => {
                let KeyValue::Scores(scores) =
                    keys.entry(SCORES).or_insert_with(|| KeyValue::Scores(BTreeMap::new()))
                else {
                    return Reply::Nil;
                };
                Reply::count(usize::from(scores.insert(member.clone(), *score).is_none()))
            }
            Self::Unscore(member) => {
                let Some(KeyValue::Scores(scores)) = keys.get_mut(SCORES) else { return Reply::count(0) };
                let was = scores.remove(member).is_some();
                if scores.is_empty() {
                    keys.remove(SCORES);
                }
                Reply::count(usize::from(was))
            }
            Self::Delete(key) => Reply::count(usize::from(keys.remove(key).is_some())),
        }
    }
}

fn pop(keys: &mut KeysVersion, list: &str, left: bool) -> Option<String> {
    let Some(KeyValue::List(items)) = keys.get_mut(list) else { return None };
    let value = if left { items.pop_front() } else { items.pop_back() };
    if items.is_empty() {
        keys.remove(list);
    }
    value
}

/// Versions of the keys since the last acknowledged one.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyHistory {
    /// Number of the first version in `versions`.
    first: u64,
    /// Versions that a crash may leave. The first one is acknowledged.
    versions: VecDeque<KeysVersion>,
}

impl KeyHistory {
    pub(super) fn new() -> Self {
        Self { first: 0, versions: VecDeque::from([KeysVersion::new()]) }
    }

    /// Appends the version after the atomic `works`. Returns the number and the expected replies of
    /// the version.
    pub(super) fn ask(&mut self, works: &[KeyOperation]) -> (u64, Vec<Reply>) {
        let mut next = self.latest().clone();
        let replies = works.iter().map(|work| work.apply(&mut next)).collect();
        self.versions.push_back(next);
        (self.first + self.versions.len() as u64 - 1, replies)
    }

    /// Removes the versions before `number`, which no crash can leave once it is acknowledged.
    pub(super) fn acknowledged(&mut self, number: u64) {
        while self.first < number && self.versions.len() > 1 {
            self.versions.pop_front();
            self.first += 1;
        }
    }

    /// Checks that `found` is one of the versions, and makes it the only one.
    pub(super) fn resolve(&mut self, found: &KeysVersion) -> Result<(), String> {
        if self.versions.iter().any(|version| version == found) {
            self.first += self.versions.len() as u64 - 1;
            self.versions = VecDeque::from([found.clone()]);
            return Ok(());
        }
        Err(format!(
            "the keys are {found:?}, which is none of the {} versions that they may be; acknowledged: {:?}",
            self.versions.len(),
            self.versions.front()
        ))
    }

    fn latest(&self) -> &KeysVersion {
        self.versions.back().expect("there is always one")
    }
}

pub(super) fn readers() -> Vec<(&'static str, Vec<Bytes>)> {
    let words =
        |words: &[&'static str]| words.iter().map(|word| Bytes::from_static(word.as_bytes())).collect();
    let texts = TEXTS.into_iter().chain([COUNTER]).map(|key| (key, words(&["GET", key])));
    let lists = LISTS.into_iter().map(|key| (key, words(&["LRANGE", key, "0", "-1"])));
    let scores = [(SCORES, words(&["ZRANGE", SCORES, "0", "-1", "WITHSCORES"]))];
    texts.chain(lists).chain(scores).collect()
}

/// Returns the value of a key from the reply to one of the [`readers`].
pub(super) fn read(key: &str, reply: &Reply) -> Option<KeyValue> {
    let text = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    };
    match reply {
        Reply::Bulk(_) => Some(KeyValue::Text(text(reply))),
        Reply::Array(items) if items.is_empty() => None,
        Reply::Array(items) if key != SCORES => Some(KeyValue::List(items.iter().map(text).collect())),
        Reply::Array(items) => {
            let pairs =
                items.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]).parse().unwrap_or(i64::MIN)));
            Some(KeyValue::Scores(pairs.collect()))
        }
        Reply::Scored(items) if items.is_empty() => None,
        Reply::Scored(items) => {
            #[expect(clippy::cast_possible_truncation, reason = "the model's scores are small and whole")]
            let pairs = items
                .iter()
                .map(|(member, score)| (String::from_utf8_lossy(member).into_owned(), *score as i64));
            Some(KeyValue::Scores(pairs.collect()))
        }
        _ => None,
    }
}
