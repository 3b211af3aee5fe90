//! Escapes text from other sources, because a terminal would act on its control characters.

use agenix_shell::is_hidden;

/// Escapes control characters, characters that change the direction of text, and characters without
/// a width, as `\r`, `\x1b` or `\u202e`. Line feeds and tabs stay.
pub(crate) fn printable(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// Escapes like [`printable`], and line feeds and tabs too, so that the text takes one line.
pub(crate) fn one_line(text: &str) -> String {
    escaped(text, |_| false)
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if !is_hidden(c) || stays(c) => shown.push(c),
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
    use super::{one_line, printable};

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
            ("naïve 日本 🙂 \\r", "naïve 日本 🙂 \\r"),
        ] {
            assert_eq!(one_line(text), expected);
        }
        assert_eq!(printable("a\n\tb\r\u{1b}"), "a\n\tb\\r\\x1b");
    }
}
