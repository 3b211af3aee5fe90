//! Identifiers. A value of these types holds a text that is legal on the wire, in keys and in logs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of bytes of a plan, action or job id, and of the name of a queue.
pub const MAX_ID_BYTES: usize = 128;
/// Maximum number of bytes of a worker id (worker spec §2.2).
pub const MAX_WORKER_ID_BYTES: usize = 64;

/// Error for a text that is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} '{text}' is not valid: use 1 to {max} letters, digits and {also}")]
pub struct BadId {
    kind: &'static str,
    text: String,
    max: usize,
    also: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:expr, $also:literal, $extra:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(inline)]
        pub struct $name(String);

        impl $name {
            /// Checks `text`. The error names the permitted characters and the maximum length.
            pub fn new(text: impl Into<String>) -> Result<Self, BadId> {
                let text: String = text.into();
                let legal = |b: u8| b.is_ascii_alphanumeric() || $extra.contains(&b);
                if text.is_empty() || text.len() > $max || !text.bytes().all(legal) {
                    let text = text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect();
                    return Err(BadId { kind: $kind, text, max: $max, also: $also });
                }
                Ok(Self(text))
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// Id of a plan, chosen by the submitter (AGQ API spec §2).
    PlanId, "plan_id", MAX_ID_BYTES, "'.', '_', '-'", b"._-"
);
id!(
    /// Id of an action, chosen by the submitter (AGQ API spec §4).
    ActionId, "action_id", MAX_ID_BYTES, "'.', '_', '-'", b"._-"
);
id!(
    /// Id of a job, chosen by agq.
    JobId, "job_id", MAX_ID_BYTES, "'.', '_', '-'", b"._-"
);
id!(
    /// Id of a worker (worker spec §7.2).
    WorkerId, "worker_id", MAX_WORKER_ID_BYTES, "'-', '_'", b"-_"
);

id!(
    /// Name of a queue: the part of its key after `queue:`.
    QueueName, "queue", MAX_ID_BYTES, "'.', '_', '-'", b"._-"
);

id!(
    /// Name of a share of a queue that submitters choose.
    ShareName, "share", MAX_ID_BYTES, "'.', '_', '-'", b"._-"
);

#[cfg(test)]
mod tests {
    use super::{JobId, PlanId, WorkerId};

    #[test]
    fn id_may_have_its_maximum_length_and_not_one_more() {
        assert!(WorkerId::new("w".repeat(64)).is_ok());
        assert!(WorkerId::new("w".repeat(65)).is_err());
        assert!(JobId::new("j".repeat(128)).is_ok());
        assert!(JobId::new("j".repeat(129)).is_err());
        assert!(PlanId::new("").is_err());
    }

    #[test]
    fn id_error_names_the_kind_and_escapes_control_characters() {
        let error = WorkerId::new("a\nb").expect_err("a newline is not legal").to_string();
        assert_eq!(error, "worker_id 'a?b' is not valid: use 1 to 64 letters, digits and '-', '_'");
    }
}
