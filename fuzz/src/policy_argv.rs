//! Arguments of tools of the library of policies: the judgement holds for every value of an input.

use std::sync::LazyLock;

use agenix_policy::{Decision, Policy};

/// Policy of the target.
const POLICY: &str = "version = 1\nlibrary = true\n[paths]\nread = [\".\"]\nwrite = [\"out\"]";
/// Placeholder that the target fills.
const PLACEHOLDER: &str = "{{input.x}}";

static PARSED: LazyLock<Policy> = LazyLock::new(|| match Policy::parse(POLICY) {
    Ok(policy) => policy,
    Err(error) => panic!("{error}"),
});

/// A tool and its arguments, one on each line. The last line is also the value of the placeholders.
pub fn policy_argv(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let mut lines = text.split('\n').map(String::from);
    let (Some(tool), args) = (lines.next(), lines.collect::<Vec<_>>()) else { return false };
    let judged = PARSED.judge_argv(&tool, &args);
    for file in &judged.files {
        let is_outside = file.path.starts_with('/') || file.path.split('/').any(|part| part == "..");
        assert!(!is_outside, "{tool} {args:?} names {}", file.path);
    }
    if judged.decision != Decision::Allow {
        assert!(!judged.findings.is_empty(), "{tool} {args:?} is refused without a reason");
        return false;
    }
    let value = args.last().map_or("", String::as_str);
    let is_plain = !value.contains(['{', '}', '\0']);
    if is_plain && args.iter().any(|arg| arg.contains(PLACEHOLDER)) {
        let filled: Vec<String> = args.iter().map(|arg| arg.replace(PLACEHOLDER, value)).collect();
        let judged = PARSED.judge_argv(&tool, &filled);
        assert_eq!(judged.decision, Decision::Allow, "{tool} {filled:?}: {:?}", judged.findings);
    }
    true
}
