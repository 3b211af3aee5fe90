//! Escapes text from other sources, because a terminal would act on its control characters.

use std::io::IsTerminal;

use agenix_protocol::byte_escape::{byte_of, decode};
use agenix_shell::is_hidden;

/// Escapes control characters, characters that change the direction of text, characters without
/// a width, and bytes that are not UTF-8, as `\r`, `\x1b`, `\u202e` or `\xe9`. Line feeds and tabs
/// stay.
pub(crate) fn printable(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// Escapes like [`printable`], and line feeds and tabs too, so that the text takes one line.
pub(crate) fn one_line(text: &str) -> String {
    escaped(text, |_| false)
}

/// Escapes like [`printable`], and keeps byte escapes, because the text may be JSON.
pub(crate) fn printable_document(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t') || byte_of(c).is_some())
}

/// Escapes like [`one_line`], and keeps byte escapes for [`bytes_for`].
pub(crate) fn one_line_with_bytes(text: &str) -> String {
    escaped(text, |c| byte_of(c).is_some())
}

/// Returns what agx writes to `out` for a text with byte escapes: the bytes, or for a terminal text
/// such as `\xe9`.
pub(crate) fn bytes_for(out: &impl IsTerminal, text: &str) -> Vec<u8> {
    if out.is_terminal() { printable(text).into_bytes() } else { decode(text).into_owned() }
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if stays(c) => shown.push(c),
            c if let Some(byte) = byte_of(c) => shown.push_str(&format!(r"\x{byte:02x}")),
            c if !is_hidden(c) => shown.push(c),
            '\n' => shown.push_str(r"\n"),
            '\r' => shown.push_str(r"\r"),
            '\t' => shown.push_str(r"\t"),
            '\0'..=' ' => shown.push_str(&format!(r"\x{:02x}", u32::from(c))),
            // JSON has this escape, so an escaped JSON text stays valid.
            c => shown.push_str(&format!(r"\u{:04x}", u32::from(c))),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{bytes_for, one_line, one_line_with_bytes, printable, printable_document};

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
            ("caf\u{10fee9}\n\u{10fe80}", r"caf\xe9\n\x80"),
            ("naïve 日本 🙂 \\r", "naïve 日本 🙂 \\r"),
        ] {
            assert_eq!(one_line(text), expected);
        }
        assert_eq!(printable("a\n\tb\r\u{1b}"), "a\n\tb\\r\\x1b");
    }

    #[test]
    fn printable_documents_and_files_keep_bytes() {
        assert_eq!(printable("\u{10fee9}\n\r"), "\\xe9\n\\r");
        assert_eq!(printable_document("\u{10fee9}\n\r"), "\u{10fee9}\n\\r");
        assert_eq!(one_line_with_bytes("\u{10fee9}\n"), "\u{10fee9}\\n");
        let file = tempfile::tempfile().unwrap();
        assert_eq!(bytes_for(&file, "é\u{10fee9}"), b"\xc3\xa9\xe9");
    }
}
