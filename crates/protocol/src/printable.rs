//! Printable text: text from other sources without characters on which a terminal would act.

use std::borrow::Cow;

use crate::byte_escape::byte_of;

/// Returns true if a terminal may act on `c`: control characters, characters that change the
/// direction of text, and line separators.
pub fn is_control(c: char) -> bool {
    let is_bidi_control =
        matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_line_end = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || is_bidi_control || is_line_end
}

/// Returns true if a terminal may act on `c`, or shows nothing for it: the characters of
/// [`is_control`], and characters without a width, with which names could differ unseen, and texts
/// could hide from people what a model reads.
pub fn is_hidden(c: char) -> bool {
    is_control(c) || is_ignorable(c)
}

/// Returns true if `c` has the property `Default_Ignorable_Code_Point` of Unicode, as the joiners,
/// the variation selectors and the tag characters have.
fn is_ignorable(c: char) -> bool {
    matches!(
        u32::from(c),
        0xad | 0x34f
            | 0x61c
            | 0x115f..=0x1160
            | 0x17b4..=0x17b5
            | 0x180b..=0x180f
            | 0x200b..=0x200f
            | 0x202a..=0x202e
            | 0x2060..=0x206f
            | 0x3164
            | 0xfe00..=0xfe0f
            | 0xfeff
            | 0xffa0
            | 0xfff0..=0xfff8
            | 0x1_bca0..=0x1_bca3
            | 0x1_d173..=0x1_d17a
            | 0xe_0000..=0xe_0fff
    )
}

/// Appends `c` to `shown`. A hidden character is written as `\n`, `\x1b` or `\u202e`, and as two
/// surrogates above U+FFFF.
pub fn push_escaped(shown: &mut String, c: char) {
    match c {
        c if !is_hidden(c) => shown.push(c),
        '\n' => shown.push_str(r"\n"),
        '\r' => shown.push_str(r"\r"),
        '\t' => shown.push_str(r"\t"),
        '\0'..=' ' => shown.push_str(&byte_text(c as u8)),
        // JSON has this escape, so an escaped JSON text stays valid.
        c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| shown.push_str(&format!(r"\u{unit:04x}"))),
    }
}

/// Returns the text for a byte that is not part of valid UTF-8, such as `\xe9`.
pub fn byte_text(byte: u8) -> String {
    format!(r"\x{byte:02x}")
}

/// Escapes the hidden characters of `text` and its byte escapes, except the characters for which
/// `stays` returns true.
pub fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            _ if stays(c) => shown.push(c),
            Some(byte) => shown.push_str(&byte_text(byte)),
            None => push_escaped(&mut shown, c),
        }
    }
    shown
}

/// Escapes hidden characters, and bytes that are not UTF-8, as `\r`, `\x1b`, `\u202e` or `\xe9`.
/// Line feeds and tabs stay.
pub fn printable(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// Escapes like [`printable`], and line feeds and tabs too, so that the text takes one line.
pub fn one_line(text: &str) -> String {
    escaped(text, |_| false)
}

/// Writes the hidden characters in the strings of a JSON text as `\u009b`, which JSON reads as the
/// same characters. Byte escapes stay. A serializer has escaped the control characters of ASCII.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| c > ' ' && is_hidden(c);
    if json.contains(is_escaped) { escaped(json, |c| !is_escaped(c)).into() } else { json.into() }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{one_line, printable, printable_json};

    #[test]
    fn printable_escapes_control_characters() {
        for (text, expected) in [
            ("a\u{1b}[2J\u{7}", r"a\x1b[2J\x07"),
            ("a.txt\r", r"a.txt\r"),
            ("y\nagx: all jobs completed", r"y\nagx: all jobs completed"),
            ("a\tb\0", r"a\tb\x00"),
            ("\u{9b}31m\u{7f}", r"\u009b31m\u007f"),
            ("gpj.\u{202e}exe\u{2066}\u{200f}", r"gpj.\u202eexe\u2066\u200f"),
            ("a\u{200b}b\u{200d}\u{2060}\u{feff}\u{ad}", r"a\u200bb\u200d\u2060\ufeff\u00ad"),
            ("a\u{e0041}\u{e01ef}\u{fe0f}", r"a\udb40\udc41\udb40\uddef\ufe0f"),
            (
                "\u{34f}\u{115f}\u{17b4}\u{180b}\u{180f}\u{3164}\u{ffa0}",
                r"\u034f\u115f\u17b4\u180b\u180f\u3164\uffa0",
            ),
            ("\u{fff0}\u{1bca0}\u{1d173}\u{e0fff}", r"\ufff0\ud82f\udca0\ud834\udd73\udb43\udfff"),
            ("\u{34e}\u{ffef}\u{fffd}\u{1d172}\u{1d17b}", "\u{34e}\u{ffef}\u{fffd}\u{1d172}\u{1d17b}"),
            ("caf\u{10fee9}\n\u{10fe80}", r"caf\xe9\n\x80"),
            ("a\u{2028}b\u{2029}\u{85}", r"a\u2028b\u2029\u0085"),
            ("naïve 日本 🙂 \\r", "naïve 日本 🙂 \\r"),
        ] {
            assert_eq!(one_line(text), expected);
        }
        assert_eq!(printable("a\n\tb\r\u{1b}"), "a\n\tb\\r\\x1b");
    }

    #[test]
    fn printable_json_is_the_same_json() {
        let text = "\u{1b}[0m\u{7f}\u{9b}1m \u{202e}\u{2028}\u{e0041}é\n\u{10fee9}";
        let json = serde_json::to_string(text).unwrap() + "\n";
        let shown = printable_json(&json);
        assert_eq!(shown, "\"\\u001b[0m\\u007f\\u009b1m \\u202e\\u2028\\udb40\\udc41é\\n\u{10fee9}\"\n");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        assert!(matches!(printable_json("{\n  \"é\": \"\u{10fee9}\"\n}"), Cow::Borrowed(_)));
    }
}
