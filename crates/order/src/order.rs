//! Order: a plan, and the terms under which workers may run it.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::{InputType, Plan, is_profile_name},
    inputs::named_fields,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::error::InvalidOrder;

/// Type of the payload of an envelope that has an order.
pub const ORDER_TYPE: &str = "application/vnd.agenix.order+json";
/// Payload type that a signature covers which only approves an order.
pub const APPROVAL_TYPE: &str = "application/vnd.agenix.approval+json";
/// Version of orders.
const VERSION: u32 = 1;
/// Maximum number of bytes of a serial, and of the name of a cluster.
const MAX_NAME_BYTES: usize = 64;
/// Hexadecimal digits of a SHA-256.
const HASH_DIGITS: usize = 64;

/// Plan and terms, which a signature covers. Unknown fields are errors, because a term that a
/// worker does not know would not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Version: 1.
    pub v: u32,
    /// Plan, as `PLAN.SUBMIT` takes it.
    pub plan: Plan,
    /// Terms.
    pub terms: Terms,
}

/// Terms of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Names of the clusters whose workers may run the plan.
    #[serde(rename = "for")]
    pub clusters: Vec<String>,
    /// First time at which a job may start. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// End of the time in which a job may start.
    pub not_after: Timestamp,
    /// Name of the order, which no other order of the clusters has.
    pub serial: String,
    /// Maximum number of attempts that a worker starts. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// Profile of the sandbox, which may only narrow what the trust file grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Types of the fields of inputs, in addition to those of the plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, InputType>,
    /// Root of the tree of the permitted inputs. Default: any input of the types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_sha256: Option<String>,
    /// Limits of the jobs and of each attempt.
    #[serde(default, skip_serializing_if = "OrderLimits::is_empty")]
    pub limits: OrderLimits,
}

/// Limits of an order. The limits of an attempt may only lower the limits of the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OrderLimits {
    /// Maximum number of jobs of which a worker starts an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// Processor time of all tasks of an attempt, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_secs: Option<u64>,
    /// Run time of an attempt, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_secs: Option<u64>,
    /// Bytes of all files that take the outputs of an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
}

impl OrderLimits {
    /// Returns true if nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Order {
    /// Returns the order of a plan under terms.
    pub fn new(plan: Plan, terms: Terms) -> Self {
        Self { v: VERSION, plan, terms }
    }

    /// Checks the version and the terms. agq and agx check the plan, as they check any other.
    ///
    /// # Errors
    ///
    /// Returns the first field that is illegal.
    pub fn check(&self) -> Result<(), InvalidOrder> {
        if self.v != VERSION {
            return Err(InvalidOrder::Version(self.v));
        }
        self.check_terms().map_err(InvalidOrder::Terms)
    }

    fn check_terms(&self) -> Result<(), String> {
        let terms = &self.terms;
        if terms.clusters.is_empty() {
            return Err("for is empty: name the clusters".into());
        }
        if let Some(name) = terms.clusters.iter().find(|name| !is_name(name)) {
            return Err(format!("for has '{}', which is not the name of a cluster", name.escape_debug()));
        }
        if terms.not_before.is_some_and(|not_before| not_before >= terms.not_after) {
            return Err("not_after is not later than not_before".into());
        }
        if !is_name(&terms.serial) {
            return Err(
                "serial is not valid: use 1 to 64 letters, digits, '.', '_', '-' and ':', beginning with a letter, a digit or '_'"
                    .into(),
            );
        }
        if terms.uses == Some(0) {
            return Err("uses is 0: use 1 or more".into());
        }
        if terms.limits.jobs == Some(0) {
            return Err("limits.jobs is 0: use 1 or more".into());
        }
        if terms.limits.cpu_secs == Some(0) {
            return Err("limits.cpu_secs is 0: use 1 or more".into());
        }
        if terms.profile.as_deref().is_some_and(|profile| !is_profile_name(profile)) {
            return Err("profile is not the name of a profile".into());
        }
        let is_hash = |text: &String| {
            text.len() == HASH_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if terms.inputs_sha256.as_ref().is_some_and(|text| !is_hash(text)) {
            return Err("inputs_sha256 is not a SHA-256: use 64 hexadecimal digits in lower case".into());
        }
        let fields = named_fields(&self.plan);
        match terms.inputs.keys().find(|field| !fields.iter().any(|named| named.field == **field)) {
            Some(field) => {
                Err(format!("inputs.{}: no placeholder of the plan names this field", field.escape_debug()))
            }
            None => Ok(()),
        }
    }
}

/// Returns true for a legal name of a cluster or a signer, and for a legal serial.
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES && InputType::is_name(name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ORDER_TYPE, Order};
    use crate::dsse::Envelope;

    fn order(terms: &Value) -> Result<Order, String> {
        let plan = json!({"tasks": [{"task_number": 1, "command": "cat", "args": ["{{input.file}}"]}]});
        let payload = json!({"v": 1, "plan": plan, "terms": terms}).to_string().into_bytes();
        let envelope = Envelope { payload_type: ORDER_TYPE.into(), payload, signatures: Vec::new() };
        envelope.order().map_err(|error| error.to_string())
    }

    fn with(field: &str, value: &Value) -> Result<Order, String> {
        let mut terms = json!({"for": ["a"], "not_after": "2026-12-01T00:00:00Z", "serial": "s"});
        terms[field] = value.clone();
        order(&terms)
    }

    #[test]
    fn terms_are_checked() {
        for (field, value) in [
            ("uses", json!(1)),
            ("profile", json!("reader")),
            ("not_before", json!("2026-11-01T00:00:00Z")),
            ("inputs", json!({"file": {"type": "path", "under": "/data"}})),
            ("limits", json!({"jobs": 1, "cpu_secs": 1, "wall_secs": 60, "output_bytes": 1000})),
            ("inputs_sha256", json!("0".repeat(64))),
            ("serial", json!("01J.a_b-c:d")),
        ] {
            assert!(with(field, &value).is_ok(), "{field}: {:?}", with(field, &value));
        }
        for (field, value, reason) in [
            ("for", json!([]), "terms.for is empty"),
            ("for", json!(["a", "b c"]), "terms.for has 'b c'"),
            ("not_before", json!("2026-12-01T00:00:00Z"), "terms.not_after is not later than not_before"),
            ("serial", json!(""), "terms.serial is not valid"),
            ("serial", json!("s".repeat(65)), "terms.serial is not valid"),
            ("uses", json!(0), "terms.uses is 0"),
            ("uses", json!(-1), "terms.uses: invalid value"),
            ("profile", json!("Reader"), "terms.profile is not the name"),
            ("inputs", json!({"other": {"type": "text"}}), "terms.inputs.other: no placeholder"),
            ("inputs_sha256", json!("F".repeat(64)), "terms.inputs_sha256 is not a SHA-256"),
            ("limits", json!({"jobs": 0}), "terms.limits.jobs is 0"),
            ("limits", json!({"cpu_secs": 0}), "terms.limits.cpu_secs is 0"),
            ("limits", json!({"memory": 1}), "terms.limits.memory: unknown field"),
            ("until", json!(1), "terms.until: unknown field"),
        ] {
            let error = with(field, &value).unwrap_err();
            assert!(error.starts_with(reason), "{field}: {error}");
        }
        assert!(
            order(&json!({"for": ["a"], "serial": "s"})).unwrap_err().contains("missing field `not_after`")
        );
    }

    #[test]
    fn payload_of_another_type_or_version_is_no_order() {
        let mut envelope = Envelope::new(&with("uses", &json!(1)).unwrap());
        envelope.payload_type = "application/json".into();
        assert!(envelope.order().unwrap_err().to_string().contains("'application/json'"));
        let mut order = with("uses", &json!(1)).unwrap();
        order.v = 2;
        let error = Envelope::new(&order).order().unwrap_err().to_string();
        assert_eq!(error, "v is 2, and this program knows version 1");
    }
}
