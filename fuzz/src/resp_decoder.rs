//! Decoder of commands: any split of the bytes is decoded alike, within the limits, and in bounded
//! memory.

use agenix_protocol::{
    limits::{Limits, MAX_INLINE_BYTES, exceeds},
    resp::CommandDecoder,
};
use bytes::{Bytes, BytesMut};
use tokio_util::codec::Decoder;

/// Commands that were decoded from a stream of bytes, and the error that ended the stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    commands: Vec<Vec<Bytes>>,
    error: Option<String>,
}

/// A few bytes and a few elements, so that limits are met; those that agq has; none at all.
fn settings() -> [Limits; 3] {
    let of =
        |max_message_bytes, max_elements| Limits { max_message_bytes, max_elements, ..Limits::default() };
    [of(64, 5), Limits::default(), of(0, 0)]
}

/// Bytes from a client.
pub fn resp_decoder(data: &[u8]) -> bool {
    let mut is_accepted = false;
    for limits in settings() {
        let whole = hear(&[data], &limits);
        for chunks in splits(data) {
            assert_eq!(hear(&chunks, &limits), whole, "split into {} chunks", chunks.len());
        }
        for command in &whole.commands {
            let again = Heard { commands: vec![command.clone()], error: None };
            assert_eq!(hear(&[&encoded(command)], &limits), again);
        }
        is_accepted |= !whole.commands.is_empty();
    }
    is_accepted
}

/// Reads what comes in chunks.
fn hear(chunks: &[&[u8]], limits: &Limits) -> Heard {
    let (mut decoder, mut buffer) = (CommandDecoder::new(limits), BytesMut::new());
    let (mut heard, mut received) = (Heard::default(), 0);
    for chunk in chunks {
        received += chunk.len();
        buffer.extend_from_slice(chunk);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(command)) => heard.commands.push(checked(command, limits)),
                Ok(None) => break,
                // The stream is out of step: agq closes the connection, and reads nothing more.
                Err(error) => return Heard { error: Some(error.to_string()), ..heard },
            }
        }
        check_memory(&decoder, buffer.len(), received, limits);
    }
    heard
}

fn checked(command: Vec<Bytes>, limits: &Limits) -> Vec<Bytes> {
    let bytes: usize = command.iter().map(Bytes::len).sum();
    assert!(!command.is_empty());
    assert!(!exceeds(command.len(), limits.max_elements), "{} elements", command.len());
    assert!(!exceeds(bytes, limits.max_message_bytes), "{bytes} bytes");
    command
}

/// Checks that the memory of an incomplete command is bounded by the limits and by the received
/// bytes: an announced length allocates nothing.
fn check_memory(decoder: &CommandDecoder, waiting: usize, received: usize, limits: &Limits) {
    let place = size_of::<Bytes>();
    let (held, few) = (decoder.held_bytes(), 16 * place);
    // An empty element takes six bytes on the wire and a place, or two where places are got ahead.
    assert!(held <= received * place / 3 + few, "{held} bytes are held of {received}");
    if limits.max_message_bytes > 0 && limits.max_elements > 0 {
        let most = limits.max_message_bytes + 2 * place * limits.max_elements + few;
        assert!(held <= most, "{held} bytes are held, most is {most}");
        let most = limits.max_message_bytes.max(33) + 1;
        assert!(waiting <= most.max(MAX_INLINE_BYTES + 1), "{waiting} bytes wait");
    }
}

/// Byte for byte where they are few, and in two ways that the bytes themselves decide.
fn splits(data: &[u8]) -> Vec<Vec<&[u8]>> {
    let seed = data.iter().fold(data.len() as u64, |seed, byte| seed.rotate_left(5) ^ u64::from(*byte));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut cut = |most: usize| {
        let (mut chunks, mut rest) = (Vec::new(), data);
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(random.usize(1..=most.min(rest.len())));
            chunks.push(chunk);
            rest = after;
        }
        chunks
    };
    let mut splits = vec![cut(data.len() / 2 + 1), cut(data.len() / 32 + 1)];
    if data.len() <= 128 {
        splits.push(data.chunks(1).collect());
    }
    splits
}

/// A command as clients send it.
fn encoded(command: &[Bytes]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for arg in command {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
