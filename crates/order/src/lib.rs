//! Signed orders: a plan and the terms under which workers may run it.
//!
//! An [`Order`] is the payload of a DSSE [`Envelope`], which signs the exact bytes of the order
//! with Ed25519. A worker opens the envelope with the [`TrustFile`] of its owner, so it depends
//! neither on agq nor on the client. A [`Statement`] is the provenance of a task, which a
//! worker signs in the same way. The crate is pure: files, clocks and random numbers are
//! arguments.
//!
//! # Examples
//!
//! ```
//! use agenix_order::{Envelope, Grant, Order, SignatureKind, SigningKey, TrustFile, verify};
//! use agenix_protocol::time::Timestamp;
//!
//! let key = SigningKey::from_seed(&[7; 32]);
//! let order: Order = serde_json::from_str(
//!     r#"{"v": 1,
//!         "plan": {"tasks": [{"task_number": 1, "command": "date"}]},
//!         "terms": {"for": ["prod-eu"], "not_after": "2026-12-01T00:00:00Z", "serial": "a1"}}"#,
//! )?;
//! let mut envelope = Envelope::new(&order);
//! envelope.sign(&key, SignatureKind::Order);
//! let json = envelope.to_json();
//!
//! let trust = format!("[signers.ci]\nkey = \"{}\"\nprofile = \"reader\"", key.public());
//! let trust = TrustFile::parse(&trust)?;
//! let now = Timestamp::parse("2026-11-30T00:00:00Z").unwrap();
//! let verified = verify(&json, &trust, "prod-eu", now)?;
//! assert_eq!(verified.signers, ["ci"]);
//! assert_eq!(verified.grant, Grant::Profile("reader".into()));
//!
//! let elsewhere = verify(&json, &trust, "prod-us", now).unwrap_err();
//! assert_eq!(elsewhere.to_string(), "the order is for prod-eu, and this worker is in prod-us");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod canonical;
mod digest;
mod dsse;
mod error;
mod input_tree;
mod inputs;
mod key;
mod order;
mod serials;
mod statement;
mod trust;
mod verify;

pub use digest::{DigestSet, StreamHasher, sha256};
pub use dsse::{Envelope, Signature, SignatureKind, pae};
pub use error::{
    InvalidEnvelope, InvalidKey, InvalidOrder, InvalidStatement, InvalidTrustFile, Unacceptable,
};
pub use input_tree::{InputTree, PROOF_FIELD, inputs_root};
pub use inputs::InputBounds;
pub use key::{KeyId, PublicKey, SigningKey};
pub use order::{APPROVAL_TYPE, ORDER_TYPE, Order, OrderLimits, Terms, is_name};
pub use serials::{SerialLog, SerialUse};
pub use statement::{
    BuildDefinition, Builder, ExitAnnotations, Provenance, Resource, RunDetails, RunMetadata,
    STATEMENT_PAYLOAD_TYPE, Statement, StreamBytes, Subject, TaskEnd, TaskFacts, TaskIdentity, TaskRun,
};
pub use trust::{Grant, Signer, TrustFile};
pub use verify::{Opened, Verified, open, verify};
