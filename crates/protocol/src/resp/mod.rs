//! RESP codec (RESP spec §7) over `tokio_util::codec`: decodes commands, and encodes replies.

mod decoder;
mod encoder;
mod inline;

pub use decoder::{CommandDecoder, FrameError};
pub use encoder::{Reply, ReplyEncoder, RespVersion};
