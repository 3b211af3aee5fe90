//! Keys of jobs that are made from a template and the input of the job, as `user:{{input.user}}`.

use agenix_protocol::{
    documents::is_object,
    template::{self, TemplateError, TemplatePart, Values},
};
use serde_json::value::RawValue;

/// Maximum number of bytes of a template, and of a key that is made from it.
pub(crate) const MAX_KEY_BYTES: usize = 255;

/// Template of a key, and the field of the submission that has the template.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyTemplate<'t> {
    /// Field of the submission, as `concurrency.key`.
    pub(crate) name: &'static str,
    /// Text with placeholders of the input.
    pub(crate) template: &'t str,
}

impl KeyTemplate<'_> {
    /// Checks the template, whatever inputs it gets.
    pub(crate) fn check(self) -> Result<(), String> {
        let Self { name, template } = self;
        check_text(template).map_err(|fault| format!("{name} {fault}"))?;
        let parts = template::parts(template).map_err(|error| format!("{name}: {error}"))?;
        if parts.contains(&TemplatePart::Slot) {
            return Err(format!(
                "{name} has {{{{slot}}}}, which nobody knows before a worker runs the job: use fields of the input alone"
            ));
        }
        Ok(())
    }

    /// Checks that the placeholders name only fields that begin with one of `known`.
    pub(crate) fn check_fields(self, known: &[&str]) -> Result<(), String> {
        let fields = template::fields(self.template).unwrap_or_default();
        let is_known = |field: &&str| field.split('.').next().is_some_and(|first| known.contains(&first));
        match fields.into_iter().find(|field| !is_known(field)) {
            None => Ok(()),
            Some(field) => Err(format!(
                "its inputs are the outputs of the previous step, and these have no field '{field}', which {} uses: use {}",
                self.name,
                known.join(", ")
            )),
        }
    }

    /// Returns the key of the job with an input.
    ///
    /// # Errors
    ///
    /// Returns the fault as a text that follows the name of the input.
    pub(crate) fn render(self, input: &RawValue) -> Result<String, String> {
        let Self { name, template } = self;
        if !is_object(input.get()) {
            return Err(" is not an object".into());
        }
        let key = template::fill(template, Values { input, slot: "" }).map_err(|error| match error {
            TemplateError::Missing(field) => format!(" has no field '{field}', which {name} uses"),
            other => format!(": {name}: {other}"),
        })?;
        match check_text(&key) {
            Ok(()) => Ok(key),
            Err(fault) => Err(format!(": its {name} {fault}")),
        }
    }
}

fn check_text(text: &str) -> Result<(), String> {
    match text.len() {
        0 => Err("is empty".into()),
        1..=MAX_KEY_BYTES if text.contains(char::is_control) => Err("contains a control character".into()),
        1..=MAX_KEY_BYTES => Ok(()),
        bytes => Err(format!("has {bytes} bytes, max {MAX_KEY_BYTES}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::{KeyTemplate, MAX_KEY_BYTES};

    fn key(template: &str) -> KeyTemplate<'_> {
        KeyTemplate { name: "k", template }
    }

    #[test]
    fn template_of_a_key_is_checked_without_inputs() {
        let longest = "x".repeat(MAX_KEY_BYTES);
        for fine in ["all", "user:{{input.user}}", "{{ input.a.b }}/{{input.c}}", &longest] {
            assert_eq!(key(fine).check(), Ok(()), "{fine}");
        }
        let longer = format!("{longest}x");
        for (wrong, fault) in [
            ("", "k is empty"),
            (longer.as_str(), "k has 256 bytes, max 255"),
            ("a\nb", "k contains a control character"),
            ("{{slot}}", "k has {{slot}}, which nobody knows before a worker runs the job"),
            ("{{user}}", "k: '{{user}}' is not a placeholder"),
            ("{{input.users[]}}", "k: '{{input.users[]}}' stands for a list"),
            ("{{secret.TOKEN}}", "k: '{{secret.TOKEN}}' stands for a secret"),
        ] {
            let found = key(wrong).check().unwrap_err();
            assert!(found.starts_with(fault), "{found}");
        }
    }

    #[test]
    fn key_is_the_template_with_the_values_of_the_input() {
        let render =
            |template, input: &str| key(template).render(serde_json::from_str::<&RawValue>(input).unwrap());
        assert_eq!(render("user:{{input.user}}", r#"{"user":7}"#).unwrap(), "user:7");
        assert_eq!(render("{{input.a.b}}", r#"{"a":{"b":"x {{input.c}}"}}"#).unwrap(), "x {{input.c}}");
        let longest = format!(r#"{{"user":"{}"}}"#, "x".repeat(MAX_KEY_BYTES - 5));
        assert!(render("user:{{input.user}}", &longest).is_ok());
        for (template, input, fault) in [
            ("user:{{input.user}}", r#"{"name":7}"#, " has no field 'user', which k uses"),
            ("{{input.user}}", r#"{"user":""}"#, ": its k is empty"),
            ("{{input.user}}", r#"{"user":"a\u0000b"}"#, ": its k contains a control character"),
            ("x-user:{{input.user}}", longest.as_str(), ": its k has 257 bytes, max 255"),
            ("all", "7", " is not an object"),
        ] {
            assert_eq!(render(template, input).unwrap_err(), fault);
        }
    }

    #[test]
    fn fields_of_a_key_are_those_that_the_inputs_have() {
        assert_eq!(key("{{input.output.user}}:{{input.job_id}}").check_fields(&["output", "job_id"]), Ok(()));
        let wrong = key("{{input.user}}").check_fields(&["output", "job_id"]).unwrap_err();
        assert!(wrong.contains("no field 'user', which k uses: use output, job_id"), "{wrong}");
    }
}
