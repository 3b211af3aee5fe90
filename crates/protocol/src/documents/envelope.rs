//! DSSE envelope on the wire: signed bytes with their type.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// DSSE envelope. Unknown fields are ignored, as DSSE demands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DsseEnvelope {
    /// Type of the payload, which the signatures cover.
    #[serde(rename = "payloadType")]
    pub payload_type: String,
    /// Signed bytes, in base64.
    pub payload: String,
    /// Signatures.
    pub signatures: Vec<DsseSignature>,
}

/// Signature of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DsseSignature {
    /// Hint about the key, which nothing protects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyid: Option<String>,
    /// Signature, in base64.
    pub sig: String,
}
