//! Test lab for the real binaries: a temporary directory, and servers and workers that are killed
//! when they are dropped.

#![forbid(unsafe_code)]

mod agq;
mod agw;
mod chat_server;
mod editor;
mod lab;
mod memory;
mod pooler;
mod port;
mod postgres;
mod proxy;
mod s3;
#[cfg(feature = "schema")]
mod schema;
mod wait;

pub use agq::{Agq, ResourceLimit};
pub use agw::Agw;
pub use chat_server::{ChatAnswer, ChatRequest, ChatServer};
pub use editor::Editor;
pub use lab::{Lab, Ran};
pub use memory::peak_memory_kib;
pub use pooler::Pooler;
pub use postgres::{Database, FOR_TESTS, Postgres, SHARED};
pub use proxy::Proxy;
pub use s3::S3;
pub use wait::{eventually, is_gone, within};
