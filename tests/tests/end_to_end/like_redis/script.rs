//! Scripts of Redis commands, as tests/scripts/README.md describes them.

use std::{collections::BTreeSet, iter::Peekable};

/// Comparison of two replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// The same bytes.
    Exactly,
    /// The same elements.
    Sorted,
    /// The same elements, after the cursor was followed to its end.
    Scanned,
    /// Integers that differ by 5 % at most.
    Near,
    /// The same number.
    Number,
}

#[derive(Debug)]
pub(crate) struct ScriptLine {
    /// Line number in the script.
    pub(crate) line: usize,
    /// Text of the line.
    pub(crate) shown: String,
    /// Digit of the connection that the line uses.
    pub(crate) connection: char,
    /// Words of the command, empty if the line sends none.
    pub(crate) words: Vec<Vec<u8>>,
    /// True if the step reads a reply.
    pub(crate) reads: bool,
    /// Comparison of the replies.
    pub(crate) how: How,
}

/// Returns the steps of a script, followed by a PING on each connection, which checks that no other
/// reply is in flight.
pub(crate) fn steps(text: &str) -> Vec<ScriptLine> {
    let mut steps: Vec<ScriptLine> =
        (1..).zip(text.lines()).filter_map(|(line, text)| step(line, text)).collect();
    let connections: BTreeSet<char> = steps.iter().map(|step| step.connection).collect();
    let last = text.lines().count();
    steps.extend(connections.into_iter().filter_map(|connection| step(last, &format!("{connection}> PING"))));
    steps
}

fn step(line: usize, text: &str) -> Option<ScriptLine> {
    let text = text.trim_end();
    if text.is_empty() || text.starts_with('#') {
        return None;
    }
    let numbered = text.split_at_checked(1).filter(|(digit, rest)| {
        digit.starts_with(|c: char| c.is_ascii_digit()) && rest.starts_with(['>', '<'])
    });
    let first = |digit: &str| digit.chars().next().unwrap();
    let (connection, rest) = numbered.map_or(('1', text), |(digit, rest)| (first(digit), rest));
    let (reads, rest) = match rest.strip_prefix(">>") {
        Some(rest) => (false, rest),
        None => (true, rest.trim_start_matches(['>', '<'])),
    };
    let (how, command) = how(rest.trim_start());
    Some(ScriptLine { line, shown: text.to_owned(), connection, words: words(command), reads, how })
}

fn how(text: &str) -> (How, &str) {
    let hows = [
        ("@sorted ", How::Sorted),
        ("@scan ", How::Scanned),
        ("@near ", How::Near),
        ("@number ", How::Number),
    ];
    let found = hows.into_iter().find_map(|(word, how)| Some((how, text.strip_prefix(word)?)));
    found.unwrap_or((How::Exactly, text))
}

/// Splits a line into words, with the quoting of redis-cli.
fn words(text: &str) -> Vec<Vec<u8>> {
    let mut bytes = text.bytes().peekable();
    let mut words = Vec::new();
    while bytes.peek().is_some() {
        if bytes.next_if_eq(&b' ').is_some() {
            continue;
        }
        let word = if bytes.next_if_eq(&b'"').is_some() { quoted(&mut bytes) } else { plain(&mut bytes) };
        words.push(word);
    }
    words
}

fn plain(bytes: &mut Peekable<impl Iterator<Item = u8>>) -> Vec<u8> {
    let mut word = Vec::new();
    while let Some(byte) = bytes.next_if(|&byte| byte != b' ') {
        word.push(byte);
    }
    word
}

fn quoted(bytes: &mut impl Iterator<Item = u8>) -> Vec<u8> {
    let mut word = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return word,
            b'\\' => word.push(escaped(bytes)),
            other => word.push(other),
        }
    }
    panic!("a quote is never closed");
}

fn escaped(bytes: &mut impl Iterator<Item = u8>) -> u8 {
    match bytes.next().unwrap() {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'x' => {
            let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
            u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
        }
        other => other,
    }
}

#[test]
fn lines_say_what_they_do() {
    let read = steps("# a comment\n\nSET k \"a b\\x00\\\"\" \"\"\n2>> BRPOP l 0\n2<\n@near TTL k\n");
    assert_eq!(read[0].words, [b"SET".to_vec(), b"k".to_vec(), b"a b\x00\"".to_vec(), Vec::new()]);
    assert_eq!((read[0].line, read[0].connection, read[0].reads), (3, '1', true));
    assert_eq!((read[1].connection, read[1].reads, read[1].words.len()), ('2', false, 3));
    assert_eq!((read[2].connection, read[2].reads, read[2].words.len()), ('2', true, 0));
    assert_eq!((read[3].how, read[3].words.len()), (How::Near, 2));
    let last: Vec<&str> = read[4..].iter().map(|step| step.shown.as_str()).collect();
    assert_eq!(last, ["1> PING", "2> PING"]);
}
