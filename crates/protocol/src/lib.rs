//! Wire protocol of AGEniX: the types that agx, agq and agw exchange, their parsers and encoders.
//!
//! The crate is pure: it reads no clock, no file and no socket, so every function maps values to
//! values. The crate checks the form of data, and `agenix-rules` decides whether an operation is
//! allowed. Parsers never allocate memory for an announced length, and [`limits`] bounds all input.
//!
//! # Reading order
//!
//! 1. [`resp`]: the codec between bytes, commands and replies.
//! 2. [`request`]: the table of commands, and the parser from arguments to a [`request::Request`].
//! 3. [`documents`]: the JSON documents in arguments and replies, such as plans and job statuses.
//! 4. [`ids`], [`reserved_keys`], [`time`] and [`limits`]: checked identifiers, reserved keys,
//!    points in time and bounds.
//! 5. [`template`], [`inputs`] and [`glob`]: placeholders of plans, the fields of inputs that they
//!    name, and patterns of names.
//! 6. [`byte_escape`]: text for bytes that are not UTF-8.
//!
//! # Examples
//!
//! The decoder yields the arguments of a command once all bytes have arrived, and the table of
//! commands gives them their meaning:
//!
//! ```
//! use agenix_protocol::{limits::Limits, request::Request, resp::CommandDecoder};
//! use bytes::BytesMut;
//! use tokio_util::codec::Decoder;
//!
//! let mut decoder = CommandDecoder::new(&Limits::default());
//! let mut buffer = BytesMut::from("*2\r\n$4\r\nECHO\r\n$5\r\nhel");
//! assert_eq!(decoder.decode(&mut buffer)?, None);
//!
//! buffer.extend_from_slice(b"lo\r\n");
//! let args = decoder.decode(&mut buffer)?.unwrap();
//! let (command, request) = Request::parse(&args)?;
//! assert_eq!(command.name, "ECHO");
//! assert_eq!(request, Request::Echo { message: "hello".into() });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Unknown fields of a plan are errors that name their place:
//!
//! ```
//! use agenix_protocol::documents::{Plan, parse};
//!
//! let json = br#"{"tasks": [{"task_number": 1, "command": "sort", "args": ["-u"]}]}"#;
//! let plan: Plan = parse(json)?;
//! assert_eq!(plan.tasks[0].args, ["-u"]);
//!
//! let error = parse::<Plan>(br#"{"tasks": [{"task_number": 1, "comand": "sort"}]}"#).unwrap_err();
//! assert!(error.to_string().starts_with("tasks[0].comand: unknown field `comand`"));
//! # Ok::<(), agenix_protocol::documents::BadDocument>(())
//! ```

#![forbid(unsafe_code)]

pub mod blob;
pub mod blob_blocks;
pub mod byte_escape;
pub mod documents;
pub mod errors;
pub mod glob;
pub mod ids;
pub mod inputs;
pub mod limits;
pub mod printable;
pub mod request;
pub mod reserved_keys;
pub mod resp;
pub mod template;
pub mod time;
