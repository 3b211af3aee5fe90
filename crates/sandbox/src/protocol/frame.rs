//! Frames: a length and a JSON document. The decoder takes bytes in any portions, and bounds the
//! memory that a peer can make it use.

use std::marker::PhantomData;

use super::message::Message;

/// Bytes of the length before each document.
const LENGTH_BYTES: usize = 4;

/// Error for bytes that are not a frame. The connection cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The document is longer than its message may be, or empty.
    #[error("a message of {0} bytes: its length is from 1 to {1}")]
    Length(usize, usize),
    /// The document is not a message.
    #[error("not a message: {0}")]
    Document(String),
    /// The connection ended within a frame.
    #[error("the connection ended within a message")]
    Truncated,
    /// The message has another number of descriptors than its document states.
    #[error("{0} descriptors with a message that has {1}")]
    Descriptors(usize, usize),
}

/// Returns the frame of `message`.
///
/// # Errors
///
/// Returns an error if the message is too long.
pub fn encode<M: Message>(message: &M) -> Result<Vec<u8>, Malformed> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, message).map_err(|error| Malformed::Document(error.to_string()))?;
    let length = frame.len() - LENGTH_BYTES;
    let prefix = u32::try_from(length).ok().filter(|_| length <= M::MAX_BYTES);
    let prefix = prefix.ok_or(Malformed::Length(length, M::MAX_BYTES))?;
    frame[..LENGTH_BYTES].copy_from_slice(&prefix.to_be_bytes());
    Ok(frame)
}

/// Decoder of a stream of frames with messages `M`.
#[derive(Debug)]
pub struct FrameDecoder<M> {
    bytes: Vec<u8>,
    /// Number of bytes at the start of `bytes` that were decoded.
    decoded: usize,
    message: PhantomData<fn() -> M>,
}

impl<M> Default for FrameDecoder<M> {
    fn default() -> Self {
        Self { bytes: Vec::new(), decoded: 0, message: PhantomData }
    }
}

impl<M: Message> FrameDecoder<M> {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.decoded);
        self.decoded = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next message, or `None` until more bytes arrive.
    ///
    /// # Errors
    ///
    /// Returns an error for bytes that are not a frame of a message. The decoder is of no use then.
    pub fn next_message(&mut self) -> Result<Option<M>, Malformed> {
        let rest = &self.bytes[self.decoded..];
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length == 0 || length > M::MAX_BYTES {
            return Err(Malformed::Length(length, M::MAX_BYTES));
        }
        let Some(document) = rest.get(..length) else { return Ok(None) };
        let message =
            serde_json::from_slice(document).map_err(|error| Malformed::Document(error.to_string()))?;
        self.decoded += LENGTH_BYTES + length;
        Ok(Some(message))
    }

    /// Checks that no part of a frame is left at the end of the connection.
    ///
    /// # Errors
    ///
    /// Returns [`Malformed::Truncated`] if a part is left.
    pub fn finish(&self) -> Result<(), Malformed> {
        if self.decoded == self.bytes.len() { Ok(()) } else { Err(Malformed::Truncated) }
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::byte_escape;
    use proptest::prelude::*;

    use super::{FrameDecoder, Malformed, encode};
    use crate::protocol::{
        Message, Sink, Source, SupervisorReply, SupervisorRequest, TaskSignal, TaskStart,
        message::{MAX_REPLY_BYTES, MAX_REQUEST_BYTES},
    };

    fn all<M: Message>(decoder: &mut FrameDecoder<M>) -> Result<Vec<M>, Malformed> {
        std::iter::from_fn(|| decoder.next_message().transpose()).collect()
    }

    #[test]
    fn frame_has_its_length_in_front() {
        assert_eq!(encode(&SupervisorRequest::Clean).unwrap(), b"\0\0\0\x07\"clean\"");
    }

    #[test]
    fn decoder_refuses_lengths_out_of_bounds() {
        for length in [0, MAX_REPLY_BYTES + 1, u32::MAX as usize] {
            let mut decoder = FrameDecoder::<SupervisorReply>::default();
            decoder.push(&u32::try_from(length).unwrap().to_be_bytes());
            let refused = decoder.next_message();
            assert_eq!(refused, Err(Malformed::Length(length, MAX_REPLY_BYTES)));
        }
        let mut decoder = FrameDecoder::<SupervisorReply>::default();
        decoder.push(&u32::try_from(MAX_REPLY_BYTES).unwrap().to_be_bytes());
        assert_eq!(decoder.next_message(), Ok(None), "the longest one is awaited");
    }

    #[test]
    fn encoder_refuses_a_message_that_the_decoder_would_refuse() {
        let begin = |length| SupervisorRequest::Begin { programs: vec!["x".repeat(length)] };
        let frame_of_empty = encode(&begin(0)).unwrap().len() - 4;
        assert!(encode(&begin(MAX_REQUEST_BYTES - frame_of_empty)).is_ok());
        assert!(encode(&begin(MAX_REQUEST_BYTES - frame_of_empty + 1)).is_err());
    }

    #[test]
    fn decoder_refuses_the_end_within_a_frame() {
        let mut decoder = FrameDecoder::<SupervisorRequest>::default();
        decoder.finish().unwrap();
        decoder.push(b"\0\0\0\x07\"clea");
        assert_eq!((decoder.next_message(), decoder.finish()), (Ok(None), Err(Malformed::Truncated)));
        decoder.push(b"n\"");
        assert_eq!(all(&mut decoder), Ok(vec![SupervisorRequest::Clean]));
        decoder.finish().unwrap();
    }

    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec(any::<u8>(), 0..12).prop_map(|bytes| byte_escape::encode(&bytes).into_owned())
    }

    fn request() -> impl Strategy<Value = SupervisorRequest> {
        let sink = prop_oneof![Just(Sink::Null), Just(Sink::Stdout), text().prop_map(Sink::Path)];
        let start =
            (any::<u32>(), text(), prop::collection::vec(text(), 0..4), prop::option::of(text()), sink);
        prop_oneof![
            Just(SupervisorRequest::Clean),
            prop::collection::vec(text(), 0..4).prop_map(|programs| SupervisorRequest::Begin { programs }),
            any::<u32>().prop_map(|task| SupervisorRequest::Signal { task, signal: TaskSignal::Kill }),
            start.prop_map(|(task, program, argv, cwd, stdout)| {
                let (env, stderr) = (vec![(program.clone(), program.clone())], Sink::Descriptor);
                SupervisorRequest::Start(TaskStart {
                    task,
                    program,
                    argv,
                    env,
                    cwd,
                    stdin: Source::Empty,
                    stdout,
                    stderr,
                    is_last: false,
                    worker_env: vec![],
                    memory: None,
                })
            }),
        ]
    }

    proptest! {
        #[test]
        fn frames_are_decoded_in_any_portions(
            requests in prop::collection::vec(request(), 0..5), portion in 1..40_usize
        ) {
            let bytes: Vec<u8> = requests.iter().flat_map(|request| encode(request).unwrap()).collect();
            let (mut decoder, mut decoded) = (FrameDecoder::<SupervisorRequest>::default(), Vec::new());
            for portion in bytes.chunks(portion) {
                decoder.push(portion);
                decoded.extend(all(&mut decoder).unwrap());
            }
            decoder.finish().unwrap();
            prop_assert_eq!(decoded, requests);
        }

        #[test]
        fn decoder_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..200_usize) {
            let mut decoder = FrameDecoder::<SupervisorRequest>::default();
            let (one, two) = bytes.split_at(cut.min(bytes.len()));
            for portion in [one, two] {
                decoder.push(portion);
                let _ = all(&mut decoder);
            }
        }

        #[test]
        fn decoder_survives_a_changed_byte(
            request in request(), at in any::<prop::sample::Index>(), byte in any::<u8>()
        ) {
            let mut frame = encode(&request).unwrap();
            let at = at.index(frame.len());
            frame[at] = byte;
            let mut decoder = FrameDecoder::<SupervisorRequest>::default();
            decoder.push(&frame);
            let _ = all(&mut decoder);
        }
    }
}
