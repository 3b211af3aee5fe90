//! Fuzz targets. A target takes any bytes, and panics if a property does not hold.
//!
//! The targets stand here once. `cargo fuzz` searches for bytes that break them (`cargo-fuzz/`),
//! and a test runs them over the corpus and over mutations of it, the same ones every time
//! (`tests/corpus.rs`).

#![forbid(unsafe_code)]

mod documents;
mod job_update;
mod order_envelope;
mod policy_argv;
mod request_parser;
mod resp_decoder;
mod sandbox_request;

use agenix_protocol::{
    limits::MAX_ERROR_LINE_BYTES,
    resp::{Reply, ReplyEncoder, RespVersion},
};
use bytes::BytesMut;
use tokio_util::codec::Encoder;

pub use self::{
    documents::{action_document, plan_document, worker_documents},
    job_update::job_update,
    order_envelope::order_envelope,
    policy_argv::policy_argv,
    request_parser::request_parser,
    resp_decoder::resp_decoder,
    sandbox_request::sandbox_request,
};

/// A property of any bytes.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// Name of the target and of its corpus, which `cargo fuzz run` takes.
    pub name: &'static str,
    /// Panics where the property does not hold of these bytes. Returns true if something in them
    /// was accepted.
    pub run: fn(&[u8]) -> bool,
}

/// Every target.
pub fn targets() -> [FuzzTarget; 9] {
    [
        FuzzTarget { name: "resp_decoder", run: resp_decoder },
        FuzzTarget { name: "request_parser", run: request_parser },
        FuzzTarget { name: "plan_document", run: plan_document },
        FuzzTarget { name: "action_document", run: action_document },
        FuzzTarget { name: "job_update", run: job_update },
        FuzzTarget { name: "worker_documents", run: worker_documents },
        FuzzTarget { name: "sandbox_request", run: sandbox_request },
        FuzzTarget { name: "policy_argv", run: policy_argv },
        FuzzTarget { name: "order_envelope", run: order_envelope },
    ]
}

/// A refusal becomes one line of bounded length, whatever it quotes.
fn check_refusal(line: String) {
    let mut bytes = BytesMut::new();
    let encoded = ReplyEncoder { version: RespVersion::Two }.encode(Reply::Error(line), &mut bytes);
    assert!(encoded.is_ok(), "a refusal can be written");
    assert!(bytes.len() <= MAX_ERROR_LINE_BYTES + 3, "a refusal has {} bytes", bytes.len());
    let Some([b'-', words @ ..]) = bytes.strip_suffix(b"\r\n") else { panic!("{bytes:?} is no error line") };
    assert!(!words.is_empty() && !words.contains(&b'\r') && !words.contains(&b'\n'), "{bytes:?}");
    assert!(std::str::from_utf8(words).is_ok(), "{bytes:?} is cut within a character");
}
