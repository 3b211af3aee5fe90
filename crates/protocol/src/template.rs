//! Placeholders in a plan: `{{input.field}}` stands for a field of the job's input (design, decision 10).
//!
//! A value is data: it is put into the one text it stands in and never becomes two arguments.

use serde_json::Value;

/// Why a template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `{{` without its `}}`.
    #[error("'{{{{' is never closed by '}}}}'")]
    Unclosed,
    /// Something else than `input.field` between the braces.
    #[error("'{{{{{0}}}}}' is not a placeholder: write {{{{input.FIELD}}}}")]
    NotAnInput(String),
    /// The input lacks the field.
    #[error("the input has no field '{0}'")]
    Missing(String),
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece<'t> {
    Text(&'t str),
    Field(&'t str),
}

fn pieces(template: &str) -> Result<Vec<Piece<'_>>, TemplateError> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find("{{") {
        let close = rest[open..].find("}}").ok_or(TemplateError::Unclosed)? + open;
        let inner = rest[open + 2..close].trim();
        let field = inner.strip_prefix("input.").filter(|f| is_path(f));
        let field = field.ok_or_else(|| TemplateError::NotAnInput(inner.to_owned()))?;
        found.push(Piece::Text(&rest[..open]));
        found.push(Piece::Field(field));
        rest = &rest[close + 2..];
    }
    found.push(Piece::Text(rest));
    Ok(found)
}

fn is_path(field: &str) -> bool {
    let legal = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    field.split('.').all(|part| !part.is_empty() && part.chars().all(legal))
}

/// The fields that `template` names, in order; an error when its braces are wrong.
pub fn fields(template: &str) -> Result<Vec<&str>, TemplateError> {
    let field = |piece| match piece {
        Piece::Field(field) => Some(field),
        Piece::Text(_) => None,
    };
    Ok(pieces(template)?.into_iter().filter_map(field).collect())
}

/// The value at a dotted path of `input`.
pub fn lookup<'v>(input: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(input, |value, part| value.get(part))
}

/// `template` with the values of `input` put in: text as it is, everything else as its JSON.
pub fn fill(template: &str, input: &Value) -> Result<String, TemplateError> {
    if !template.contains("{{") {
        return Ok(template.to_owned());
    }
    let mut filled = String::with_capacity(template.len());
    for piece in pieces(template)? {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Field(path) => match lookup(input, path) {
                None => return Err(TemplateError::Missing(path.to_owned())),
                Some(Value::String(text)) => filled.push_str(text),
                Some(other) => filled.push_str(&other.to_string()),
            },
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{TemplateError, fields, fill};

    #[test]
    fn values_are_data() {
        let input = json!({"file": "a b; rm -rf {{input.n}}", "n": 3, "deep": {"er": true}});
        assert_eq!(fill("--in={{input.file}}", &input).unwrap(), "--in=a b; rm -rf {{input.n}}");
        assert_eq!(fill("{{ input.n }}/{{input.deep.er}}", &input).unwrap(), "3/true");
        assert_eq!(fill("plain } text", &input).unwrap(), "plain } text");
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let input = json!({});
        assert_eq!(fill("{{input.file}}", &input), Err(TemplateError::Missing("file".into())));
        assert_eq!(fields("{{input.file"), Err(TemplateError::Unclosed));
        assert_eq!(fields("{{env.HOME}}"), Err(TemplateError::NotAnInput("env.HOME".into())));
        let text = fields("{{x}}").unwrap_err().to_string();
        assert_eq!(text, "'{{x}}' is not a placeholder: write {{input.FIELD}}");
    }
}
