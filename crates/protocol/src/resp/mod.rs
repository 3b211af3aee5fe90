//! The RESP codec (RESP spec §7): commands in, replies out, over `tokio_util::codec`.

mod decoder;
mod encoder;
mod inline;

pub use decoder::{CommandDecoder, FrameError};
pub use encoder::{Reply, ReplyEncoder, RespVersion};
