//! Answers of the model's server: completions, errors, and the plan within a text.

use agenix_protocol::printable::one_line;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::util::shorten::shortened;

/// Maximum number of places in a text at which the plan is looked for.
const MAX_CANDIDATES: usize = 64;

/// End of the reasoning that some models write before their answer.
const END_OF_REASONING: &str = "</think>";

/// Text that the model wrote.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) text: String,
    /// True if the text ends because it reached a limit of the server.
    pub(super) is_cut: bool,
}

/// Document of `/chat/completions`.
#[derive(Deserialize)]
struct ChatCompletion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: ChoiceMessage,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ChoiceMessage {
    #[serde(default)]
    content: Option<String>,
}

/// Returns the text of a chat completion. The error is the end of a sentence about the answer.
pub(super) fn completion(json: &[u8]) -> Result<Completion, String> {
    let completion: ChatCompletion =
        serde_json::from_slice(json).map_err(|error| format!("is not a chat completion: {error}"))?;
    let choice = completion.choices.into_iter().next().ok_or("is a chat completion without a choice")?;
    let text = choice.message.content.filter(|text| !text.trim().is_empty());
    let is_cut = choice.finish_reason.as_deref() == Some("length");
    match text {
        Some(text) => Ok(Completion { text, is_cut }),
        None if is_cut => Err("has no text, because a limit of the server ended it".into()),
        None => Err("has no text".into()),
    }
}

/// Returns the message of an error response, on one line, or its beginning.
pub(super) fn error_text(body: &[u8]) -> Option<String> {
    let document: Option<Value> = serde_json::from_slice(body).ok();
    let message = document.as_ref().and_then(|document| {
        [&document["error"]["message"], &document["error"], &document["message"], &document["detail"]]
            .into_iter()
            .find_map(Value::as_str)
    });
    let text = message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    let text = text.trim();
    (!text.is_empty()).then(|| shortened(&one_line(text)))
}

/// Returns the plan of a text, which may have prose or a code fence around it: the first JSON
/// object with tasks, or else the first JSON object. The error is a reason for the model and for
/// people.
pub(super) fn json_object(text: &str) -> Result<&str, String> {
    let text = text.rsplit_once(END_OF_REASONING).map_or(text, |(_, answer)| answer);
    let (mut from, mut first, mut first_error, mut is_open) = (0, None, None, false);
    for _ in 0..MAX_CANDIDATES {
        let Some(start) = text[from..].find('{').map(|at| from + at) else { break };
        let Some(length) = balanced(&text[start..]) else {
            is_open = true;
            from = start + 1;
            continue;
        };
        from = start + length;
        let candidate = &text[start..from];
        match serde_json::from_str::<Map<String, Value>>(candidate) {
            Ok(object) if object.contains_key("tasks") => return Ok(candidate),
            Ok(_) => first = first.or(Some(candidate)),
            Err(error) => first_error = first_error.or_else(|| Some(error.to_string())),
        }
    }
    match (first, first_error) {
        _ if is_open => Err("the JSON object of the answer has no end".into()),
        (Some(object), _) => Ok(object),
        (None, Some(error)) => Err(format!("the JSON object of the answer is not valid: {error}")),
        (None, None) => {
            Err(format!("the answer has no JSON object: '{}'", shortened(&one_line(text.trim()))))
        }
    }
}

/// Returns the number of bytes of the object at the beginning of `text`, up to the brace that
/// closes it.
fn balanced(text: &str) -> Option<usize> {
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'{' if !is_string => depth += 1,
            b'}' if !is_string => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Completion, completion, error_text, json_object};

    #[test]
    fn completion_is_the_text_of_the_first_choice() {
        let json = br#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"{}"},"finish_reason":"stop"}]}"#;
        assert_eq!(completion(json), Ok(Completion { text: "{}".into(), is_cut: false }));
        let cut = br#"{"choices":[{"message":{"content":"{"},"finish_reason":"length"}]}"#;
        assert!(completion(cut).unwrap().is_cut);
        for (json, error) in [
            (r#"{"choices":[]}"#, "is a chat completion without a choice"),
            (r#"{"choices":[{"message":{"content":null}}]}"#, "has no text"),
            (r#"{"choices":[{"message":{"content":" \n"}}]}"#, "has no text"),
            (r#"{"choices":[{"message":{}, "finish_reason":"length"}]}"#, "has no text, because a limit"),
            (r#"{"error":"x"}"#, "is not a chat completion: missing field `choices`"),
            ("<html>", "is not a chat completion: expected value"),
            ("", "is not a chat completion: EOF"),
        ] {
            let found = completion(json.as_bytes()).unwrap_err();
            assert!(found.starts_with(error), "{json}: {found}");
        }
    }

    #[test]
    fn error_texts_are_found_in_the_usual_documents() {
        let text = |body: &str| error_text(body.as_bytes());
        assert_eq!(text(r#"{"error":{"message":"no model\nx","type":"y"}}"#).unwrap(), "no model\\nx");
        assert_eq!(text(r#"{"error":"no model"}"#).unwrap(), "no model");
        assert_eq!(text(r#"{"detail":"Not Found"}"#).unwrap(), "Not Found");
        assert_eq!(text("oops\n").unwrap(), "oops");
        assert_eq!(text(r#"{"a":1}"#).unwrap(), r#"{"a":1}"#);
        assert_eq!(text(&"x".repeat(1000)).unwrap().chars().count(), 201);
        assert_eq!(text(" \n"), None);
    }

    #[test]
    fn plan_is_found_within_prose_and_fences() {
        let plan = r#"{"tasks":[{"task_number":1,"command":"awk","args":["{ print \"}\" }"]}]}"#;
        for text in [
            plan.to_owned(),
            format!("Here's the plan:\n```json\n{plan}\n```\nIt prints {{x}}."),
            format!("<think>Should it be {{\"a\":1}}? No.</think>\n{plan}"),
            format!("It uses {{input.file}}, {{{{input.n}}}} and {{}}: {plan}"),
            format!("A {{ begins a field: {plan}"),
            format!("{plan}{plan}"),
        ] {
            assert_eq!(json_object(&text), Ok(plan), "{text}");
        }
    }

    #[test]
    fn text_without_a_plan_is_an_error_with_a_reason() {
        for (text, error) in [
            ("I cannot do that.\u{1b}", "the answer has no JSON object: 'I cannot do that.\\x1b'"),
            ("", "the answer has no JSON object: ''"),
            (
                r#"{"tasks":[{"task_number":1},]}"#,
                "the JSON object of the answer is not valid: trailing comma",
            ),
            ("{a: 1}", "the JSON object of the answer is not valid: key must be a string"),
            (r#"{"tasks":[{"task_number":1},"#, "the JSON object of the answer has no end"),
            (r#"{"tasks":"}"#, "the JSON object of the answer has no end"),
        ] {
            let found = json_object(text).unwrap_err();
            assert!(found.starts_with(error), "{text}: {found}");
        }
        assert_eq!(json_object(r#"no: {"error":"x"}"#), Ok(r#"{"error":"x"}"#));
        assert!(json_object(&"{".repeat(1 << 20)).is_err(), "only some places are tried");
    }
}
