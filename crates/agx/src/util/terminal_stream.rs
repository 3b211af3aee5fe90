//! Streams of task output: they write the bytes of tasks to stdout or stderr, and escape them for a
//! terminal.

use std::{
    io::{self, IsTerminal, Write},
    sync::{LazyLock, Once},
};

use agenix_protocol::{
    blob::OutputStream,
    printable::{byte_text, is_control, push_escaped},
};
use rustix::io::Errno;

/// Number of bytes that are escaped at once.
const PART_BYTES: usize = 16 * 1024;

/// Returns true if `stream` of agx is a terminal. The system is asked once, because agx prints the
/// output of many thousand jobs.
pub(crate) fn is_terminal(stream: OutputStream) -> bool {
    static IS_STDOUT: LazyLock<bool> = LazyLock::new(|| io::stdout().is_terminal());
    static IS_STDERR: LazyLock<bool> = LazyLock::new(|| io::stderr().is_terminal());
    match stream {
        OutputStream::Stdout => *IS_STDOUT,
        OutputStream::Stderr => *IS_STDERR,
    }
}

/// Stdout or stderr of agx, for the bytes of one stream of a task.
#[derive(Debug)]
pub(crate) struct TerminalStream {
    stream: OutputStream,
    /// `None` if the bytes are written unchanged.
    escaper: Option<ByteEscaper>,
    /// True if bytes for a terminal that is gone are dropped.
    outlives_terminal: bool,
}

impl TerminalStream {
    pub(crate) fn new(stream: OutputStream, is_escaped: bool, outlives_terminal: bool) -> Self {
        let outlives_terminal = outlives_terminal && stream == OutputStream::Stdout;
        Self { stream, escaper: is_escaped.then(ByteEscaper::default), outlives_terminal }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = match &mut self.escaper {
            Some(escaper) => escaper.escape(bytes, |text| write_to(self.stream, text)),
            None => write_to(self.stream, bytes),
        };
        unless_gone(written, self.outlives_terminal)
    }

    /// Returns true if nothing waits for further bytes.
    pub(crate) fn is_ended(&self) -> bool {
        self.escaper.as_ref().is_none_or(|escaper| escaper.begun.is_empty())
    }

    /// Writes the bytes that wait for further ones, because the stream has ended. The next bytes
    /// are those of another stream.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let Some(rest) = self.escaper.as_mut().and_then(ByteEscaper::end) else { return Ok(()) };
        let written = write_to(self.stream, rest.as_bytes()).and_then(|()| match self.stream {
            OutputStream::Stdout => flush_stdout(),
            OutputStream::Stderr => Ok(()),
        });
        unless_gone(written, self.outlives_terminal)
    }
}

pub(crate) fn flush_stdout() -> io::Result<()> {
    agenix_cli::stdout()?.flush()
}

/// Returns the result of a write to stdout, which succeeds without its terminal if the command
/// outlives the terminal. A line on stderr, which may be a file, says so once.
pub(crate) fn unless_gone(written: io::Result<()>, outlives_terminal: bool) -> io::Result<()> {
    static NOTED: Once = Once::new();
    match written {
        // Linux and other systems return EIO for a terminal that was closed.
        Err(error) if outlives_terminal && error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
            NOTED.call_once(|| {
                let note = "agx: the terminal is gone, and output for it is dropped";
                // A closed stderr is not an error.
                let _unread = writeln!(io::stderr(), "{note}");
            });
            Ok(())
        }
        written => written,
    }
}

fn write_to(stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        OutputStream::Stdout => agenix_cli::stdout()?.write_all(bytes),
        OutputStream::Stderr => io::stderr().write_all(bytes),
    }
}

/// Escapes bytes that come in chunks: control characters, and bytes that are not UTF-8. Line feeds,
/// tabs, and carriage returns before a line feed stay. A carriage return alone would let a task
/// overwrite the line, so it is escaped too.
#[derive(Debug, Default)]
struct ByteEscaper {
    /// Last bytes, which mean nothing without the next one: a carriage return, or the beginning of
    /// a character.
    begun: Vec<u8>,
}

impl ByteEscaper {
    fn escape(&mut self, bytes: &[u8], mut write: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        for part in bytes.chunks(PART_BYTES) {
            let mut whole = std::mem::take(&mut self.begun);
            whole.extend_from_slice(part);
            self.begun = whole.split_off(whole.len() - begun_bytes(&whole));
            write(escaped(&whole).as_bytes())?;
        }
        Ok(())
    }

    /// Returns the text of the bytes that waited, if there are any.
    fn end(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.begun);
        (!rest.is_empty()).then(|| escaped(&rest))
    }
}

/// Returns the number of bytes at the end of `bytes` whose text depends on the next byte.
fn begun_bytes(bytes: &[u8]) -> usize {
    if bytes.ends_with(b"\r") {
        return 1;
    }
    let begins_character = |length: &usize| {
        let end = bytes.len().checked_sub(*length).map(|from| &bytes[from..]);
        let error = end.and_then(|end| std::str::from_utf8(end).err());
        error.is_some_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..char::MAX_LEN_UTF8).find(begins_character).unwrap_or(0)
}

fn escaped(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut chars = chunk.valid().chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\n' | '\t' => shown.push(c),
                '\r' if chars.peek() == Some(&'\n') => shown.push(c),
                // Joiners without a width are parts of words and emoji.
                c if !is_control(c) => shown.push(c),
                c => push_escaped(&mut shown, c),
            }
        }
        chunk.invalid().iter().for_each(|&byte| shown.push_str(&byte_text(byte)));
    }
    shown
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        byte_escape::encode,
        printable::{is_control, is_hidden, printable},
    };

    use super::{ByteEscaper, Errno, PART_BYTES, begun_bytes, escaped, io, unless_gone};

    /// Text with everything that needs more than one byte to be recognized, and its escaped form.
    const SAMPLE: &[u8] =
        b"a\tb\r\nc\rd\r\r\n\x1b[31m\x1b]52;c;eA==\x07\xc2\x9bA\x9b\x80\x7f\xe2\x80\xae\xc3\xa9\xe6\x97\xa5\xf0\x9f\x99\x82\xf0\x9f\x99x\xed\xa0\x80\xc0\xaf\xe2\x80\xa8\\r\0\xe6\x97";
    const SHOWN: &str = "a\tb\r\nc\\rd\\r\r\n\\x1b[31m\\x1b]52;c;eA==\\x07\\u009bA\\x9b\\x80\\u007f\\u202eé日🙂\\xf0\\x9f\\x99x\\xed\\xa0\\x80\\xc0\\xaf\\u2028\\r\\x00\\xe6\\x97";

    fn of_chunks(chunks: &[&[u8]]) -> String {
        let (mut escaper, mut shown) = (ByteEscaper::default(), Vec::new());
        let mut write = |text: &[u8]| {
            shown.extend_from_slice(text);
            Ok(())
        };
        for chunk in chunks {
            escaper.escape(chunk, &mut write).unwrap();
        }
        let rest = escaper.end().unwrap_or_default();
        assert!(escaper.end().is_none());
        String::from_utf8(shown).unwrap() + &rest
    }

    #[test]
    fn terminal_stream_escapes_what_a_terminal_would_act_on() {
        assert_eq!(of_chunks(&[SAMPLE]), SHOWN);
        assert_eq!(of_chunks(&[]), "");
        assert_eq!(of_chunks(&[b"\r"]), "\\r");
    }

    #[test]
    fn terminal_stream_does_not_depend_on_the_chunks() {
        for first in 0..=SAMPLE.len() {
            for second in first..=SAMPLE.len() {
                let chunks = [&SAMPLE[..first], &SAMPLE[first..second], &SAMPLE[second..]];
                assert_eq!(of_chunks(&chunks), SHOWN, "split at {first} and {second}");
            }
        }
        let bytes: Vec<&[u8]> = SAMPLE.chunks(1).collect();
        assert_eq!(of_chunks(&bytes), SHOWN);
    }

    #[test]
    fn terminal_stream_escapes_large_chunks_in_parts() {
        for before in 0..4 {
            let bytes = [vec![b'x'; PART_BYTES - before], "日\r\n".into()].concat();
            let (mut escaper, mut writes) = (ByteEscaper::default(), Vec::new());
            let write = |text: &[u8]| {
                writes.push(text.to_vec());
                Ok(())
            };
            escaper.escape(&bytes, write).unwrap();
            assert_eq!(writes.concat(), bytes);
            assert!(writes.iter().all(|text| text.len() <= PART_BYTES + 3), "at most a part at once");
            assert!(escaper.begun.is_empty());
        }
    }

    #[test]
    fn terminal_stream_waits_only_for_characters_that_may_be_completed() {
        for (bytes, begun) in [
            (&b""[..], 0),
            (b"a\r", 1),
            (b"\xc3", 1),
            (b"x\xe6\x97", 2),
            (b"\xf0\x9f\x99", 3),
            ("日".as_bytes(), 0),
            (b"\x9b", 0),
            (b"\xc0", 0),
            (b"\xed\xa0", 0),
            (b"\xc3\xa9\x80", 0),
        ] {
            assert_eq!(begun_bytes(bytes), begun, "{bytes:?}");
        }
    }

    #[test]
    fn output_for_a_terminal_that_is_gone_is_dropped_if_the_command_outlives_it() {
        let failed = |errno: Errno| Err(io::Error::from(errno));
        assert!(unless_gone(failed(Errno::IO), true).is_ok());
        assert!(unless_gone(failed(Errno::IO), false).is_err());
        for other in [Errno::PIPE, Errno::NOSPC] {
            assert!(unless_gone(failed(other), true).is_err(), "{other}");
        }
    }

    /// Texts have one escaped form, whether agx shows them itself or a task writes them. Only
    /// messages escape characters without a width.
    #[test]
    fn terminal_stream_escapes_like_messages() {
        for byte in 0..=u8::MAX {
            let bytes = [b'a', byte, b'b'];
            assert_eq!(escaped(&bytes), printable(&encode(&bytes)), "{byte}");
        }
        for c in (0..0x1_0000).filter_map(char::from_u32) {
            let text = format!("a{c}b");
            let stays = is_hidden(c) && !is_control(c);
            assert_eq!(escaped(text.as_bytes()), if stays { text } else { printable(&text) }, "{c:?}");
        }
    }
}
