//! Request to create a schedule, in the form of agq or in that of the cron specification.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::invalid;
use crate::rejection::Rejection;

/// Request to create a schedule.
#[derive(Debug, Clone, Deserialize)]
pub struct ScheduleRequest {
    /// Name of the schedule.
    pub name: String,
    /// See [`Schedule`](super::Schedule).
    #[serde(alias = "cron", alias = "schedule")]
    pub expression: String,
    /// Time zone, by default UTC.
    pub timezone: Option<String>,
    /// Policy for overlapping runs, by default `skip`.
    pub overlap_policy: Option<String>,
    /// False to create a paused schedule; by default true.
    pub enabled: Option<bool>,
    /// Job to submit.
    pub job_template: Option<Box<RawValue>>,
    /// Action to submit.
    pub action: Option<Box<RawValue>>,
    /// Type of the job to submit, without `job_template` and `action` (ojs-cron §2.1).
    #[serde(rename = "type")]
    pub job_type: Option<Box<RawValue>>,
    /// Arguments of the job with `job_type`, by default none.
    pub args: Option<Box<RawValue>>,
    /// Metadata of the job with `job_type`.
    pub meta: Option<Box<RawValue>>,
    /// Options of the job with `job_type`.
    pub options: Option<Box<RawValue>>,
}

impl ScheduleRequest {
    /// Takes the job or the action to submit out of the request.
    pub(super) fn take_template(&mut self) -> Result<Box<RawValue>, Rejection> {
        match (self.job_template.take(), self.action.take()) {
            (Some(template), None) | (None, Some(template)) => Ok(template),
            (None, None) => self.take_job(),
            (Some(_), Some(_)) => {
                Err(invalid("job_template and action are both given: a schedule submits one"))
            }
        }
    }

    /// Takes the fields of the job. Their values keep their text.
    fn take_job(&mut self) -> Result<Box<RawValue>, Rejection> {
        let Some(job_type) = self.job_type.take() else {
            return Err(invalid("job_template is missing: give the job to submit"));
        };
        let args = self.args.take().or_else(|| RawValue::from_string("[]".to_owned()).ok());
        let fields = [
            ("type", Some(job_type)),
            ("args", args),
            ("meta", self.meta.take()),
            ("options", self.options.take()),
        ];
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let job: BTreeMap<&str, Box<RawValue>> = fields.collect();
        to_raw_value(&job).map_err(|error| invalid(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::ScheduleRequest;

    fn template(fields: &str) -> String {
        let json = format!(r#"{{"name":"n","cron":"@daily"{fields}}}"#);
        let mut request: ScheduleRequest = serde_json::from_str(&json).unwrap();
        request.take_template().map_or_else(|error| error.to_string(), |template| template.get().to_owned())
    }

    #[test]
    fn job_of_a_request_is_made_of_its_fields_unless_it_has_a_template() {
        assert_eq!(template(r#","type":"a.b""#), r#"{"args":[],"type":"a.b"}"#);
        let whole = r#","type":"a.b","args":[1.10,{"n":18446744073709551616}],"meta":{"k":1},"options":{"queue":"q"}"#;
        let job = r#"{"args":[1.10,{"n":18446744073709551616}],"meta":{"k":1},"options":{"queue":"q"},"type":"a.b"}"#;
        assert_eq!(template(whole), job);
        assert_eq!(template(r#","type":"a.b","job_template":{"type":"c"}"#), r#"{"type":"c"}"#);
        let missing = "Invalid schedule: job_template is missing: give the job to submit";
        assert_eq!(template(r#","args":[]"#), missing);
    }
}
