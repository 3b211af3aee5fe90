//! Errors. Each text is a reason that a person can act on.

use agenix_protocol::time::Timestamp;

/// Reason why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// The key has another algorithm.
    #[error("'{0}' is not a type of keys that sign orders: use ed25519 or ssh-ed25519")]
    Type(String),
    /// The text is not base64 of a key of this type.
    #[error("the text of the key is damaged: {0}")]
    Damaged(&'static str),
}

/// Reason why bytes are not an envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEnvelope {
    /// The JSON is not that of an envelope.
    #[error("{0}")]
    Json(String),
    /// A field is not base64.
    #[error("{0} is not base64 with padding")]
    Base64(&'static str),
    /// The number of signatures is illegal.
    #[error("it has {count} signatures: 1 to {max} are legal")]
    SignatureCount {
        /// Number of signatures.
        count: usize,
        /// Maximum number.
        max: usize,
    },
}

/// Reason why the payload of an envelope is not an order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOrder {
    /// The payload has another type.
    #[error("the payload type is '{0}', and not that of an order")]
    PayloadType(String),
    /// The JSON is not that of an order.
    #[error("{0}")]
    Json(String),
    /// A field of the terms is illegal.
    #[error("terms.{0}")]
    Terms(String),
    /// The version is unknown.
    #[error("v is {0}, and this program knows version 1")]
    Version(u32),
}

/// Reason why an envelope is no statement of a worker that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidStatement {
    /// The payload has another type.
    #[error("the type of the payload is '{0}', and not application/vnd.in-toto+json")]
    PayloadType(String),
    /// No signature is that of a worker.
    #[error("no signature of the statement is valid for the key of a worker of the trust file ({0})")]
    Untrusted(String),
    /// The key that signed is revoked.
    #[error("the key of the worker '{0}' that signed the statement is revoked")]
    RevokedKey(String),
    /// The JSON is not that of a statement.
    #[error("the statement cannot be read: {0}")]
    Json(String),
    /// The statement, its predicate or its build has another type.
    #[error("it is of the type '{found}', and not {expected}")]
    OtherType {
        /// Type of the statement.
        found: String,
        /// Type that this program knows.
        expected: &'static str,
    },
}

/// Reason why a text is not a trust file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidTrustFile(pub(crate) String);

/// Reason why a worker does not accept an order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unacceptable {
    /// The envelope cannot be read.
    #[error("the envelope of the order cannot be read: {0}")]
    Envelope(#[from] InvalidEnvelope),
    /// The payload is not an order.
    #[error("the order is not valid: {0}")]
    Order(#[from] InvalidOrder),
    /// No signature is that of a trusted key.
    #[error("no signature of the order is valid for a key of the trust file ({0})")]
    Untrusted(String),
    /// Trusted keys have approved the order, and none has signed it as its author.
    #[error("the order is only approved, by {0}: its author has to sign it, too")]
    OnlyApproved(String),
    /// All keys that signed are revoked.
    #[error("the key of '{0}' that signed the order is revoked")]
    RevokedKey(String),
    /// The trust in all signers has ended.
    #[error("the trust in '{signer}', who signed the order, ended at {not_after}")]
    ExpiredSigner {
        /// Name of the signer.
        signer: String,
        /// End of the trust.
        not_after: Timestamp,
    },
    /// Too few others have signed the order.
    #[error("the order of '{signer}' needs {needed} approvals, and has {present}")]
    Approvals {
        /// Name of the signer.
        signer: String,
        /// Number of approvals that the trust file demands.
        needed: usize,
        /// Number of approvals that the envelope has.
        present: usize,
    },
    /// The order is for other clusters.
    #[error("the order is for {}, and this worker is in {cluster}", clusters.join(", "))]
    OtherCluster {
        /// Clusters of the order.
        clusters: Vec<String>,
        /// Cluster of the worker.
        cluster: String,
    },
    /// The order is not valid yet.
    #[error("the order is valid from {not_before} on, and it is {now}")]
    Early {
        /// Begin of the order.
        not_before: Timestamp,
        /// Time of the check.
        now: Timestamp,
    },
    /// The order has expired.
    #[error("the order expired at {not_after}, and it is {now}")]
    Expired {
        /// End of the order.
        not_after: Timestamp,
        /// Time of the check.
        now: Timestamp,
    },
    /// The serial is revoked.
    #[error("the serial {0} of the order is revoked")]
    RevokedSerial(String),
    /// The order was used as often as its terms permit.
    #[error("the order {serial} permits {uses} uses, and this worker has seen them all")]
    UsedUp {
        /// Serial of the order.
        serial: String,
        /// Uses that the terms permit.
        uses: u32,
    },
    /// The order was used for as many jobs as its terms permit.
    #[error("the order {serial} permits {jobs} jobs, and this worker has started that many others")]
    NoMoreJobs {
        /// Serial of the order.
        serial: String,
        /// Jobs that the terms permit.
        jobs: u32,
    },
    /// A field of the inputs may have any value.
    #[error("the order gives the input '{0}' no type, and its signer may not sign plans for any input")]
    UnboundInput(String),
    /// The input is not one that the order permits.
    #[error("the order does not permit this input: input{0}")]
    Input(String),
}
