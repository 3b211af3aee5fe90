//! Escapes text from other sources, because a terminal would act on its control characters.

use agenix_protocol::{
    byte_escape::{byte_of, decode},
    printable::escaped,
};

pub(crate) use agenix_protocol::printable::{one_line, printable, printable_json};

/// Escapes like [`printable`], and keeps byte escapes, because the text may be JSON.
pub(crate) fn printable_document(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t') || byte_of(c).is_some())
}

/// Escapes like [`one_line`], and keeps byte escapes for [`bytes_for`].
pub(crate) fn one_line_with_bytes(text: &str) -> String {
    escaped(text, |c| byte_of(c).is_some())
}

/// Returns what agx writes for a text with byte escapes: text such as `\xe9` if `is_escaped`, for a
/// terminal, and otherwise the bytes.
pub(crate) fn bytes_for(is_escaped: bool, text: &str) -> Vec<u8> {
    if is_escaped { printable(text).into_bytes() } else { decode(text).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::{bytes_for, one_line_with_bytes, printable, printable_document};

    #[test]
    fn printable_documents_and_files_keep_bytes() {
        assert_eq!(printable("\u{10fee9}\n\r"), "\\xe9\n\\r");
        assert_eq!(printable_document("\u{10fee9}\n\r"), "\u{10fee9}\n\\r");
        assert_eq!(one_line_with_bytes("\u{10fee9}\n"), "\u{10fee9}\\n");
        assert_eq!(bytes_for(false, "é\u{10fee9}"), b"\xc3\xa9\xe9");
        assert_eq!(bytes_for(true, "é\u{10fee9}"), "é\\xe9".as_bytes());
    }
}
