//! Text from programs, which is data: escaped, so that it cannot act on a terminal or hide, and cut
//! to a number of bytes of JSON.

use agenix_protocol::printable::{byte_text, is_hidden, push_escaped};

/// Part of an output that fits into a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramText {
    /// The text, with hidden characters and bytes that are not UTF-8 as `\x1b` or `\u202e`.
    pub(crate) text: String,
    /// Number of bytes of the output that `text` stands for.
    pub(crate) consumed: usize,
}

/// Returns the beginning of `bytes` that takes at most `budget` bytes within a JSON string.
pub(crate) fn escape_within(bytes: &[u8], budget: usize) -> ProgramText {
    let (mut text, mut consumed, mut used) = (String::new(), 0, 0);
    let mut take = |shown: &str, length: usize| {
        let cost = json_bytes(shown);
        if used + cost > budget {
            return false;
        }
        used += cost;
        consumed += length;
        text.push_str(shown);
        true
    };
    'chunks: for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if !take(&shown(c), c.len_utf8()) {
                break 'chunks;
            }
        }
        for byte in chunk.invalid() {
            if !take(&byte_text(*byte), 1) {
                break 'chunks;
            }
        }
    }
    ProgramText { text, consumed }
}

/// Returns the end of `bytes` that takes at most `budget` bytes within a JSON string.
pub(crate) fn escape_end_within(bytes: &[u8], budget: usize) -> ProgramText {
    let mut start = bytes.len().saturating_sub(budget);
    loop {
        // A character is not cut at its beginning.
        while start < bytes.len() && bytes[start] & 0xc0 == 0x80 {
            start += 1;
        }
        let end = escape_within(&bytes[start..], budget);
        let missing = bytes.len() - start - end.consumed;
        if missing == 0 {
            return end;
        }
        start += missing;
    }
}

/// Returns the form of a character: line feeds and tabs stay.
fn shown(c: char) -> String {
    let mut shown = String::new();
    if is_hidden(c) && !matches!(c, '\n' | '\t') {
        push_escaped(&mut shown, c);
    } else {
        shown.push(c);
    }
    shown
}

/// Returns the number of bytes of `text` within a JSON string.
fn json_bytes(text: &str) -> usize {
    let of = |c: char| if matches!(c, '"' | '\\' | '\n' | '\t') { 2 } else { c.len_utf8() };
    text.chars().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::{escape_end_within, escape_within};

    #[test]
    fn text_of_a_program_is_escaped() {
        let text = escape_within(b"a\x1b[2J\r\n\xff\xc3\xa4\xe2\x80\xae\t", 1000);
        assert_eq!(text.text, "a\\x1b[2J\\r\n\\xffä\\u202e\t");
        assert_eq!(text.consumed, 14);
    }

    #[test]
    fn budget_counts_bytes_of_json() {
        for budget in 0..40 {
            let bytes = "\u{1b}\"ä\u{202e}\nfoo".as_bytes();
            for text in [escape_within(bytes, budget), escape_end_within(bytes, budget)] {
                let json = serde_json::to_string(&text.text).unwrap();
                assert!(json.len() - 2 <= budget, "{budget}: {json}");
            }
        }
        let whole = escape_within("\u{1b}\"ä".as_bytes(), 9);
        assert_eq!((whole.text.as_str(), whole.consumed), ("\\x1b\"ä", 4));
        assert_eq!(escape_within("\u{1b}\"ä".as_bytes(), 8).consumed, 2);
    }

    #[test]
    fn end_of_a_text_is_cut_before_a_character() {
        assert_eq!(escape_end_within("aäb".as_bytes(), 2).text, "b");
        assert_eq!(escape_end_within("aäb".as_bytes(), 3).text, "äb");
        assert_eq!(escape_end_within(b"short", 100).text, "short");
    }
}
