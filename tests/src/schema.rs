//! Whatever agx prints with `--json` is as the published schema says.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("../../docs/agx-1.schema.json"));
    let schema: Value = schema.expect("the published schema is JSON");
    jsonschema::draft202012::new(&schema).expect("the published schema is one")
});

/// Panics where a line of a text is a document of agx that is not as the schema says.
#[track_caller]
pub(crate) fn hold(text: &str) {
    let documents = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for document in documents.filter(|document| document["schema"] == "agx/1") {
        // What is wrong with one kind is said of that kind alone: the others do not matter.
        assert!(SCHEMA.is_valid(&document), "the schema does not know this:\n{document:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::hold;

    #[test]
    fn what_is_as_the_schema_says_is_let_through() {
        hold(
            "text\n{\"schema\":\"agx/1\",\"kind\":\"job.cancel\",\"data\":{\"job_id\":\"j\"}}\n{\"other\":1}",
        );
    }

    #[test]
    #[should_panic = "the schema does not know this"]
    fn what_is_not_is_named() {
        hold(r#"{"schema":"agx/1","kind":"job.cancel","data":{"job":"j"}}"#);
    }

    #[test]
    #[should_panic = "the schema does not know this"]
    fn a_kind_that_nobody_has_published_is_named() {
        hold(r#"{"schema":"agx/1","kind":"job.dance","data":{"job_id":"j"}}"#);
    }
}
