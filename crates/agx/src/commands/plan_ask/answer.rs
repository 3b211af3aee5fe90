//! Plan within a text of the model.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::util::shorten::shortened;

/// Maximum number of places in a text at which the plan may begin.
const MAX_CANDIDATES: usize = 64;
/// Maximum number of bytes of an answer that is sent back to the model.
const MAX_QUOTED_BYTES: usize = 16 * 1024;

/// Marks of the reasoning that some models write before their answer.
const REASONING: [&str; 2] = ["<think>", "</think>"];
/// Field by which a plan is known.
const TASKS: &str = "tasks";

/// Part of a text that begins with a brace.
enum PlanCandidate<'t> {
    Object(&'t str, Map<String, Value>),
    /// Text between braces that is not JSON, and the error.
    Invalid(&'t str, String),
    /// Text without the brace that closes it.
    Open,
}

/// Returns the plan of a text, which may have prose or a code fence around it: the JSON object with
/// tasks, or else the first JSON object. Two different plans are an error, because nobody but the
/// model knows which of them is a draft. The error is a reason for the model and for people.
pub(super) fn json_object(text: &str) -> Result<&str, String> {
    let text = after_reasoning(text)?;
    let (mut plan, mut object, mut error, mut is_open) = (None, None, None, false);
    // Defect of an object after the plan: it may be the better plan.
    let mut defect = None;
    for candidate in candidates(text)? {
        match candidate {
            PlanCandidate::Object(json, parsed) if parsed.contains_key(TASKS) => match &plan {
                Some((_, other)) if *other != parsed => {
                    return Err("the answer has two different plans: write only one".into());
                }
                _ => (plan, defect) = (Some((json, parsed)), None),
            },
            PlanCandidate::Object(json, _) => object = object.or(Some(json)),
            PlanCandidate::Invalid(text, reason) => {
                let reason = format!("the JSON object of the answer is not valid: {reason}");
                if text.contains(&format!("\"{TASKS}\"")) {
                    defect = Some(reason.clone());
                }
                error = error.or(Some(reason));
            }
            PlanCandidate::Open => {
                is_open = true;
                defect = Some(no_end());
            }
        }
    }
    match (plan, defect) {
        (Some((json, _)), None) => Ok(json),
        (Some(_), Some(defect)) => Err(defect),
        (None, _) if is_open => Err(no_end()),
        (None, _) => object.ok_or_else(|| {
            error.unwrap_or_else(|| format!("the answer has no JSON object: '{}'", shortened(text.trim())))
        }),
    }
}

/// Returns the part of an answer that is sent back to the model: its JSON object, or its text, at
/// most [`MAX_QUOTED_BYTES`].
pub(super) fn quoted(text: &str) -> Cow<'_, str> {
    let text = json_object(text).unwrap_or(text);
    match text.floor_char_boundary(MAX_QUOTED_BYTES) {
        end if end < text.len() => format!("{}…", &text[..end]).into(),
        _ => text.into(),
    }
}

fn after_reasoning(text: &str) -> Result<&str, String> {
    let [begin, end] = REASONING;
    let text = text.trim();
    let Some(reasoning) = text.strip_prefix(begin) else { return Ok(text) };
    let answer = reasoning.split_once(end).map(|(_, answer)| answer);
    answer.ok_or_else(|| "the answer ends within its reasoning".into())
}

fn no_end() -> String {
    "the JSON object of the answer has no end".into()
}

/// Returns the parts of a text that may be a plan. Too many parts are an error.
fn candidates(text: &str) -> Result<Vec<PlanCandidate<'_>>, String> {
    let (mut from, mut found) = (0, Vec::new());
    while let Some(start) = text[from..].find('{').map(|at| from + at) {
        if found.len() == MAX_CANDIDATES {
            return Err(format!("the answer has more than {MAX_CANDIDATES} objects: write only the plan"));
        }
        let Some(length) = balanced(&text[start..]) else {
            found.push(PlanCandidate::Open);
            from = start + 1;
            continue;
        };
        from = start + length;
        let candidate = &text[start..from];
        found.push(match serde_json::from_str(candidate) {
            Ok(object) => PlanCandidate::Object(candidate, object),
            Err(error) => PlanCandidate::Invalid(candidate, error.to_string()),
        });
    }
    Ok(found)
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
    use super::{MAX_QUOTED_BYTES, json_object, quoted};

    const PLAN: &str = r#"{"tasks":[{"task_number":1,"command":"awk","args":["{ print \"}\" }"]}]}"#;

    #[test]
    fn plan_is_found_within_prose_and_fences() {
        let plan = PLAN;
        let spaced = plan.replace(':', ": ");
        for text in [
            plan.to_owned(),
            format!("Here's the plan:\n```json\n{plan}\n```\nIt prints {{x}}."),
            format!(" <think>Should it be {{\"a\":1}}? No.</think>\n{plan}"),
            format!("<think>A draft: {{\"tasks\":[]}}. That is wrong.</think>\n{plan}"),
            format!("It uses {{input.file}}, {{{{input.n}}}} and {{}}: {plan}"),
            format!("A {{ begins a field: {plan}"),
            format!("{plan}{plan}"),
            format!("{spaced}, that is: {plan}"),
            format!("This one is not JSON: {{\"tasks\":[],}}. This is: {plan}"),
        ] {
            assert_eq!(json_object(&text), Ok(plan), "{text}");
        }
    }

    #[test]
    fn end_of_reasoning_in_an_argument_is_a_part_of_the_plan() {
        let plan = r#"{"tasks":[{"task_number":1,"command":"grep","args":["</think>"]}]}"#;
        assert_eq!(json_object(plan), Ok(plan));
        assert_eq!(json_object(&format!("<think>Look for </think>{plan}")), Ok(plan));
    }

    #[test]
    fn draft_is_not_the_plan() {
        let other = PLAN.replace("awk", "sed");
        for (text, reason) in [
            (format!("<think>A draft: {PLAN} but that is wrong"), "the answer ends within its reasoning"),
            (format!("First idea: {PLAN}. Better: {other}"), "the answer has two different plans"),
            (format!("{PLAN} Better: {}", &other[..40]), "the JSON object of the answer has no end"),
            (format!("{PLAN} Better: {{\"tasks\":[],}}"), "the JSON object of the answer is not valid"),
            (format!("{PLAN} {} {other}", "{}".repeat(64)), "the answer has more than 64 objects"),
        ] {
            let found = json_object(&text).unwrap_err();
            assert!(found.starts_with(reason), "{text}: {found}");
        }
    }

    #[test]
    fn text_without_a_plan_is_an_error_with_a_reason() {
        for (text, error) in [
            ("I cannot do that.", "the answer has no JSON object: 'I cannot do that.'"),
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

    #[test]
    fn only_the_object_or_a_bounded_text_is_sent_back() {
        assert_eq!(quoted(&format!("<think>Hm.</think>Here: {PLAN}")), PLAN);
        assert_eq!(quoted("I cannot."), "I cannot.");
        let long = "é".repeat(MAX_QUOTED_BYTES);
        assert_eq!(quoted(&long), "é".repeat(MAX_QUOTED_BYTES / 2) + "…");
    }
}
