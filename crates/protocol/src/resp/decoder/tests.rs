//! Tests of accepted and refused input, of split input, and of the memory of incomplete commands.

use bytes::{Bytes, BytesMut};
use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use tokio_util::codec::Decoder;

use super::{CommandDecoder, FrameError};
use crate::limits::{Limits, MAX_INLINE_BYTES};

const MAX_ELEMENTS: usize = 3;

fn decoder(max_message_bytes: usize) -> CommandDecoder {
    let max_elements = MAX_ELEMENTS;
    CommandDecoder::new(&Limits { max_message_bytes, max_elements, ..Limits::default() })
}

fn decode(bytes: &[u8]) -> Result<Option<Vec<Bytes>>, FrameError> {
    decoder(100).decode(&mut BytesMut::from(bytes))
}

/// Returns a command as an array of bulk strings.
fn array(args: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n", arg.len()).bytes());
        bytes.extend(arg);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Returns a command as an inline line with every byte escaped.
fn line(args: &[Vec<u8>]) -> Vec<u8> {
    let escaped = |arg: &Vec<u8>| arg.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let words: Vec<String> = args.iter().map(|arg| format!("\"{}\"", escaped(arg))).collect();
    format!("{}\n", words.join(" ")).into_bytes()
}

#[test]
fn decoder_parses_arrays_and_inline_lines() {
    assert_eq!(decode(b"*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n").unwrap().unwrap(), ["PING", "hi"]);
    assert_eq!(decode(b"PING hi\n").unwrap().unwrap(), ["PING", "hi"]);
    assert_eq!(decode(b"\r\n*0\r\nPING\r\n").unwrap().unwrap(), ["PING"]);
    assert!(decode(b"*1\r\n$4\r\nPI").unwrap().is_none());
}

#[test]
fn decoder_limits_hold_at_the_edge_and_one_past_it() {
    let message = |n: usize| format!("*1\r\n${n}\r\n{}\r\n", "x".repeat(n)).into_bytes();
    assert!(decode(&message(100)).unwrap().is_some());
    assert!(matches!(decode(b"*1\r\n$101\r\n"), Err(FrameError::TooLarge(100))));
    assert!(decode(b"*3\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n").unwrap().is_some());
    assert!(matches!(decode(b"*4\r\n"), Err(FrameError::TooManyElements(3))));
    assert!(decoder(0).decode(&mut BytesMut::from(&message(5000)[..])).unwrap().is_some());
}

#[test]
fn decoder_limits_hold_for_inline_lines() {
    assert!(decode(b"a b c\n").unwrap().is_some());
    assert!(matches!(decode(b"a b c d\n"), Err(FrameError::TooManyElements(3))));
    assert!(matches!(decode(&[b'x'; 102]), Err(FrameError::TooLarge(100))));
    for (max_message_bytes, most) in [(100, 100), (0, MAX_INLINE_BYTES), (1 << 20, MAX_INLINE_BYTES)] {
        for (length, end) in
            [(most, "\n"), (most, "\r\n"), (most + 1, "\n"), (most + 1, "\r\n"), (most + 2, "")]
        {
            let bytes = ["x".repeat(length), end.into()].concat();
            for cut in [0, bytes.len() - 2, bytes.len() - 1] {
                let (first, last) = bytes.as_bytes().split_at(cut);
                let (mut decoder, mut src) = (decoder(max_message_bytes), BytesMut::from(first));
                let read = decoder.decode(&mut src).and_then(|early| {
                    assert_eq!(early, None);
                    src.extend_from_slice(last);
                    decoder.decode(&mut src)
                });
                assert_eq!(read.is_ok(), length <= most, "{length} of {most}, {end:?}, cut at {cut}");
            }
        }
    }
}

#[test]
fn broken_frames_are_errors() {
    for bytes in [&b"*x\r\n"[..], b"*1\r\n+PING\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$1\r\nab\r\n", b"SET 'a\n"] {
        assert!(matches!(decode(bytes), Err(FrameError::Broken(_))), "{bytes:?}");
    }
}

/// Strategy for the number in a header: most often up to `likely`, otherwise any number.
fn promise(likely: u64) -> impl Strategy<Value = String> {
    let text = |number: u64| number.to_string();
    prop_oneof![
        8 => (0..=likely).prop_map(text),
        1 => any::<u64>().prop_map(text),
        1 => Just("1".repeat(40)),
    ]
}

proptest! {
    #[test]
    fn any_split_decodes_the_same(args in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..4),
                                  cut in any::<prop::sample::Index>()) {
        let bytes = array(&args);
        let cut = cut.index(bytes.len());
        let (mut decoder, mut src) = (decoder(100), BytesMut::from(&bytes[..cut]));
        assert_eq!(decoder.decode(&mut src).unwrap(), None);
        src.extend_from_slice(&bytes[cut..]);
        assert_eq!(decoder.decode(&mut src).unwrap().unwrap(), args);
        assert!(src.is_empty());
    }

    #[test]
    fn commands_round_trip_in_both_forms_and_any_split(
        commands in prop::collection::vec((prop::collection::vec(prop::collection::vec(any::<u8>(), 0..8), 1..4),
                                           any::<bool>()), 0..8),
        chunks in prop::collection::vec(1..50_usize, 1..8),
    ) {
        let written = |(args, is_line): &(Vec<Vec<u8>>, bool)| if *is_line { line(args) } else { array(args) };
        let bytes: Vec<u8> = commands.iter().flat_map(written).collect();
        let (mut decoder, mut src, mut read) = (decoder(100), BytesMut::new(), Vec::new());
        let (mut rest, mut chunks) = (&bytes[..], chunks.iter().cycle());
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(rest.len().min(*chunks.next().unwrap()));
            src.extend_from_slice(chunk);
            rest = after;
            while let Some(command) = decoder.decode(&mut src).unwrap() {
                read.push(command);
            }
        }
        let written: Vec<Vec<Vec<u8>>> = commands.into_iter().map(|(args, _)| args).collect();
        prop_assert_eq!(read, written);
        prop_assert!(src.is_empty() && !decoder.has_begun() && decoder.held_bytes() == 0);
    }

    /// Huge counts and lengths, with and without the announced elements, byte by byte or at once.
    #[test]
    fn memory_of_an_incomplete_command_is_bounded(
        count in promise(40),
        elements in prop::collection::vec((promise(9), prop::collection::vec(any::<u8>(), 0..120)), 0..40),
        chunk in 1..40_usize,
    ) {
        let mut bytes = format!("*{count}\r\n").into_bytes();
        for (length, element) in &elements {
            // As many bytes as announced, or all there are.
            let given = length.parse().unwrap_or(usize::MAX).min(element.len());
            bytes.extend(format!("${length}\r\n").bytes());
            bytes.extend(&element[..given]);
            bytes.extend(b"\r\n");
        }
        let (max_message_bytes, max_elements, place) = (100, 40, size_of::<Bytes>());
        let limits = Limits { max_message_bytes, max_elements, ..Limits::default() };
        let (mut decoder, mut src, mut received) = (CommandDecoder::new(&limits), BytesMut::new(), 0);
        for chunk in bytes.chunks(chunk) {
            received += chunk.len();
            src.extend_from_slice(chunk);
            let Ok(None) = decoder.decode(&mut src) else { return Ok(()) };
            // The capacity doubles as elements arrive, and starts with 16.
            let (held, few) = (decoder.held_bytes(), 16 * place);
            prop_assert!(held <= max_message_bytes + 2 * max_elements * place, "{held} bytes are held");
            prop_assert!(held <= received + received / 6 * 2 * place + few, "{held} bytes are held of {received}");
            prop_assert!(src.len() <= max_message_bytes + 1, "{} bytes wait", src.len());
        }
    }
}
