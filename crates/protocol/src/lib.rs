//! What travels between agx, agq and agw: bytes in, values out.
//!
//! RESP frames, requests, replies, the JSON documents, checked ids and the limits. This crate is pure: it never
//! reads a clock, a file or a socket, and it never decides whether something is allowed; that is `agenix-rules`.

#![forbid(unsafe_code)]

pub mod documents;
pub mod errors;
pub mod glob;
pub mod ids;
pub mod limits;
pub mod names;
pub mod request;
pub mod resp;
pub mod template;
pub mod time;
