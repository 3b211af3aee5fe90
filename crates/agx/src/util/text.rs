//! Text files from users and other programs: byte order marks, other encodings, line ends of
//! Windows.

use std::path::Path;

use agenix_protocol::byte_escape::encode_os;
use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::error::CliError;

/// Byte order mark that some editors and PowerShell put before UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Advice about a carriage return.
pub(crate) const CRLF_HELP: &str = "the list has the line ends of Windows (CRLF), and the carriage return is a part of each input: remove it \
                                    with `tr -d '\\r'`";

/// Returns the parser of an argument that may have any bytes. The text of the argument has byte
/// escapes.
pub(crate) fn any_bytes() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|argument| encode_os(&argument))
}

/// Returns the failure for a file in another encoding.
pub(crate) fn not_utf_8(file: &Path, encoding: &str) -> CliError {
    CliError::usage(
        format!("{} is {encoding}, and text is read as UTF-8", file.display()),
        format!("convert it: iconv -f {encoding} -t UTF-8 FILE; in PowerShell write it with -Encoding utf8"),
    )
}

/// Returns `bytes` without a UTF-8 byte order mark. The error names UTF-16 or UTF-32.
pub(crate) fn without_mark(bytes: &[u8]) -> Result<&[u8], &'static str> {
    match bytes {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Err("UTF-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Err("UTF-16"),
        // UTF-16 without a mark: JSON begins with an ASCII character, whose other byte is 0.
        [0, b'[' | b'{', 0, ..] | [b'[' | b'{', 0, _, 0, ..] => Err("UTF-16"),
        _ => Ok(bytes.strip_prefix(MARK).unwrap_or(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::without_mark;

    #[test]
    fn text_drops_the_byte_order_mark_and_names_other_encodings() {
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let big = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
        assert_eq!(without_mark(b"\xef\xbb\xbf[1]"), Ok(&b"[1]"[..]));
        assert_eq!(without_mark(b"\xef\xbb\xbf\xef\xbb\xbf"), Ok(&b"\xef\xbb\xbf"[..]), "the second is text");
        for plain in
            [&b"[1]"[..], b"", b"\xef\xbb", b"\xff", b"a\0b", b"\0\0\0\0", b"a\0b\0", "é\u{feff}".as_bytes()]
        {
            assert_eq!(without_mark(plain), Ok(plain));
        }
        for text in ["\u{feff}[1]", "[1]", "\u{feff}"] {
            assert_eq!(without_mark(&utf16(text)), Err("UTF-16"), "{text}");
            assert_eq!(without_mark(&big(text)), Err("UTF-16"), "{text}");
        }
        assert_eq!(without_mark(b"\xff\xfe\0\0[\0\0\0"), Err("UTF-32"));
    }
}
