//! Arguments as what they stand for.

use bytes::Bytes;

use super::RequestError;
use crate::documents::Status;

pub(super) fn text(arg: &Bytes) -> Result<String, RequestError> {
    let wrong = |_| RequestError::Arguments("an argument is not UTF-8 text".into());
    String::from_utf8(arg.to_vec()).map_err(wrong)
}

pub(super) fn id_of<T: std::str::FromStr>(arg: &Bytes) -> Result<T, RequestError>
where
    T::Err: std::fmt::Display,
{
    text(arg)?.parse().map_err(|error: T::Err| RequestError::Arguments(error.to_string()))
}

pub(super) fn status(arg: &Bytes) -> Result<Status, RequestError> {
    let word = text(arg)?;
    let wrong = || {
        let all = "pending, running, completed, failed, dead or cancelled";
        RequestError::Arguments(format!("'{}' is not a status: use {all}", word.escape_debug()))
    };
    Status::parse(&word).ok_or_else(wrong)
}

pub(super) fn score_of(arg: &Bytes) -> Result<f64, RequestError> {
    let number = text(arg)?.parse().ok().filter(|score: &f64| !score.is_nan());
    number.ok_or_else(|| RequestError::Arguments("a score is not a number".into()))
}
