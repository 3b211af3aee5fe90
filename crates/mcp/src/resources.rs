//! Resources: outputs and results by URI, which results of tools refer to.
//!
//! `agx://job/ID/stdout?from=N&len=N`, the same with `stderr`, and
//! `agx://action/ID/results.jsonl?cursor=C`.

use agenix_protocol::{
    documents::to_json,
    ids::{ActionId, JobId},
};
use serde_json::{Map, Value};

use crate::{
    arguments::{LogsArguments, ResultFilter, ResultsArguments, StreamName, default_job_bytes},
    error::{Result, ToolError},
    queue::Queue,
    reports::LogReport,
    tools::{logs, results},
};

/// Number of bytes of a resource without `len`.
const DEFAULT_BYTES: usize = 16 * 1024;

/// Templates of the URIs with their names and descriptions.
pub(crate) const TEMPLATES: [(&str, &str, &str); 3] = [
    ("agx://job/{job_id}/stdout{?from,len}", "stdout", "Output of the last task of a job"),
    ("agx://job/{job_id}/stderr{?from,len}", "stderr", "Standard error of the last task of a job"),
    (
        "agx://action/{action_id}/results.jsonl{?cursor}",
        "results",
        "Results of an action, one JSON object in a line",
    ),
];

/// Returns the URI of the results of an action from a cursor.
pub(crate) fn results_uri(action_id: &str, cursor: &str) -> String {
    format!("agx://action/{action_id}/results.jsonl?cursor={cursor}")
}

/// Returns the URI of the output of a job.
pub(crate) fn stdout_uri(job_id: &str) -> String {
    format!("agx://job/{job_id}/stdout")
}

/// Resource that a URI names.
#[derive(Debug)]
pub(crate) enum ResourceName {
    Stream(LogsArguments),
    Results(ResultsArguments),
}

#[derive(Debug, Default)]
pub(crate) struct ResourceText {
    pub(crate) text: String,
    /// Metadata for the client: where the rest of an output begins, and how long the output is.
    pub(crate) meta: Map<String, Value>,
}

impl From<LogReport> for ResourceText {
    fn from(part: LogReport) -> Self {
        let mut meta = Map::new();
        meta.insert("total_bytes".to_owned(), part.total_bytes.into());
        if let Some(from) = part.next_from {
            meta.insert("next_from".to_owned(), from.into());
        }
        Self { text: part.text, meta }
    }
}

impl ResourceName {
    /// Parses a URI. Returns `None` if no template matches.
    pub(crate) fn parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix("agx://")?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let value = |name: &str| {
            let fields = query.split('&').filter_map(|field| field.split_once('='));
            fields.clone().find(|(field, _)| *field == name).map(|(_, value)| value.to_owned())
        };
        let number = |name: &str, default: u64| value(name).map_or(Some(default), |text| text.parse().ok());
        match path.split('/').collect::<Vec<_>>()[..] {
            ["job", job_id, stream] => {
                let stream = match stream {
                    "stdout" => StreamName::Stdout,
                    "stderr" => StreamName::Stderr,
                    _ => return None,
                };
                let max_bytes = usize::try_from(number("len", DEFAULT_BYTES as u64)?).ok()?;
                let (job_id, from) = (JobId::new(job_id).ok()?, number("from", 0)?);
                Some(Self::Stream(LogsArguments { job_id, task_number: None, stream, from, max_bytes }))
            }
            ["action", action_id, "results.jsonl"] => {
                let (action_id, cursor) = (ActionId::new(action_id).ok()?, value("cursor"));
                let (only, max_bytes, job_bytes) = (ResultFilter::All, DEFAULT_BYTES, default_job_bytes());
                Some(Self::Results(ResultsArguments { action_id, only, cursor, max_bytes, job_bytes }))
            }
            _ => None,
        }
    }

    pub(crate) async fn read(self, queue: &Queue) -> Result<ResourceText> {
        match self {
            // The length is that of the output. The text of the output may be longer, and is not
            // cut.
            Self::Stream(arguments) => Ok(logs::part(queue, arguments, usize::MAX).await?.into()),
            Self::Results(arguments) => {
                let page = results::run(queue, arguments).await?;
                let mut lines: Vec<String> = page.jobs.iter().map(to_json).collect();
                lines.extend(page.forgotten.map(|jobs| format!(r#"{{"forgotten":{jobs}}}"#)));
                lines.extend(page.cursor.map(|cursor| format!(r#"{{"cursor":"{cursor}"}}"#)));
                Ok(ResourceText { text: lines.join("\n"), ..ResourceText::default() })
            }
        }
    }
}

/// Returns the error for a URI that no template matches.
pub(crate) fn unknown(uri: &str) -> ToolError {
    ToolError::new(format!("there is no resource {uri}"), "use a URI of the resource templates")
}

#[cfg(test)]
mod tests {
    use super::ResourceName;

    #[test]
    fn uri_names_a_resource() {
        let Some(ResourceName::Stream(stream)) = ResourceName::parse("agx://job/j1/stderr?from=7&len=9")
        else {
            panic!("it is a stream")
        };
        assert_eq!((stream.job_id.as_str(), stream.from, stream.max_bytes), ("j1", 7, 9));
        let Some(ResourceName::Results(results)) =
            ResourceName::parse("agx://action/a/results.jsonl?cursor=all:3")
        else {
            panic!("it is a page of results")
        };
        assert_eq!((results.action_id.as_str(), results.cursor.as_deref()), ("a", Some("all:3")));
        for uri in
            ["", "agx://", "agx://job/j1", "agx://job/j1/plan", "agx://job/ä/stdout", "file:///etc/passwd"]
        {
            assert!(ResourceName::parse(uri).is_none(), "{uri}");
        }
        assert!(ResourceName::parse("agx://job/j/stdout?from=x").is_none());
    }
}
