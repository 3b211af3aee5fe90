//! Placeholders in a plan: `{{input.field}}` stands for a field of the input of the job.
//!
//! A value is data: it fills the one text that contains its placeholder, and never becomes two
//! arguments. An argument that is exactly `{{input.field[]}}` is the exception: each element of the
//! array becomes one argument. Numbers keep the text of the submitter, because the input is parsed
//! in parts without a conversion to floats. `{{"{{"}}` stands for two literal braces: one or more
//! opening braces in quotation marks. `{{slot}}` stands for the number of the slot in which the
//! worker runs the job. A variable of `env` that is exactly `{{secret.NAME}}` has the value of a
//! secret of the worker's owner; only the worker resolves it.

use std::{borrow::Cow, fmt};

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Error of a template, or of its values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A `{{` has no `}}`.
    #[error("'{{{{' is never closed by '}}}}': write {{{{\"{{{{\"}}}} for these two characters as they are")]
    Unclosed,
    /// The text between the braces is neither `input.field` nor braces in quotation marks.
    #[error(
        "'{{{{{0}}}}}' is not a placeholder: write {{{{input.FIELD}}}}, or {{{{\"{{{{\"}}}} for two braces as they are"
    )]
    NotAnInput(String),
    /// The placeholder of a list is not a whole argument.
    #[error(
        "'{{{{input.{0}[]}}}}' stands for a list of arguments, so it has to be a whole element of args: write {{{{input.{0}}}}} \
         for the value as one text"
    )]
    ListInText(String),
    /// The placeholder of a secret is not the whole value of a variable.
    #[error(
        "'{{{{secret.{0}}}}}' stands for a secret, so it has to be the whole value of a variable in env, where agw can \
         keep it from the output"
    )]
    SecretInText(String),
    /// The field of the placeholder of a list is not an array.
    #[error("the field '{0}' of the input is not an array")]
    NotAList(String),
    /// The input lacks the field.
    #[error("the input has no field '{0}'")]
    Missing(String),
}

/// Part of a template: text, the placeholder of a field of the input, or that of the slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart<'t> {
    /// Literal text.
    Text(&'t str),
    /// Placeholder of the field of the input at this dotted path.
    Field(&'t str),
    /// Placeholder of the slot.
    Slot,
}

/// Name of the placeholder of the slot.
const SLOT: &str = "slot";
/// Maximum number of bytes of the name of a secret.
const MAX_SECRET_NAME_BYTES: usize = 64;

/// Values of the placeholders of a job.
#[derive(Debug, Clone, Copy)]
pub struct Values<'v> {
    /// Input of the job.
    pub input: &'v RawValue,
    /// Text of the slot of the job: its number, from 1.
    pub slot: &'v str,
}

/// Returns the parts of `template` in order. Invalid placeholders are an error.
pub fn parts(template: &str) -> Result<Vec<TemplatePart<'_>>, TemplateError> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find("{{") {
        let close = rest[open..].find("}}").ok_or(TemplateError::Unclosed)? + open;
        let inner = rest[open + 2..close].trim();
        found.push(TemplatePart::Text(&rest[..open]));
        if let Some(field) = list_field(inner) {
            return Err(TemplateError::ListInText(field.to_owned()));
        }
        if let Some(name) = secret_name(inner) {
            return Err(TemplateError::SecretInText(name.to_owned()));
        }
        found.push(match inner.strip_prefix("input.").filter(|field| is_path(field)) {
            Some(field) => TemplatePart::Field(field),
            None if inner == SLOT => TemplatePart::Slot,
            None => TemplatePart::Text(
                quoted_braces(inner).ok_or_else(|| TemplateError::NotAnInput(inner.to_owned()))?,
            ),
        });
        rest = &rest[close + 2..];
    }
    found.push(TemplatePart::Text(rest));
    Ok(found)
}

/// Returns the opening braces in quotation marks, if `inner` contains nothing else.
fn quoted_braces(inner: &str) -> Option<&str> {
    let braces = inner.strip_prefix('"')?.strip_suffix('"')?;
    (!braces.is_empty() && braces.bytes().all(|byte| byte == b'{')).then_some(braces)
}

/// Returns the field of `input.field[]`, the text between the braces of the placeholder of a list.
fn list_field(inner: &str) -> Option<&str> {
    inner.strip_prefix("input.")?.strip_suffix("[]").filter(|field| is_path(field))
}

/// Returns the field whose elements become arguments if `arg` is exactly `{{input.field[]}}`.
pub fn list(arg: &str) -> Option<&str> {
    list_field(arg.strip_prefix("{{")?.strip_suffix("}}")?.trim())
}

/// Returns true if `name` is a legal name of a secret: 1 to 64 ASCII letters, digits and `_`.
pub fn is_secret_name(name: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=MAX_SECRET_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_legal)
}

/// Returns the name in `secret.NAME`, the text between the braces of the placeholder of a secret.
fn secret_name(inner: &str) -> Option<&str> {
    inner.strip_prefix("secret.").filter(|name| is_secret_name(name))
}

/// Returns the name of the secret if `value`, of a variable, is exactly `{{secret.NAME}}`.
pub fn secret(value: &str) -> Option<&str> {
    secret_name(value.strip_prefix("{{")?.strip_suffix("}}")?.trim())
}

fn is_path(field: &str) -> bool {
    let legal = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    field.split('.').all(|part| !part.is_empty() && part.chars().all(legal))
}

/// Returns the fields that `template` names, in order. Invalid placeholders are an error.
pub fn fields(template: &str) -> Result<Vec<&str>, TemplateError> {
    let field = |chunk| match chunk {
        TemplatePart::Field(field) => Some(field),
        TemplatePart::Text(_) | TemplatePart::Slot => None,
    };
    Ok(parts(template)?.into_iter().filter_map(field).collect())
}

/// Returns the JSON at a dotted path of `input`. Of two fields with one name, the last counts.
pub(crate) fn raw_lookup<'v>(input: &'v RawValue, path: &str) -> Option<&'v RawValue> {
    path.split('.').try_fold(input, |value, part| {
        let mut object = serde_json::Deserializer::from_str(value.get());
        object.deserialize_map(FieldOf(part)).ok().flatten()
    })
}

/// Visitor that reads one field of an object.
struct FieldOf<'p>(&'p str);

impl<'v> Visitor<'v> for FieldOf<'_> {
    type Value = Option<&'v RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'v>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            if name == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Returns the arguments that `args` stand for, each filled as [`fill`] does. The placeholder of a
/// list becomes one argument for each element of its array, which may be empty.
pub fn fill_args(args: &[String], values: Values<'_>) -> Result<Vec<String>, TemplateError> {
    let mut filled = Vec::with_capacity(args.len());
    for arg in args {
        let Some(path) = list(arg) else {
            filled.push(fill(arg, values)?);
            continue;
        };
        let value = raw_lookup(values.input, path).ok_or_else(|| TemplateError::Missing(path.to_owned()))?;
        let elements: Vec<&RawValue> =
            serde_json::from_str(value.get()).map_err(|_| TemplateError::NotAList(path.to_owned()))?;
        filled.extend(elements.into_iter().map(text_of));
    }
    Ok(filled)
}

/// Returns the text that stands for a value: a string as it is, and any other value as its JSON.
fn text_of(value: &RawValue) -> String {
    serde_json::from_str(value.get()).unwrap_or_else(|_no_text| compact(value.get()).into_owned())
}

/// Returns `template` filled: strings as their text, other values as submitted JSON, no blanks.
pub fn fill(template: &str, values: Values<'_>) -> Result<String, TemplateError> {
    if !template.contains("{{") {
        return Ok(template.to_owned());
    }
    let mut filled = String::with_capacity(template.len());
    for chunk in parts(template)? {
        match chunk {
            TemplatePart::Text(text) => filled.push_str(text),
            TemplatePart::Field(path) => {
                let missing = || TemplateError::Missing(path.to_owned());
                filled.push_str(&text_of(raw_lookup(values.input, path).ok_or_else(missing)?));
            }
            TemplatePart::Slot => filled.push_str(values.slot),
        }
    }
    Ok(filled)
}

/// Returns the template of `text` as it is: two or more opening braces are in quotation marks.
pub fn literal(text: &str) -> String {
    let (mut template, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(open) = rest.find("{{") {
        let after = rest[open..].trim_start_matches('{');
        let braces = &rest[open..rest.len() - after.len()];
        template.extend([&rest[..open], "{{\"", braces, "\"}}"]);
        rest = after;
    }
    template.push_str(rest);
    template
}

/// Removes the blanks between the parts of a JSON text, and keeps everything else.
pub fn compact(json: &str) -> Cow<'_, str> {
    let is_blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r');
    if !json.contains(is_blank) {
        return json.into();
    }
    let (mut is_in_text, mut is_escaped) = (false, false);
    let mut compacted = String::with_capacity(json.len());
    for c in json.chars() {
        if is_in_text {
            is_in_text = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
        } else if is_blank(c) {
            continue;
        } else {
            is_in_text = c == '"';
        }
        compacted.push(c);
    }
    compacted.into()
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::{TemplateError, Values, compact, fields};

    fn values(input: &str) -> Values<'_> {
        Values { input: serde_json::from_str::<&RawValue>(input).unwrap(), slot: "3" }
    }

    fn fill(template: &str, input: &str) -> Result<String, TemplateError> {
        super::fill(template, values(input))
    }

    #[test]
    fn slot_is_no_field_of_the_input() {
        let input = r#"{"slot": "of the input", "x": "{{slot}}"}"#;
        assert_eq!(fill("gpu{{slot}}/{{ slot }}", input).unwrap(), "gpu3/3");
        assert_eq!(fill("{{input.slot}} {{input.x}}", input).unwrap(), "of the input {{slot}}");
        assert!(fields("{{slot}}").unwrap().is_empty());
        for wrong in ["{{slots}}", "{{slot.x}}", "{{slot[]}}"] {
            assert!(matches!(fields(wrong), Err(TemplateError::NotAnInput(_))), "{wrong}");
        }
        assert_eq!(fill(r#"{{"{{"}}slot}}"#, input).unwrap(), "{{slot}}");
    }

    #[test]
    fn values_are_not_expanded_again() {
        let input = r#"{"file": "a b; rm -rf {{input.n}}", "n": 3, "deep": {"er": true}}"#;
        assert_eq!(fill("--in={{input.file}}", input).unwrap(), "--in=a b; rm -rf {{input.n}}");
        assert_eq!(fill("{{ input.n }}/{{input.deep.er}}", input).unwrap(), "3/true");
        assert_eq!(fill("plain } text", input).unwrap(), "plain } text");
    }

    #[test]
    fn list_placeholders_become_one_argument_for_each_element() {
        let filled = |args: &[&str], input: &str| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            super::fill_args(&args, values(input))
        };
        let input =
            r#"{"files": ["a b", "{{input.x}}", "", 1.10, [ 2, "c" ]], "none": [], "deep": {"x": ["y"]}}"#;
        assert_eq!(
            filled(&["-r", "{{input.files[]}}", "z"], input).unwrap(),
            ["-r", "a b", "{{input.x}}", "", "1.10", r#"[2,"c"]"#, "z"]
        );
        assert_eq!(filled(&["{{input.none[]}}", "{{ input.deep.x[] }}"], input).unwrap(), ["y"]);
        assert_eq!(filled(&["{{input.none}}"], input).unwrap(), ["[]"]);
        assert_eq!(filled(&["{{input.f[]}}"], input), Err(TemplateError::Missing("f".into())));
        assert_eq!(filled(&["{{input.deep[]}}"], input), Err(TemplateError::NotAList("deep".into())));
        for arg in ["x{{input.files[]}}", "{{input.files[]}} ", "{{input.none[]}}{{input.none[]}}"] {
            assert!(super::list(arg).is_none(), "{arg}");
            assert!(matches!(fields(arg), Err(TemplateError::ListInText(_))), "{arg}");
        }
        for arg in ["{{input.[]}}", "{{files[]}}", "{{input.a[0]}}", "{{input.a[][]}}"] {
            assert!(matches!(fields(arg), Err(TemplateError::NotAnInput(_))), "{arg}");
        }
    }

    #[test]
    fn secret_names_have_letters_digits_and_underscores() {
        for legal in ["TOKEN", "a", "x_9", &"a".repeat(64)] {
            assert!(super::is_secret_name(legal), "{legal}");
        }
        for illegal in ["", "a-b", "a b", "a:b", "a.b", "\u{e9}", "{{input.x", &"a".repeat(65)] {
            assert!(!super::is_secret_name(illegal), "{illegal}");
        }
    }

    #[test]
    fn secret_is_the_whole_value_of_a_variable() {
        assert_eq!(super::secret("{{secret.TOKEN}}"), Some("TOKEN"));
        assert_eq!(super::secret("{{ secret.a_1 }}"), Some("a_1"));
        let input = r#"{"x": "{{secret.TOKEN}}", "name": "TOKEN"}"#;
        assert_eq!(fill("{{input.x}}", input).unwrap(), "{{secret.TOKEN}}", "of an input it is text");
        assert_eq!(fill(r#"{{"{{"}}secret.TOKEN}}"#, input).unwrap(), "{{secret.TOKEN}}");
        for inside in ["{{secret.A}}", "x{{secret.A}}", "{{secret.A}}{{secret.A}}", "{{secret.A}} "] {
            assert_eq!(fill(inside, input), Err(TemplateError::SecretInText("A".into())), "{inside}");
        }
        for wrong in [
            "{{secret.}}",
            "{{secret.A-B}}",
            "{{secret.{{input.name}}}}",
            "{{secret.A.B}}",
            "{{secret.A[]}}",
            "{{secret}}",
        ] {
            assert!(super::secret(wrong).is_none(), "{wrong}");
            assert!(matches!(fields(wrong), Err(TemplateError::NotAnInput(_))), "{wrong}");
        }
        for wrong in ["x{{secret.A}}", "{{secret.A}}\n", "{secret.A}", "secret.A"] {
            assert!(super::secret(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn numbers_keep_their_text() {
        let numbers = "0 -0 0.0 1.10 1E5 1e+5 -1.5e-7 0.1000000000000000055 \
                       9007199254740993 18446744073709551615 18446744073709551616 123456789012345678901234567890 1e400";
        for number in numbers.split(' ') {
            let input = format!(r#"{{"n": {number}, "deep": {{"list": [{number}, {{"n": {number}}}]}}}}"#);
            assert_eq!(fill("{{input.n}}", &input).as_deref(), Ok(number));
            let list = format!("[{number},{{\"n\":{number}}}]");
            assert_eq!(fill("{{input.deep.list}}", &input), Ok(list));
        }
    }

    #[test]
    fn other_values_are_inserted_as_compact_json() {
        let input = "{\"a\" : { \"z\":\t\"a \\\" b\",\n\"b\": [ ] }, \"t\": \"\\u0041 \\\\\", \"x\": null}";
        assert_eq!(fill("{{input.a}}", input).unwrap(), r#"{"z":"a \" b","b":[]}"#);
        assert_eq!(fill("{{input.t}}|{{input.x}}", input).unwrap(), "A \\|null");
        assert_eq!(fill("{{input.x.y}}", input), Err(TemplateError::Missing("x.y".into())));
        assert_eq!(fill("{{input.n}}", r#"{"n":1,"\u006e":2}"#).unwrap(), "2", "the last of a name counts");
        assert_eq!(compact(r#"{"a\\": "b "}"#), r#"{"a\\":"b "}"#);
    }

    #[test]
    fn quoted_braces_are_literal() {
        let input = r#"{"x": "v"}"#;
        for (template, text) in [
            (r#"{{"{{"}}.Name}}"#, "{{.Name}}"),
            (r#"{{"{"}}{{input.x}}}"#, "{v}"),
            (r#"{{ "{{{" }}"#, "{{{"),
            (r#"{{"{{"}}input.x}}"#, "{{input.x}}"),
        ] {
            assert_eq!(fill(template, input).unwrap(), text, "{template}");
        }
        for text in ["a/{{input.x}}/{{{slot}}}", "{{{{", "{a}", r#"{{"{{"}}"#] {
            assert_eq!(fill(&super::literal(text), input).unwrap(), text);
        }
        assert_eq!(fields(r#"{{"{{"}}input.y}} {{input.x}}"#).unwrap(), ["x"]);
        for wrong in [r#"{{""}}"#, r#"{{"x"}}"#, r#"{{"{x"}}"#, r#"{{"}}"#, r#"{{"{"{"}}"#] {
            assert!(matches!(fields(wrong), Err(TemplateError::NotAnInput(_))), "{wrong}");
        }
    }

    #[test]
    fn template_errors_name_the_cause() {
        assert_eq!(fill("{{input.file}}", "{}"), Err(TemplateError::Missing("file".into())));
        assert_eq!(fields("{{input.file"), Err(TemplateError::Unclosed));
        assert_eq!(fields("{{env.HOME}}"), Err(TemplateError::NotAnInput("env.HOME".into())));
        let text = fields("{{x}}").unwrap_err().to_string();
        assert_eq!(
            text,
            r#"'{{x}}' is not a placeholder: write {{input.FIELD}}, or {{"{{"}} for two braces as they are"#
        );
    }
}
