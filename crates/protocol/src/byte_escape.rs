//! Byte escapes: text of documents for bytes that are not UTF-8 (`docs/protocol/plans.md`).
//!
//! A byte that is not a part of valid UTF-8 becomes the private-use character U+10FE00 + byte, from
//! U+10FE80 to U+10FEFF. A literal character of this range is escaped byte by byte, so that
//! [`decode`] returns the bytes that [`encode`] got, whatever they are.

use std::borrow::Cow;

/// Character that byte 0 would have.
const BASE: u32 = 0x0010_fe00;
/// First byte of the UTF-8 of every byte escape.
const LEAD: u8 = 0xf4;

/// Returns the byte that `c` stands for, or `None` if `c` is an ordinary character.
pub fn byte_of(c: char) -> Option<u8> {
    let byte = u8::try_from(u32::from(c).checked_sub(BASE)?).ok()?;
    (!byte.is_ascii()).then_some(byte)
}

/// Returns true if `text` contains a byte escape.
pub fn has_escapes(text: &str) -> bool {
    text.as_bytes().contains(&LEAD) && text.chars().any(|c| byte_of(c).is_some())
}

/// Returns `bytes` as text: valid UTF-8 stays, and every other byte becomes a byte escape.
pub fn encode(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !has_escapes(text)
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() * 2);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match byte_of(c) {
                Some(_) => text.extend(c.encode_utf8(&mut [0; 4]).bytes().map(escape_of)),
                None => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().copied().map(escape_of));
    }
    Cow::Owned(text)
}

/// Returns the bytes of `text`: a byte escape is its byte, and any other character its UTF-8.
pub fn decode(text: &str) -> Cow<'_, [u8]> {
    if !has_escapes(text) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// Returns the text of an argument or a path of this system.
#[cfg(unix)]
pub fn encode_os(bytes: &std::ffi::OsStr) -> String {
    encode(std::os::unix::ffi::OsStrExt::as_bytes(bytes)).into_owned()
}

/// Returns the argument or the path of this system that `text` stands for.
#[cfg(unix)]
pub fn decode_os(text: &str) -> std::ffi::OsString {
    std::os::unix::ffi::OsStringExt::from_vec(decode(text).into_owned())
}

/// Returns the byte escape of `byte`, which is not ASCII.
fn escape_of(byte: u8) -> char {
    char::from_u32(BASE + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::{byte_of, decode, encode, has_escapes};

    #[test]
    fn byte_escapes_stand_for_bytes_that_are_not_utf_8() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"a\0\n\x7f", "a\0\n\x7f"),
            ("é日🙂".as_bytes(), "é日🙂"),
            (b"caf\xe9", "caf\u{10fee9}"),
            (b"\x80\xff", "\u{10fe80}\u{10feff}"),
            (b"\xc3", "\u{10fec3}"),
            (b"\xc3\xa9\xc3", "é\u{10fec3}"),
            (b"\xe6\x97x", "\u{10fee6}\u{10fe97}x"),
            // Overlong forms, surrogates, and numbers beyond the last character are not UTF-8.
            (b"\xc0\xaf", "\u{10fec0}\u{10feaf}"),
            (b"\xed\xb3\xa9", "\u{10feed}\u{10feb3}\u{10fea9}"),
            (b"\xf4\x90\x80\x80", "\u{10fef4}\u{10fe90}\u{10fe80}\u{10fe80}"),
        ] {
            assert_eq!((&*encode(bytes), &*decode(text)), (text, bytes));
        }
    }

    #[test]
    fn byte_escapes_of_the_user_are_escaped() {
        for c in ['\u{10fe80}', '\u{10fee9}', '\u{10feff}'] {
            let utf_8 = c.to_string().into_bytes();
            let text = encode(&utf_8);
            assert_eq!((text.chars().count(), &*decode(&text)), (4, &*utf_8), "{c:?}");
        }
        for c in ['\u{10fe7f}', '\u{10ff00}', '\u{10fe00}', '\u{f7e9}', '\u{10ffff}'] {
            assert_eq!((byte_of(c), has_escapes(&c.to_string())), (None, false), "{c:?}");
            assert!(matches!(encode(c.to_string().as_bytes()), Cow::Borrowed(_)), "{c:?}");
        }
    }

    #[test]
    fn byte_escapes_in_any_order_are_decoded() {
        assert_eq!(&*decode("\u{10fec3}\u{10fea9}"), "é".as_bytes(), "the bytes of é, apart");
        assert_eq!(&*decode("\u{10fec3}é"), b"\xc3\xc3\xa9");
    }

    /// Returns bytes in which UTF-8, parts of it, and byte escapes are frequent.
    fn mixed() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..4),
            ".{0,3}".prop_map(String::into_bytes),
            (0x0010_fe70_u32..0x0010_ff10, 1..=4_usize).prop_map(|(c, length)| char::from_u32(c)
                .unwrap()
                .to_string()
                .into_bytes()[..length]
                .to_vec()),
        ];
        prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn byte_escapes_return_any_bytes(bytes in mixed()) {
            let text = encode(&bytes);
            prop_assert_eq!(&*decode(&text), &*bytes);
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }

        #[test]
        fn byte_escapes_of_a_text_are_decoded_part_by_part(one in mixed(), other in mixed()) {
            let text = encode(&one).into_owned() + &encode(&other);
            prop_assert_eq!(&*decode(&text), [one, other].concat());
        }
    }
}
