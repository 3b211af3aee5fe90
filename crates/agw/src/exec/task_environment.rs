//! Environment of tasks: that of the worker without the session key, or only the variables that
//! the owner of the worker has named (`--task-env`).

use std::{ffi::OsString, process::Command, sync::OnceLock};

/// Environment variable that is withheld from every child.
const SESSION_KEY: &str = "AGQ_SESSION_KEY";
/// Variable with which programs read an option after an operand as an operand. A policy reads such
/// an option as an option.
pub(crate) const NO_OPTIONS_AFTER_OPERANDS: &str = "POSIXLY_CORRECT";
/// Variable without which few programs run.
const PATH: &str = "PATH";

/// Variables of all children. Unset if children inherit the environment.
static NAMED: OnceLock<Vec<(String, OsString)>> = OnceLock::new();
/// Variables that are withheld from all children: secrets, and those that a policy does not know.
static WITHHELD: OnceLock<Vec<String>> = OnceLock::new();

/// Restricts the environment of all further children to PATH and the variables `names`.
pub(crate) fn restrict_to(names: &[String]) {
    let named = named(names, |name| std::env::var_os(name));
    NAMED.set(named).expect("only the start of the worker restricts the environment");
}

/// Withholds the variables `names` from all further children.
pub(crate) fn withhold<'n>(names: impl Iterator<Item = &'n str>) {
    let names = names.map(String::from).collect();
    WITHHELD.set(names).expect("only the start of the worker withholds variables");
}

fn named(names: &[String], value: impl Fn(&str) -> Option<OsString>) -> Vec<(String, OsString)> {
    let names = names.iter().map(String::as_str).filter(|&name| name != SESSION_KEY);
    names.chain([PATH]).filter_map(|name| Some((name.to_owned(), value(name)?))).collect()
}

/// Sets the environment of a child. Variables of its plan are set afterwards.
pub(crate) fn apply(command: &mut Command) {
    if let Some(named) = NAMED.get() {
        command.env_clear().envs(named.iter().map(|(name, value)| (name, value)));
    } else if std::env::var_os(SESSION_KEY).is_some() {
        command.env_remove(SESSION_KEY);
    }
    for name in WITHHELD.get().into_iter().flatten() {
        command.env_remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn named_environment_has_path_and_never_the_session_key() {
        let set = |name: &str| (name != "UNSET").then(|| format!("of {name}").into());
        let names = ["LANG", "AGQ_SESSION_KEY", "UNSET"].map(String::from);
        let expected = [("LANG", "of LANG"), ("PATH", "of PATH")];
        assert_eq!(named(&names, set), expected.map(|(name, value)| (name.to_owned(), value.into())));
    }
}
