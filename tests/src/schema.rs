//! Checks that the JSON output of agx conforms to the published schema.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("../../docs/agx-1.schema.json"));
    let schema: Value = schema.expect("the published schema is JSON");
    jsonschema::draft202012::new(&schema).expect("the published schema is one")
});

/// Panics if a line of `text` is a document of agx that does not conform to the schema.
#[track_caller]
pub(crate) fn hold(text: &str) {
    let documents = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for document in documents.filter(|document| document["schema"] == "agx/1") {
        // The schema has one alternative for each kind, so a message of the validator about all of
        // them would not help.
        assert!(SCHEMA.is_valid(&document), "the schema does not know this:\n{document:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::hold;

    #[test]
    fn valid_document_passes() {
        hold(
            "text\n{\"schema\":\"agx/1\",\"kind\":\"job.cancel\",\"data\":{\"job_id\":\"j\"}}\n{\"other\":1}",
        );
    }

    #[test]
    #[should_panic = "the schema does not know this"]
    fn unknown_field_is_named() {
        hold(r#"{"schema":"agx/1","kind":"job.cancel","data":{"job":"j"}}"#);
    }

    #[test]
    #[should_panic = "the schema does not know this"]
    fn unpublished_kind_is_named() {
        hold(r#"{"schema":"agx/1","kind":"job.dance","data":{"job_id":"j"}}"#);
    }
}
