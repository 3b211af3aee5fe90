//! Commands on sorted sets. Members are indexed by name and by score; a rank is computed by
//! counting.

use std::ops::Bound;

use agenix_protocol::{
    request::{Span, ZAddOptions},
    resp::Reply,
    time::Timestamp,
};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;

use super::{KeyResult, lists::part, live};
use crate::store::{KeyEntry, KeyReader, KeyWriter, RangeSlice, StoreError, StoredValue};

/// Sorted set that is being changed; empty if the key does not exist.
struct OpenSortedSet {
    members: u64,
    expires_at: Option<Timestamp>,
}

impl OpenSortedSet {
    fn of(keys: &dyn KeyReader, key: &[u8], now: Timestamp) -> KeyResult<Self> {
        match live(keys, key, now)? {
            None => Ok(Self { members: 0, expires_at: None }),
            Some(KeyEntry { content: StoredValue::Sorted { members }, expires_at }) => {
                Ok(Self { members, expires_at })
            }
            Some(_) => Err(Rejection::WrongType.into()),
        }
    }

    /// Saves the set. Removes the key if the set is empty.
    fn save(&self, keys: &mut dyn KeyWriter, key: &[u8]) -> Result<(), StoreError> {
        if self.members == 0 {
            keys.remove(key)?;
            return Ok(());
        }
        let content = StoredValue::Sorted { members: self.members };
        keys.put_entry(key, &KeyEntry { content, expires_at: self.expires_at })
    }

    fn count(&self) -> i64 {
        i64::try_from(self.members).unwrap_or(i64::MAX)
    }
}

const EVERY_SCORE: (Bound<f64>, Bound<f64>) = (Bound::Unbounded, Bound::Unbounded);

pub(super) fn add(
    keys: &mut dyn KeyWriter,
    key: &[u8],
    options: ZAddOptions,
    members: &[(f64, Bytes)],
    now: Timestamp,
) -> KeyResult {
    let mut set = OpenSortedSet::of(keys, key, now)?;
    keys.read_scores_ahead(key, &members.iter().map(|(_, member)| &member[..]).collect::<Vec<_>>())?;
    let (mut added, mut changed, mut last) = (0, 0, None);
    for (score, member) in members {
        let known = keys.score(key, member)?;
        let Some(score) = decided(known, *score, options)? else { continue };
        last = Some(score);
        if known == Some(score) {
            continue;
        }
        keys.put_score(key, member, score)?;
        *(if known.is_some() { &mut changed } else { &mut added }) += 1;
    }
    if added > 0 {
        set.members += added;
        set.save(keys, key)?;
    }
    Ok(match last {
        Some(score) if options.is_increment => Reply::Double(score),
        None if options.is_increment => Reply::Nil,
        _ => {
            let counted = if options.counts_changed { added + changed } else { added };
            Reply::Integer(i64::try_from(counted).unwrap_or(i64::MAX))
        }
    })
}

/// Returns the new score of a member, or `None` if the conditions leave it unchanged.
fn decided(known: Option<f64>, score: f64, options: ZAddOptions) -> Result<Option<f64>, Rejection> {
    let Some(known) = known else { return Ok((!options.only.xx).then_some(score)) };
    if options.only.nx {
        return Ok(None);
    }
    let score = if options.is_increment { known + score } else { score };
    if score.is_nan() {
        return Err(Rejection::Redis("resulting score is not a number (NaN)"));
    }
    let is_met = (!options.only.gt || score > known) && (!options.only.lt || score < known);
    Ok(is_met.then_some(score))
}

pub(super) fn range(
    keys: &dyn KeyReader,
    key: &[u8],
    span: Span,
    is_reversed: bool,
    with_scores: bool,
    now: Timestamp,
) -> KeyResult {
    let set = OpenSortedSet::of(keys, key, now)?;
    let (scores, skip, take) = match span {
        Span::Scores { min, max, skip, take } => ((min, max), skip, take),
        Span::Ranks { start, stop } => {
            let ranks = part(start, stop, set.count());
            let size = |number: i64| usize::try_from(number).unwrap_or_default();
            (EVERY_SCORE, size(ranks.start), size(ranks.end - ranks.start))
        }
    };
    let found = if set.members == 0 || take == 0 {
        Vec::new()
    } else {
        keys.members(key, scores, RangeSlice { is_reversed, skip, take })?
    };
    Ok(if with_scores {
        Reply::Scored(found)
    } else {
        Reply::bulks(found.into_iter().map(|(member, _)| member))
    })
}

pub(super) fn remove(keys: &mut dyn KeyWriter, key: &[u8], members: &[Bytes], now: Timestamp) -> KeyResult {
    let mut set = OpenSortedSet::of(keys, key, now)?;
    keys.read_scores_ahead(key, &members.iter().map(|member| &member[..]).collect::<Vec<_>>())?;
    let mut removed = 0;
    for member in members {
        removed += u64::from(keys.remove_score(key, member)?);
    }
    if removed > 0 {
        set.members = set.members.saturating_sub(removed);
        set.save(keys, key)?;
    }
    Ok(Reply::Integer(i64::try_from(removed).unwrap_or(i64::MAX)))
}

pub(super) fn size(keys: &dyn KeyReader, key: &[u8], now: Timestamp) -> KeyResult {
    Ok(Reply::Integer(OpenSortedSet::of(keys, key, now)?.count()))
}

pub(super) fn score(keys: &dyn KeyReader, key: &[u8], member: &[u8], now: Timestamp) -> KeyResult {
    if OpenSortedSet::of(keys, key, now)?.members == 0 {
        return Ok(Reply::Nil);
    }
    Ok(keys.score(key, member)?.map_or(Reply::Nil, Reply::Double))
}

/// ZPOPMIN. In RESP3 the reply has nested pairs with a count, and is a flat pair without.
pub(super) fn pop_least(
    keys: &mut dyn KeyWriter,
    key: &[u8],
    count: Option<usize>,
    now: Timestamp,
) -> KeyResult {
    let mut set = OpenSortedSet::of(keys, key, now)?;
    let take = count.unwrap_or(1);
    if set.members == 0 || take == 0 {
        return Ok(Reply::Array(Vec::new()));
    }
    let least = keys.members(key, EVERY_SCORE, RangeSlice { is_reversed: false, skip: 0, take })?;
    keys.read_scores_ahead(key, &least.iter().map(|(member, _)| &member[..]).collect::<Vec<_>>())?;
    for (member, _) in &least {
        keys.remove_score(key, member)?;
    }
    set.members = set.members.saturating_sub(least.len() as u64);
    set.save(keys, key)?;
    Ok(match (count, &least[..]) {
        (None, [(member, score)]) => Reply::Array(vec![Reply::Bulk(member.clone()), Reply::Double(*score)]),
        _ => Reply::Scored(least),
    })
}
