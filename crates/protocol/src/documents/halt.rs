//! Halt policies of actions, in the notation of GNU Parallel: `now,fail=1`, `soon,done=20%`.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Condition under which an action starts no more jobs, and the fate of its started jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Halt {
    /// True if started jobs are cancelled, too.
    pub is_now: bool,
    /// Ends of jobs that count.
    pub counted: HaltCondition,
    /// Number of such ends that meets the policy.
    pub bound: HaltThreshold,
}

/// Ends of jobs that a halt policy counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaltCondition {
    /// Failed and dead jobs.
    Fail,
    /// Completed jobs.
    Success,
    /// Ended jobs of both kinds.
    Done,
}

/// Threshold of a halt policy, always more than 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaltThreshold {
    /// Number of jobs.
    Count(u64),
    /// Percentage of the jobs of the action.
    Percent(u64),
}

/// Error for a text that is not a halt policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "write WHEN,WHAT=N: WHEN is now or soon, WHAT is fail, success or done, N a number or a percentage, as \
     now,fail=1 or soon,fail=20%; without a halt policy all jobs run"
)]
pub struct HaltParseError;

impl FromStr for Halt {
    type Err = HaltParseError;

    fn from_str(text: &str) -> Result<Self, HaltParseError> {
        let (when, rest) = text.split_once(',').ok_or(HaltParseError)?;
        let (counted, bound) = rest.split_once('=').ok_or(HaltParseError)?;
        let is_now = match when {
            "now" => true,
            "soon" => false,
            _ => return Err(HaltParseError),
        };
        let counted = match counted {
            "fail" => HaltCondition::Fail,
            "success" => HaltCondition::Success,
            "done" => HaltCondition::Done,
            _ => return Err(HaltParseError),
        };
        let number = |text: &str| text.parse().ok().filter(|&number: &u64| number > 0).ok_or(HaltParseError);
        let bound = match bound.strip_suffix('%') {
            Some(percent) => HaltThreshold::Percent(number(percent)?),
            None => HaltThreshold::Count(number(bound)?),
        };
        Ok(Self { is_now, counted, bound })
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = if self.is_now { "now" } else { "soon" };
        let counted = match self.counted {
            HaltCondition::Fail => "fail",
            HaltCondition::Success => "success",
            HaltCondition::Done => "done",
        };
        match self.bound {
            HaltThreshold::Count(count) => write!(to, "{when},{counted}={count}"),
            HaltThreshold::Percent(percent) => write!(to, "{when},{counted}={percent}%"),
        }
    }
}

impl Serialize for Halt {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Halt {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Halt {
    fn schema_name() -> Cow<'static, str> {
        "Halt".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Halt policy, as `now,fail=1` or `soon,done=20%`.",
            "type": "string",
            "pattern": "^(now|soon),(fail|success|done)=[0-9]+%?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Halt, HaltCondition, HaltThreshold};

    #[test]
    fn halt_policy_round_trips_through_its_text() {
        let policy = Halt { is_now: true, counted: HaltCondition::Fail, bound: HaltThreshold::Count(2) };
        assert_eq!("now,fail=2".parse(), Ok(policy));
        for text in ["now,fail=1", "soon,success=3", "soon,done=20%", "now,fail=100%"] {
            let policy: Halt = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Halt>(&json).unwrap(), policy);
        }
    }

    #[test]
    fn invalid_halt_policy_is_refused_with_an_example() {
        for wrong in [
            "",
            "0",
            "1",
            "never",
            "now",
            "later,fail=1",
            "now,fail",
            "now,lost=1",
            "now,fail=0",
            "now,fail=x",
            "now,fail=%",
        ] {
            let refused = wrong.parse::<Halt>().unwrap_err().to_string();
            assert!(refused.contains("now,fail=1"), "{wrong}");
        }
    }
}
