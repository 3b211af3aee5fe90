//! Inline commands, for nc and telnet: one line with quotes, which LF alone may end.

use bytes::Bytes;

/// Splits a line into arguments as Redis does. Blanks separate, `"…"` has the escapes `\n \r \t \"
/// \\ \xHH`, and `'…'` has the escape `\'`. Returns `None` for unbalanced quotes.
pub(super) fn split(line: &[u8]) -> Option<Vec<Bytes>> {
    let mut args = Vec::new();
    let mut rest = line.trim_ascii();
    while !rest.is_empty() {
        let (arg, after) = word(rest)?;
        args.push(arg);
        rest = after.trim_ascii_start();
    }
    Some(args)
}

fn word(text: &[u8]) -> Option<(Bytes, &[u8])> {
    let mut arg = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at = match byte {
            b'"' => double_quoted(text, at + 1, &mut arg)?,
            b'\'' => single_quoted(text, at + 1, &mut arg)?,
            b if b.is_ascii_whitespace() => break,
            b => {
                arg.push(b);
                at + 1
            }
        };
    }
    Some((Bytes::from(arg), &text[at..]))
}

/// Reads up to the closing quote, which a blank or the end of the line has to follow.
fn single_quoted(text: &[u8], mut at: usize, arg: &mut Vec<u8>) -> Option<usize> {
    loop {
        match (text.get(at)?, text.get(at + 1)) {
            (b'\\', Some(b'\'')) => {
                arg.push(b'\'');
                at += 2;
            }
            (b'\'', next) => return next.is_none_or(u8::is_ascii_whitespace).then_some(at + 1),
            (&byte, _) => {
                arg.push(byte);
                at += 1;
            }
        }
    }
}

fn double_quoted(text: &[u8], mut at: usize, arg: &mut Vec<u8>) -> Option<usize> {
    loop {
        match text.get(at)? {
            b'"' => return text.get(at + 1).is_none_or(u8::is_ascii_whitespace).then_some(at + 1),
            b'\\' => {
                let (byte, used) = escape(&text[at + 1..])?;
                arg.push(byte);
                at += 1 + used;
            }
            &byte => {
                arg.push(byte);
                at += 1;
            }
        }
    }
}

fn escape(after: &[u8]) -> Option<(u8, usize)> {
    let hex = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    Some(match *after.first()? {
        b'n' => (b'\n', 1),
        b'r' => (b'\r', 1),
        b't' => (b'\t', 1),
        b'x' => match (after.get(1).copied().and_then(hex), after.get(2).copied().and_then(hex)) {
            (Some(high), Some(low)) => (high * 16 + low, 3),
            _ => (b'x', 1),
        },
        other => (other, 1),
    })
}

#[cfg(test)]
mod tests {
    use super::split;

    fn words(line: &str) -> Option<Vec<String>> {
        Some(split(line.as_bytes())?.iter().map(|w| String::from_utf8_lossy(w).into_owned()).collect())
    }

    #[test]
    fn inline_commands_have_quotes_and_escapes() {
        assert_eq!(words("  SET  k 'a b' ").unwrap(), ["SET", "k", "a b"]);
        assert_eq!(words(r#"SET k "a\x41\n\"b""#).unwrap(), ["SET", "k", "aA\n\"b"]);
        assert_eq!(words(r"SET k 'it\'s'").unwrap(), ["SET", "k", "it's"]);
        assert_eq!(words("").unwrap(), [""; 0]);
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        assert_eq!(words("SET k 'a"), None);
        assert_eq!(words("SET k \"a\"b"), None);
    }
}
