//! Texts about the sandbox of a worker and of a task. Parts of the texts come from workers, so each
//! part is kept on one line.

use std::{collections::BTreeMap, iter};

use agenix_protocol::documents::{MissingProperty, TaskResult, TaskSandbox, WorkerSandbox};

use crate::{output::counted, util::printable::one_line};

/// Returns the profiles of a worker, as `builder, reader (unmet)`.
pub(crate) fn profiles_text(sandbox: &WorkerSandbox) -> String {
    let profiles = sandbox.profiles.iter().map(|(name, unmet)| {
        let unmet = if unmet.is_empty() { "" } else { " (unmet)" };
        format!("{}{unmet}", one_line(name))
    });
    profiles.collect::<Vec<_>>().join(", ")
}

/// Returns a line for each property: its mechanism, or the reason why it does not hold, and the
/// remedy.
pub(crate) fn property_lines(
    enforced: &BTreeMap<String, String>,
    missing: &BTreeMap<String, MissingProperty>,
) -> Vec<String> {
    let line = |name: &str, text: String| format!("{:<15} {}", one_line(name), one_line(&text));
    let enforced = enforced.iter().map(|(name, by)| line(name, by.clone()));
    let missing = missing
        .iter()
        .map(|(name, MissingProperty { reason, remedy })| line(name, format!("nothing: {reason}; {remedy}")));
    enforced.chain(missing).collect()
}

/// Returns the lines about the sandbox of a worker: profiles, unmet needs of profiles, properties.
pub(crate) fn worker_lines(sandbox: &WorkerSandbox) -> Vec<String> {
    let profiles = sandbox.profiles.iter().map(|(name, unmet)| match unmet.as_slice() {
        [] => format!("profile {}", one_line(name)),
        unmet => format!("profile {} (unmet: {})", one_line(name), one_line(&unmet.join("; "))),
    });
    let default = match &sandbox.default_profile {
        Some(profile) => format!("plans without a profile run with {}", one_line(profile)),
        None => "plans without a profile run outside the sandbox".into(),
    };
    let properties = property_lines(&sandbox.enforced, &sandbox.missing);
    let heading = (!properties.is_empty()).then(|| format!("{:<15} ENFORCED BY", "PROPERTY"));
    profiles.chain(iter::once(default)).chain(heading).chain(properties).collect()
}

/// Returns the lines about the sandbox in which a task ran.
pub(crate) fn task_lines(sandbox: &TaskSandbox) -> Vec<String> {
    let list = |heading: &str, of: &BTreeMap<String, String>| {
        let properties: Vec<String> =
            of.iter().map(|(name, text)| format!("{} ({})", one_line(name), one_line(text))).collect();
        (!of.is_empty()).then(|| format!("{heading}: {}", properties.join(", ")))
    };
    let strays = (sandbox.strays > 0).then(|| {
        let strays = counted(sandbox.strays, "process", "processes");
        format!("{strays} that the job left behind: ended by the worker")
    });
    let scratch = (sandbox.scratch_bytes > 0).then(|| {
        format!("{} in the scratch directory at the end", counted(sandbox.scratch_bytes, "byte", "bytes"))
    });
    let denied = sandbox.denied.iter().map(|denied| format!("denied: {}", one_line(denied)));
    iter::once(format!("sandbox with the profile {}", one_line(&sandbox.profile)))
        .chain(list("enforced", &sandbox.enforced))
        .chain(list("not enforced, and not needed by the profile", &sandbox.missing))
        .chain(strays)
        .chain(scratch)
        .chain(denied)
        .collect()
}

/// Returns the explanation of what the sandbox probably denied to a task.
pub(crate) fn denial(result: &TaskResult) -> Option<String> {
    let denied = &result.sandbox.as_ref()?.denied;
    (!denied.is_empty()).then(|| denied.join("; "))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{TaskResult, TaskSandbox, WorkerSandbox, parse};

    use super::{denial, profiles_text, task_lines, worker_lines};

    #[test]
    fn worker_lines_name_profiles_mechanisms_reasons_and_remedies() {
        let json = br#"{"profiles":{"builder":[],"reader":["exec is not enforced: no Landlock; use Linux 6.2\nx"]},
            "enforced":{"network":"seccomp"},"missing":{"exec":{"reason":"no Landlock","remedy":"use Linux 6.2"}}}"#;
        let sandbox: WorkerSandbox = parse(json).unwrap();
        assert_eq!(profiles_text(&sandbox), "builder, reader (unmet)");
        assert_eq!(
            worker_lines(&sandbox),
            [
                "profile builder",
                "profile reader (unmet: exec is not enforced: no Landlock; use Linux 6.2\\nx)",
                "plans without a profile run outside the sandbox",
                "PROPERTY        ENFORCED BY",
                "network         seccomp",
                "exec            nothing: no Landlock; use Linux 6.2",
            ]
        );
        let sandbox = WorkerSandbox { default_profile: Some("builder".into()), ..WorkerSandbox::default() };
        assert_eq!(worker_lines(&sandbox), ["plans without a profile run with builder"]);
    }

    #[test]
    fn task_lines_say_what_held_what_did_not_and_what_was_denied() {
        let plain = TaskSandbox { profile: "reader".into(), ..TaskSandbox::default() };
        assert_eq!(task_lines(&plain), ["sandbox with the profile reader"]);
        let sandbox = TaskSandbox {
            enforced: [("exec".into(), "Landlock".into()), ("network".into(), "seccomp".into())].into(),
            missing: [("limits_memory".into(), "no control group".into())].into(),
            strays: 1,
            scratch_bytes: 4096,
            denied: vec!["wc could not open\n/etc/shadow".into(), "a connection".into()],
            ..plain
        };
        assert_eq!(
            task_lines(&sandbox)[1..],
            [
                "enforced: exec (Landlock), network (seccomp)",
                "not enforced, and not needed by the profile: limits_memory (no control group)",
                "1 process that the job left behind: ended by the worker",
                "4096 bytes in the scratch directory at the end",
                "denied: wc could not open\\n/etc/shadow",
                "denied: a connection",
            ]
        );
        let result = TaskResult { sandbox: Some(sandbox), ..TaskResult::default() };
        assert_eq!(denial(&result).unwrap(), "wc could not open\n/etc/shadow; a connection");
        assert_eq!(denial(&TaskResult::default()), None);
    }
}
