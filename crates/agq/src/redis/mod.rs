//! Commands on users' keys with the semantics of Redis 7, inside one store transaction.
//!
//! An expired key does not exist, whether or not it has been removed. This module does not know
//! callers, and never waits.

mod generic;
mod lists;
mod sorted_sets;
mod strings;

use agenix_protocol::{
    request::{KeyCommand, ListEnd},
    resp::Reply,
    time::Timestamp,
};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;

use crate::store::{KeyEntry, KeyReader, KeyWriter, RuleResult, Store, StoreError, change};

/// Error of a command on keys. A rejected command has changed nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyCommandError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error(transparent)]
    Store(#[from] StoreError),
}

type KeyResult<T = Reply> = Result<T, KeyCommandError>;

/// A rejection is a reply like any other. Only a failure of the store rolls the transaction back.
pub(crate) fn ruled<T>(outcome: KeyResult<T>) -> Result<RuleResult<T>, StoreError> {
    match outcome {
        Ok(value) => Ok(Ok(value)),
        Err(KeyCommandError::Rejected(rejection)) => Ok(Err(rejection)),
        Err(KeyCommandError::Store(error)) => Err(error),
    }
}

pub(crate) fn apply(keys: &mut dyn KeyWriter, command: &KeyCommand, now: Timestamp) -> KeyResult {
    if !command.is_write() {
        return read(keys, command, now);
    }
    announce_keys(keys, command)?;
    for key in command.keys() {
        remove_expired(keys, key, now)?;
    }
    match command {
        KeyCommand::Set { key, value, options } => strings::set(keys, key, value, *options, now),
        KeyCommand::Add { key, by } => strings::add(keys, key, *by, now),
        KeyCommand::MSet { pairs } => strings::set_all(keys, pairs),
        KeyCommand::Del { keys: names } => generic::remove(keys, names),
        KeyCommand::Expire { key, after_ms, only } => generic::expire(keys, key, *after_ms, *only, now),
        KeyCommand::Persist { key } => generic::persist(keys, key, now),
        KeyCommand::Push { key, values, to } => lists::push(keys, key, values, *to, now).map(Reply::count),
        KeyCommand::Pop { key, from, count } => lists::pop(keys, key, *from, *count, now),
        KeyCommand::LRem { key, count, value } => lists::remove(keys, key, *count, value, now),
        KeyCommand::LMove { key, from, to } => {
            lists::move_element(keys, key, *from, to, now).map(Reply::bulk_or_nil)
        }
        KeyCommand::ZAdd { key, options, members } => sorted_sets::add(keys, key, *options, members, now),
        KeyCommand::ZRem { key, members } => sorted_sets::remove(keys, key, members, now),
        KeyCommand::ZPopMin { key, count } => sorted_sets::pop_least(keys, key, *count, now),
        // `read` lists every other command, as the compiler demands.
        other => read(keys, other, now),
    }
}

/// Runs a command that only reads. A command that writes is an error.
pub(crate) fn read(keys: &dyn KeyReader, command: &KeyCommand, now: Timestamp) -> KeyResult {
    announce_keys(keys, command)?;
    match command {
        KeyCommand::Get { key } => strings::get(keys, key, now),
        KeyCommand::MGet { keys: names } => strings::get_all(keys, names, now),
        KeyCommand::Exists { keys: names } => generic::count(keys, names, now),
        KeyCommand::Ttl { key } => generic::time_to_live(keys, key, 1000, now),
        KeyCommand::PTtl { key } => generic::time_to_live(keys, key, 1, now),
        KeyCommand::Type { key } => generic::type_of(keys, key, now),
        KeyCommand::Keys { pattern } => generic::names(keys, pattern, now),
        KeyCommand::Scan { cursor, pattern, count, kind } => {
            generic::scan(keys, *cursor, *count, pattern.as_deref(), kind.as_deref(), now)
        }
        KeyCommand::DbSize => generic::size(keys, now),
        KeyCommand::LLen { key } => lists::length(keys, key, now).map(Reply::count),
        KeyCommand::LRange { key, start, stop } => lists::range(keys, key, *start, *stop, now),
        KeyCommand::ZRange { key, span, is_reversed, with_scores } => {
            sorted_sets::range(keys, key, *span, *is_reversed, *with_scores, now)
        }
        KeyCommand::ZCard { key } => sorted_sets::size(keys, key, now),
        KeyCommand::ZScore { key, member } => sorted_sets::score(keys, key, member, now),
        KeyCommand::SMembers { key } => generic::absent(keys, key, Reply::Set(Vec::new()), now),
        KeyCommand::SIsMember { key, .. } => generic::absent(keys, key, Reply::Integer(0), now),
        KeyCommand::HGetAll { key } => generic::absent(keys, key, Reply::Map(Vec::new()), now),
        KeyCommand::HGet { key, .. } => generic::absent(keys, key, Reply::Nil, now),
        KeyCommand::Set { .. }
        | KeyCommand::Add { .. }
        | KeyCommand::MSet { .. }
        | KeyCommand::Del { .. }
        | KeyCommand::Expire { .. }
        | KeyCommand::Persist { .. }
        | KeyCommand::Push { .. }
        | KeyCommand::Pop { .. }
        | KeyCommand::LRem { .. }
        | KeyCommand::LMove { .. }
        | KeyCommand::ZAdd { .. }
        | KeyCommand::ZRem { .. }
        | KeyCommand::ZPopMin { .. } => Err(StoreError("this command needs a transaction".into()).into()),
    }
}

/// Lets a remote store read the keys of a command together.
fn announce_keys(keys: &dyn KeyReader, command: &KeyCommand) -> Result<(), StoreError> {
    let named: Vec<&[u8]> = command.keys().map(|key| &key[..]).collect();
    if named.len() > 1 { keys.read_ahead(&named) } else { Ok(()) }
}

/// Runs the commands of a transaction, all of them: as in Redis, a refusal is one of the replies.
pub(crate) fn apply_all(
    keys: &mut dyn KeyWriter,
    commands: &[KeyCommand],
    now: Timestamp,
) -> Result<Vec<Reply>, StoreError> {
    commands.iter().map(|command| reply_of(apply(keys, command, now))).collect()
}

/// Runs the commands of a transaction that only reads; see [`apply_all`].
pub(crate) fn read_all(
    keys: &dyn KeyReader,
    commands: &[KeyCommand],
    now: Timestamp,
) -> Result<Vec<Reply>, StoreError> {
    commands.iter().map(|command| reply_of(read(keys, command, now))).collect()
}

fn reply_of(outcome: KeyResult) -> Result<Reply, StoreError> {
    Ok(ruled(outcome)?.unwrap_or_else(|rejection| Reply::Error(rejection.line())))
}

/// Moves the element to the list `to` if that is given. Returns `None` if the list is empty.
pub(crate) fn pop(
    keys: &mut dyn KeyWriter,
    key: &Bytes,
    from: ListEnd,
    to: Option<&(Bytes, ListEnd)>,
    now: Timestamp,
) -> KeyResult<Option<Bytes>> {
    remove_expired(keys, key, now)?;
    let Some(to) = to else { return lists::take(keys, key, from, now) };
    remove_expired(keys, &to.0, now)?;
    lists::move_element(keys, key, from, to, now)
}

/// Puts an element back to the end from which it was taken.
pub(crate) fn put_back(
    keys: &mut dyn KeyWriter,
    key: &Bytes,
    value: &Bytes,
    to: ListEnd,
    now: Timestamp,
) -> KeyResult<()> {
    remove_expired(keys, key, now)?;
    lists::push(keys, key, std::slice::from_ref(value), to, now)?;
    Ok(())
}

pub(crate) fn has_elements(keys: &dyn KeyReader, key: &[u8], now: Timestamp) -> KeyResult<bool> {
    Ok(lists::length(keys, key, now)? > 0)
}

pub(crate) fn is_there(keys: &dyn KeyReader, key: &[u8], now: Timestamp) -> Result<bool, StoreError> {
    Ok(live(keys, key, now)?.is_some())
}

/// Removes at most `limit` expired keys. Returns the number of removed keys.
pub(crate) async fn expire(store: &dyn Store, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
    let overdue = store.overdue_keys(now, limit).await?;
    if overdue.is_empty() {
        return Ok(0);
    }
    let swept = change(store, 0, move |keys| {
        keys.read_ahead(&overdue.iter().map(|key| &key[..]).collect::<Vec<_>>())?;
        let mut count = 0;
        for key in &overdue {
            // The key may have got a new expiry meanwhile.
            count += usize::from(remove_expired(keys, key, now)?);
        }
        Ok(count)
    });
    swept.await
}

/// Returns the entry of a key that exists and has not expired.
fn live(keys: &dyn KeyReader, key: &[u8], now: Timestamp) -> Result<Option<KeyEntry>, StoreError> {
    Ok(keys.entry(key)?.filter(|entry| entry.expires_at.is_none_or(|at| at > now)))
}

/// Removes an expired key, so that a write finds no old content. Returns true if the key had
/// expired.
fn remove_expired(keys: &mut dyn KeyWriter, key: &[u8], now: Timestamp) -> Result<bool, StoreError> {
    let has_expired = keys.entry(key)?.is_some_and(|entry| entry.expires_at.is_some_and(|at| at <= now));
    if has_expired {
        keys.remove(key)?;
    }
    Ok(has_expired)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use agenix_protocol::{
        request::{KeyCommand, Request},
        resp::Reply,
        time::Timestamp,
    };
    use bytes::Bytes;

    use super::{apply, apply_all, expire, read, ruled};
    use crate::store::{Keyspace, change, look, redb::RedbStore};

    fn command(line: &str) -> KeyCommand {
        let words: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        match Request::parse(&words) {
            Ok((_, Request::Key(command))) => command,
            other => panic!("{line}: {:?}", other.map(|(_, request)| request)),
        }
    }

    async fn run(store: &RedbStore, line: &str, now: u64) -> Reply {
        let command = command(line);
        let reply = change(store, 0, move |keys| ruled(apply(keys, &command, Timestamp(now)))).await.unwrap();
        reply.unwrap_or_else(|rejection| Reply::Error(rejection.line()))
    }

    #[tokio::test]
    async fn expired_keys_are_invisible_and_are_then_removed() {
        let store = RedbStore::in_memory().unwrap();
        for line in
            ["SET k v PX 100", "RPUSH l a b", "PEXPIRE l 100", "ZADD z 1 m", "PEXPIRE z 200", "SET s v"]
        {
            run(&store, line, 1000).await;
        }
        assert_eq!(run(&store, "PTTL k", 1099).await, Reply::Integer(1));
        for line in ["EXISTS k l", "LLEN l", "PERSIST k", "EXPIRE l 5"] {
            assert_eq!(run(&store, line, 1100).await, Reply::Integer(0), "{line}");
        }
        assert_eq!(run(&store, "DBSIZE", 1100).await, Reply::Integer(2));
        let overdue = store.overdue_keys(Timestamp(1300), 10).await.unwrap();
        assert_eq!(overdue, ["z"], "those that were written to are swept already");
        run(&store, "SET k v PX 100", 1200).await;
        assert_eq!(expire(&store, Timestamp(1300), 1).await.unwrap(), 1);
        assert_eq!(expire(&store, Timestamp(1300), 10).await.unwrap(), 1);
        assert_eq!(expire(&store, Timestamp(1300), 10).await.unwrap(), 0);
        // A new list has no elements of the expired one.
        assert_eq!(run(&store, "RPUSH l c", 1400).await, Reply::Integer(1));
        assert_eq!(run(&store, "LRANGE l 0 -1", 1400).await, Reply::bulks(["c"]));
    }

    #[tokio::test]
    async fn transaction_continues_after_a_rejected_command() {
        let store = RedbStore::in_memory().unwrap();
        let commands: Vec<_> = ["SET k text", "INCR k", "LPUSH l 1", "GET k"].map(command).into();
        let replies = change(&store, 0, move |keys| apply_all(keys, &commands, Timestamp(1))).await.unwrap();
        let refused = Reply::Error("ERR value is not an integer or out of range".into());
        assert_eq!(replies, [Reply::ok(), refused, Reply::Integer(1), Reply::bulk("text")]);
    }

    #[tokio::test]
    async fn read_transaction_refuses_to_write() {
        let store = RedbStore::in_memory().unwrap();
        let command = command("SET k v");
        let outcome = look(&store, move |keys| ruled(read(keys, &command, Timestamp(1)))).await;
        assert!(outcome.unwrap_err().to_string().contains("needs a transaction"));
    }

    #[tokio::test]
    async fn scan_returns_every_permanent_key_and_ends_despite_new_keys() {
        let store = RedbStore::in_memory().unwrap();
        for n in 0..100 {
            run(&store, &format!("SET key:{n} v"), 1).await;
        }
        let (mut seen, mut cursor, mut steps) = (BTreeSet::new(), String::from("0"), 0);
        loop {
            let reply = run(&store, &format!("SCAN {cursor} COUNT 7 MATCH key:*"), 1).await;
            let Reply::Array(parts) = reply else { panic!("{reply:?}") };
            let [Reply::Bulk(next), Reply::Array(names)] = &parts[..] else { panic!("{parts:?}") };
            seen.extend(names.iter().map(|name| format!("{name:?}")));
            cursor = String::from_utf8(next.to_vec()).unwrap();
            if cursor == "0" {
                break;
            }
            steps += 1;
            // New and rewritten keys do not prevent the end of the scan.
            run(&store, &format!("DEL key:{}", 200 + steps), 1).await;
            run(&store, &format!("SET key:{steps} other"), 1).await;
            for more in 0..20 {
                run(&store, &format!("SET new:{steps}:{more} v"), 1).await;
            }
        }
        assert_eq!((seen.len(), steps), (100, 14));
    }
}
