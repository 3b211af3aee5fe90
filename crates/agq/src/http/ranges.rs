//! Conditional requests and byte ranges (RFC 9110 §13 and §14), as pure functions of the headers.

use axum::http::{HeaderMap, HeaderName, Method, header};

/// Part of a representation that the answer to a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Selection {
    Whole,
    /// Offset of the first byte, and offset after the last one.
    Part(u64, u64),
    /// No byte of the range exists (416).
    Unsatisfiable,
    /// The client has the representation already (304).
    NotModified,
    /// The client asks for another representation (412).
    PreconditionFailed,
}

impl Selection {
    /// Returns the part of a representation of `total` bytes that a GET or HEAD request selects.
    /// `etag` is the strong entity tag of the representation, with quotation marks.
    pub(super) fn of(method: &Method, headers: &HeaderMap, etag: &str, total: u64) -> Self {
        if tags(headers, &header::IF_MATCH).is_some_and(|mut tags| !tags.any(|tag| is_either(tag, etag))) {
            return Self::PreconditionFailed;
        }
        let is_same = |tag: &str| is_either(tag.strip_prefix("W/").unwrap_or(tag), etag);
        if tags(headers, &header::IF_NONE_MATCH).is_some_and(|mut tags| tags.any(is_same)) {
            return Self::NotModified;
        }
        // A date or a weak tag never matches, because agq sends neither.
        let is_current =
            headers.get(header::IF_RANGE).is_none_or(|tag| tag.as_bytes().trim_ascii() == etag.as_bytes());
        let mut ranges = headers.get_all(header::RANGE).iter();
        match (ranges.next().and_then(|range| range.to_str().ok()), ranges.next()) {
            (Some(range), None) if *method == Method::GET && is_current => Self::of_range(range, total),
            _ => Self::Whole,
        }
    }

    /// A server may ignore any range. agq ignores an invalid range, and several ranges.
    fn of_range(range: &str, total: u64) -> Self {
        let Some((first, last)) = positions(range) else { return Self::Whole };
        match (first, last) {
            (Some(first), _) if first >= total => Self::Unsatisfiable,
            (Some(first), last) => {
                Self::Part(first, last.map_or(total, |last| last.saturating_add(1).min(total)))
            }
            (None, Some(0)) => Self::Unsatisfiable,
            // Content-Range has no form for a part without bytes.
            (None, _) if total == 0 => Self::Whole,
            (None, suffix) => Self::Part(total.saturating_sub(suffix.unwrap_or_default()), total),
        }
    }
}

/// Returns the entity tags of a header, or `None` without the header.
fn tags<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<impl Iterator<Item = &'a str>> {
    let texts = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default());
    headers.contains_key(name).then(|| texts.flat_map(|text| text.split(',')).map(str::trim))
}

fn is_either(tag: &str, etag: &str) -> bool {
    tag == "*" || tag == etag
}

/// Returns the two numbers of a valid byte range, at least one of which is there.
fn positions(range: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, range) = range.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    let (first, last) = (position(first)?, position(last)?);
    let is_ordered = match (first, last) {
        (Some(first), Some(last)) => first <= last,
        (first, last) => first.or(last).is_some(),
    };
    (unit.eq_ignore_ascii_case("bytes") && is_ordered).then_some((first, last))
}

/// Returns a number that may be absent, or `None` for text that is not a number. A number beyond
/// the type is as good as its maximum, because no representation is that long.
fn position(digits: &str) -> Option<Option<u64>> {
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| (!digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};

    use super::Selection::{self, NotModified, Part, PreconditionFailed, Unsatisfiable, Whole};

    const TAG: &str = "\"5eed\"";

    fn select(total: u64, all: &[(&'static str, &'static str)]) -> Selection {
        let pair = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let mut headers = HeaderMap::new();
        for (name, value) in all.iter().map(pair) {
            headers.append(name, value);
        }
        Selection::of(&Method::GET, &headers, TAG, total)
    }

    #[test]
    fn range_selects_a_part_that_ends_with_the_representation() {
        for (range, expected) in [
            ("bytes=0-0", Part(0, 1)),
            ("bytes=0-9", Part(0, 10)),
            ("bytes=3-99", Part(3, 10)),
            ("bytes=9-", Part(9, 10)),
            ("Bytes=3-5", Part(3, 6)),
            ("bytes=-3", Part(7, 10)),
            ("bytes=-99", Part(0, 10)),
            ("bytes=0-18446744073709551615", Part(0, 10)),
            ("bytes=-99999999999999999999999999", Part(0, 10)),
            ("bytes=10-", Unsatisfiable),
            ("bytes=99999999999999999999999999-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
        ] {
            assert_eq!(select(10, &[("range", range)]), expected, "{range}");
        }
        assert_eq!(select(0, &[("range", "bytes=0-")]), Unsatisfiable);
        assert_eq!(select(0, &[("range", "bytes=-5")]), Whole);
    }

    #[test]
    fn range_that_is_invalid_or_not_alone_is_ignored() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-3",
            "bytes=a-",
            "bytes=0-b",
            "bytes=+1-2",
            "bytes=--1",
            "bytes=0 -1",
            "bytes=0-1,3-4",
            "bytes=0-1,",
            "lines=0-1",
            "bytes:0-1",
        ] {
            assert_eq!(select(10, &[("range", range)]), Whole, "{range}");
        }
        assert_eq!(select(10, &[("range", "bytes=0-1"), ("range", "bytes=3-4")]), Whole);
        let mut headers = HeaderMap::new();
        headers.insert("range", HeaderValue::from_static("bytes=0-1"));
        assert_eq!(Selection::of(&Method::HEAD, &headers, TAG, 10), Whole, "ranges are defined for GET");
    }

    #[test]
    fn range_counts_only_for_the_representation_that_the_client_has() {
        let range = ("range", "bytes=2-");
        assert_eq!(select(10, &[range, ("if-range", TAG)]), Part(2, 10));
        for other in ["\"0ther\"", "W/\"5eed\"", "5eed", "Tue, 15 Nov 1994 12:45:26 GMT", "*"] {
            assert_eq!(select(10, &[range, ("if-range", other)]), Whole, "{other}");
        }
        assert_eq!(select(10, &[("range", "bytes=99-"), ("if-range", "\"0ther\"")]), Whole);
    }

    #[test]
    fn representation_that_the_client_has_is_not_sent() {
        let range = ("range", "bytes=99-");
        for same in ["*", TAG, "W/\"5eed\"", "\"a\", \"5eed\"", "\"a,b\",W/\"5eed\""] {
            assert_eq!(select(10, &[("if-none-match", same), range]), NotModified, "{same}");
        }
        assert_eq!(select(10, &[("if-none-match", "\"a\""), ("if-none-match", TAG)]), NotModified);
        for other in ["", "\"a\"", "5eed", "\"5eed", "W/5eed"] {
            assert_eq!(select(10, &[("if-none-match", other)]), Whole, "{other}");
        }
    }

    #[test]
    fn another_representation_than_the_client_requires_is_not_sent() {
        for same in ["*", TAG, "\"a\", \"5eed\""] {
            assert_eq!(select(10, &[("if-match", same)]), Whole, "{same}");
        }
        for other in ["\"a\"", "W/\"5eed\"", ""] {
            assert_eq!(select(10, &[("if-match", other)]), PreconditionFailed, "{other}");
        }
        assert_eq!(select(10, &[("if-match", TAG), ("if-none-match", TAG)]), NotModified);
    }
}
