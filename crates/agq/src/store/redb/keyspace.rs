//! Writes on the users' keys, inside a batch.

use agenix_rules::rejection::Rejection;
use bytes::Bytes;
use redb::{Error, ReadableTable};

use super::{
    batch::Batch,
    tables::{Entry, ordered},
};
use crate::store::Ruled;

impl Batch<'_> {
    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        Ok(self.keys.get(key)?.map(|entry| entry.value()))
    }

    /// The places `head..tail` of a list; an empty range for a key that is not there.
    fn list(&self, key: &[u8]) -> Result<Ruled<(i64, i64)>, Error> {
        Ok(match self.entry(key)? {
            None => Ok((0, 0)),
            Some(Entry::List { head, tail }) => Ok((head, tail)),
            Some(_) => Err(Rejection::WrongType),
        })
    }

    fn put_list(&mut self, key: &[u8], head: i64, tail: i64) -> Result<usize, Error> {
        if head == tail {
            self.keys.remove(key)?;
        } else {
            self.keys.insert(key, Entry::List { head, tail })?;
        }
        Ok(usize::try_from(tail - head).unwrap_or_default())
    }

    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if matches!(self.entry(key)?, Some(Entry::List { .. } | Entry::Sorted { .. })) {
            self.del(key)?;
        }
        self.keys.insert(key, Entry::Text(value.to_vec()))?;
        Ok(())
    }

    pub(super) fn del(&mut self, key: &[u8]) -> Result<bool, Error> {
        let Some(entry) = self.keys.remove(key)?.map(|entry| entry.value()) else { return Ok(false) };
        match entry {
            Entry::Text(_) => {}
            Entry::List { head, tail } => {
                self.list_items.retain_in((key, head)..(key, tail), |_, _| false)?;
            }
            Entry::Sorted { .. } => self.del_sorted(key)?,
        }
        Ok(true)
    }

    fn del_sorted(&mut self, key: &[u8]) -> Result<(), Error> {
        let mut members = Vec::new();
        for entry in self.scores.range((key, &[][..])..)? {
            let (place, score) = entry?;
            let (of, member) = place.value();
            if of != key {
                break;
            }
            members.push((score.value(), member.to_vec()));
        }
        for (score, member) in members {
            self.scores.remove((key, member.as_slice()))?;
            self.by_score.remove((key, score, member.as_slice()))?;
        }
        Ok(())
    }

    pub(super) fn push_head(&mut self, key: &Bytes, values: &[Bytes]) -> Result<Ruled<usize>, Error> {
        let (mut head, tail) = match self.list(key)? {
            Ok(range) => range,
            Err(rejection) => return Ok(Err(rejection)),
        };
        for value in values {
            head -= 1;
            self.list_items.insert((&key[..], head), &value[..])?;
        }
        self.arrived.lists.insert(key.clone());
        self.put_list(key, head, tail).map(Ok)
    }

    pub(super) fn push_tail(&mut self, key: &Bytes, value: &[u8]) -> Result<Ruled<usize>, Error> {
        let (head, tail) = match self.list(key)? {
            Ok(range) => range,
            Err(rejection) => return Ok(Err(rejection)),
        };
        self.list_items.insert((&key[..], tail), value)?;
        self.arrived.lists.insert(key.clone());
        self.put_list(key, head, tail + 1).map(Ok)
    }

    pub(super) fn pop_tail(&mut self, key: &[u8]) -> Result<Ruled<Option<Bytes>>, Error> {
        let (head, tail) = match self.list(key)? {
            Ok(range) if range.0 == range.1 => return Ok(Ok(None)),
            Ok(range) => range,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let item = self.list_items.remove((key, tail - 1))?.map(|item| Bytes::copy_from_slice(item.value()));
        self.put_list(key, head, tail - 1)?;
        Ok(Ok(item))
    }

    pub(super) fn add_scored(&mut self, key: &[u8], score: f64, member: &[u8]) -> Result<Ruled<bool>, Error> {
        let members = match self.entry(key)? {
            None => 0,
            Some(Entry::Sorted { members }) => members,
            Some(_) => return Ok(Err(Rejection::WrongType)),
        };
        let score = ordered(score);
        let before = self.scores.insert((key, member), score)?.map(|before| before.value());
        if let Some(before) = before {
            self.by_score.remove((key, before, member))?;
        } else {
            self.keys.insert(key, Entry::Sorted { members: members + 1 })?;
        }
        self.by_score.insert((key, score, member), ())?;
        Ok(Ok(before.is_none()))
    }
}
