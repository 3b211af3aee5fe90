//! Protocol between a worker and a supervisor, over a Unix stream socket.
//!
//! A frame is a length of four bytes, most significant byte first, and a JSON document of that
//! length. Descriptors are sent with the first byte of their frame (`SCM_RIGHTS`). The document
//! states the number of descriptors. Paths, arguments and values are byte escapes
//! ([`agenix_protocol::byte_escape`]), because they need not be UTF-8.
//!
//! The worker sends [`SupervisorRequest`]s, which it may send ahead. The supervisor answers each
//! `begin`, `start` and `clean` once, in their order, and reports the end of each started task.
//! Both sides end the connection after a malformed frame.
//!
//! | Request | Answer |
//! |---|---|
//! | (start of the supervisor) | `ready`, or `refused` and the end |
//! | `begin`: programs of a job | `begun` or `failed` |
//! | `start`: a task | `started` or `failed`; later `ended`, and `cleaned` if it is the last task |
//! | `signal`: a task | none |
//! | `clean`: end of the job | `ended` for each task that still ran, `cleaned` |

#[cfg(target_os = "linux")]
mod channel;
mod frame;
mod message;

#[cfg(target_os = "linux")]
pub use channel::{Channel, ReceiveError};
#[cfg(target_os = "linux")]
pub(crate) use channel::{pair, queue, send, send_frames};
pub use frame::{FrameDecoder, Malformed, encode};
pub use message::{
    Cleaned, MAX_DESCRIPTORS, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Message, ResourceUsage, Sink, Source,
    SupervisorReply, SupervisorRequest, TaskExit, TaskSignal, TaskStart,
};
