//! Parsers of single arguments.

use bytes::Bytes;

use super::RequestError;
use crate::{
    documents::Status, ids::QueueName, limits::MAX_CLAIMED_QUEUES, reserved_keys::queue_of, time::Timestamp,
};

pub(super) fn text(arg: &Bytes) -> Result<String, RequestError> {
    let wrong = |_| RequestError::Arguments("an argument is not UTF-8 text".into());
    let text = String::from_utf8(arg.to_vec()).map_err(wrong)?;
    // No name and no id contains NUL, and some stores cannot search for NUL.
    if text.contains('\0') {
        return Err(RequestError::Arguments("an argument contains a NUL byte".into()));
    }
    Ok(text)
}

pub(super) fn texts(args: &[Bytes]) -> Result<Vec<String>, RequestError> {
    args.iter().map(text).collect()
}

pub(super) fn id_of<T: std::str::FromStr>(arg: &Bytes) -> Result<T, RequestError>
where
    T::Err: std::fmt::Display,
{
    text(arg)?.parse().map_err(|error: T::Err| RequestError::Arguments(error.to_string()))
}

pub(super) fn queue(arg: &Bytes) -> Result<QueueName, RequestError> {
    let name = text(arg)?;
    QueueName::new(queue_of(&name)).map_err(|error| RequestError::Arguments(error.to_string()))
}

/// Checks the number of queues of a claim.
pub(super) fn check_queues(count: usize) -> Result<(), RequestError> {
    if count > MAX_CLAIMED_QUEUES {
        let text = format!("a claim has {count} queues, max {MAX_CLAIMED_QUEUES}: use several claims");
        return Err(RequestError::Arguments(text));
    }
    Ok(())
}

pub(super) fn count(arg: &Bytes) -> Result<usize, RequestError> {
    let wrong = || RequestError::Arguments("a count is not a whole number, 0 or more".into());
    text(arg)?.parse().map_err(|_| wrong())
}

pub(super) fn time(arg: &Bytes) -> Result<Timestamp, RequestError> {
    let word = text(arg)?;
    let wrong = || RequestError::Arguments(format!("'{}' is not an RFC 3339 time", word.escape_debug()));
    Timestamp::parse(&word).ok_or_else(wrong)
}

pub(super) fn status(arg: &Bytes) -> Result<Status, RequestError> {
    let word = text(arg)?;
    let wrong = || {
        let all = "pending, running, completed, failed, dead or cancelled";
        RequestError::Arguments(format!("'{}' is not a status: use {all}", word.escape_debug()))
    };
    Status::parse(&word).ok_or_else(wrong)
}

/// Returns true if an argument is `word`, in any case.
pub(super) fn is_word(arg: &Bytes, word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
