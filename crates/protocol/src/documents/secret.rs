//! Tags of workers that give a secret of their owner to a tool.

/// Prefix of the tag of workers that give a secret to a tool, as `secret:TOKEN:curl`. Jobs whose
/// plan names the secret require the tag, so that older workers do not get these jobs.
const TAG_PREFIX: &str = "secret:";

/// Returns the tag of workers that give the secret `name` to tasks of `tool`.
pub fn secret_tag(name: &str, tool: &str) -> String {
    format!("{TAG_PREFIX}{name}:{tool}")
}

/// Returns the name and the tool of a tag that [`secret_tag`] has returned.
pub fn secret_of_tag(tag: &str) -> Option<(&str, &str)> {
    tag.strip_prefix(TAG_PREFIX)?.split_once(':')
}

#[cfg(test)]
mod tests {
    use super::{secret_of_tag, secret_tag};

    #[test]
    fn tag_of_a_secret_has_its_name_and_its_tool() {
        assert_eq!(secret_tag("TOKEN", "./a:b"), "secret:TOKEN:./a:b");
        assert_eq!(secret_of_tag("secret:TOKEN:./a:b"), Some(("TOKEN", "./a:b")));
        assert_eq!((secret_of_tag("secret:TOKEN"), secret_of_tag("gpu")), (None, None));
    }
}
