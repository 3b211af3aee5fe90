//! Responses of the model's server: completions and errors.

use agenix_protocol::limits::Limits;
use serde::Deserialize;
use serde_json::Value;

/// Number of bytes of an answer for each byte of the largest plan: the plan is a JSON string in the
/// answer, which doubles the bytes of quotation marks, and text may be around it.
const BYTES_FOR_ONE_OF_THE_PLAN: usize = 4;

/// Advice about a response that is not JSON.
const NOT_AN_API: &str =
    "AGX_ASK_URL is the address of an API like that of OpenAI, which mostly ends with /v1";
/// Advice about JSON without a completion.
const NO_CHOICES: &str =
    "AGX_ASK_URL is the address of an API like that of OpenAI, and this server has another one";
/// Advice about a completion without a text.
const NO_TEXT: &str = "try again, or ask another model";

/// Text that the model wrote.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) text: String,
    /// True if the text ends because it reached a limit of the server.
    pub(super) is_cut: bool,
}

/// Reason for which a response has no completion, as the end of a sentence about the answer, with
/// advice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoCompletion {
    pub(super) reason: String,
    pub(super) help: &'static str,
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
#[serde(default)]
#[derive(Default)]
struct ChoiceMessage {
    /// String, or an array of parts.
    content: Value,
    refusal: Value,
    tool_calls: Value,
    reasoning_content: Value,
    reasoning: Value,
}

impl ChoiceMessage {
    fn text(&self) -> String {
        match &self.content {
            Value::String(text) => text.clone(),
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            _ => String::new(),
        }
    }

    /// Returns the reason for which the message has no text.
    fn no_text(&self) -> NoCompletion {
        let has_text = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
        let parts = self.content.as_array().into_iter().flatten();
        let refusal = parts.map(|part| &part["refusal"]).chain([&self.refusal]).find(|value| has_text(value));
        if let Some(refusal) = refusal.and_then(Value::as_str) {
            return NoCompletion::new(
                format!("is a refusal of the model: {refusal}"),
                "say in --ask what the plan is for, or ask another model",
            );
        }
        if self.tool_calls.as_array().is_some_and(|calls| !calls.is_empty()) {
            return NoCompletion::new(
                "calls a tool, and has no text",
                "agx offers the model no tool: ask another model",
            );
        }
        if has_text(&self.reasoning_content) || has_text(&self.reasoning) {
            return NoCompletion::new(
                "has reasoning, and no text after it",
                "try again, ask a model that reasons less, or end the reasoning at the server",
            );
        }
        NoCompletion::new("has no text", NO_TEXT)
    }
}

impl NoCompletion {
    fn new(reason: impl Into<String>, help: &'static str) -> Self {
        Self { reason: reason.into(), help }
    }
}

/// Returns the maximum number of bytes of an answer.
pub(super) fn max_answer_bytes() -> u64 {
    (BYTES_FOR_ONE_OF_THE_PLAN * Limits::default().max_plan_bytes) as u64
}

/// Returns the text of a chat completion.
pub(super) fn completion(json: &[u8]) -> Result<Completion, NoCompletion> {
    let document: Value = serde_json::from_slice(json)
        .map_err(|error| NoCompletion::new(format!("is not JSON: {error}"), NOT_AN_API))?;
    if document.get("choices").is_none()
        && let Some(message) = error_message(&document)
    {
        return Err(NoCompletion::new(
            format!("is an error: {message}"),
            "look at the log of the model's server, and try again",
        ));
    }
    let completion: ChatCompletion = serde_json::from_value(document)
        .map_err(|error| NoCompletion::new(format!("is not a chat completion: {error}"), NO_CHOICES))?;
    let Some(Choice { message, finish_reason }) = completion.choices.into_iter().next() else {
        return Err(NoCompletion::new("is a chat completion without a choice", NO_TEXT));
    };
    let (text, is_cut) = (message.text(), finish_reason.as_deref() == Some("length"));
    match text.trim().is_empty() {
        false => Ok(Completion { text, is_cut }),
        true if is_cut => Err(NoCompletion::new(
            "has no text, because a limit of the server ended it",
            "raise the server's limit of tokens, or ask a model that reasons less",
        )),
        true => Err(message.no_text()),
    }
}

/// Returns the message of an error response, or the response.
pub(super) fn error_text(body: &[u8]) -> Option<String> {
    let document: Option<Value> = serde_json::from_slice(body).ok();
    let message = document.as_ref().and_then(error_message);
    let text = message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn error_message(document: &Value) -> Option<&str> {
    [&document["error"]["message"], &document["error"], &document["message"], &document["detail"]]
        .into_iter()
        .find_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::{Completion, completion, error_text};

    #[test]
    fn completion_is_the_text_of_the_first_choice() {
        let json = br#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"{}"},"finish_reason":"stop"}]}"#;
        assert_eq!(completion(json), Ok(Completion { text: "{}".into(), is_cut: false }));
        let cut = br#"{"choices":[{"message":{"content":"{"},"finish_reason":"length"}]}"#;
        assert!(completion(cut).unwrap().is_cut);
        let parts = br#"{"choices":[{"message":{"content":[{"type":"text","text":"{"},{"type":"x"},{"type":"text","text":"}"}]}}]}"#;
        assert_eq!(completion(parts).unwrap().text, "{}");
    }

    #[test]
    fn response_without_a_completion_has_a_reason_and_advice() {
        let message = |message: &str| format!(r#"{{"choices":[{{"message":{message}}}]}}"#);
        for (json, reason, help) in [
            (r#"{"choices":[]}"#.to_owned(), "is a chat completion without a choice", "try again"),
            (message(r#"{"content":null}"#), "has no text", "try again"),
            (message(r#"{"content":" \n"}"#), "has no text", "try again"),
            (message(r#"{"content":[]}"#), "has no text", "try again"),
            (
                message(r#"{"content":null,"refusal":"I will not."}"#),
                "is a refusal of the model: I will not.",
                "say in --ask",
            ),
            (
                message(r#"{"content":[{"type":"refusal","refusal":"No."}]}"#),
                "is a refusal of the model: No.",
                "say in --ask",
            ),
            (message(r#"{"content":"","tool_calls":[{"id":"x"}]}"#), "calls a tool", "agx offers"),
            (message(r#"{"content":null,"tool_calls":[]}"#), "has no text", "try again"),
            (message(r#"{"reasoning_content":"Hm."}"#), "has reasoning, and no text", "try again, ask"),
            (
                r#"{"choices":[{"message":{}, "finish_reason":"length"}]}"#.to_owned(),
                "has no text, because a limit",
                "raise",
            ),
            (r#"{"error":"x"}"#.to_owned(), "is an error: x", "look at the log"),
            (r#"{"error":{"message":"no memory"}}"#.to_owned(), "is an error: no memory", "look at the log"),
            (r#"{"a":1}"#.to_owned(), "is not a chat completion: missing field `choices`", "AGX_ASK_URL is"),
            ("[]".to_owned(), "is not a chat completion: ", "AGX_ASK_URL is"),
            ("<html>".to_owned(), "is not JSON: expected value", "AGX_ASK_URL is"),
            (String::new(), "is not JSON: EOF", "AGX_ASK_URL is"),
        ] {
            let found = completion(json.as_bytes()).unwrap_err();
            assert!(found.reason.starts_with(reason) && found.help.starts_with(help), "{json}: {found:?}");
            assert_eq!(found.help.contains("/v1"), reason.starts_with("is not JSON"), "{json}: {found:?}");
        }
        let both = completion(br#"{"error":null,"choices":[{"message":{"content":"x"}}]}"#);
        assert_eq!(both.unwrap().text, "x");
    }

    #[test]
    fn error_texts_are_found_in_the_usual_documents() {
        let text = |body: &str| error_text(body.as_bytes());
        assert_eq!(text(r#"{"error":{"message":"no model\nx","type":"y"}}"#).unwrap(), "no model\nx");
        assert_eq!(text(r#"{"error":"no model"}"#).unwrap(), "no model");
        assert_eq!(text(r#"{"detail":"Not Found"}"#).unwrap(), "Not Found");
        assert_eq!(text("oops\n").unwrap(), "oops");
        assert_eq!(text(r#"{"a":1}"#).unwrap(), r#"{"a":1}"#);
        assert_eq!(text(" \n"), None);
    }
}
