//! Environment of tasks: that of the worker without the session key, or only the variables that the
//! owner of the worker has named (`--task-env`). Tasks inherit open files only with
//! `--inherit-files`.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

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

/// True if tasks inherit the files that the worker has inherited open.
static INHERITS_FILES: AtomicBool = AtomicBool::new(false);

/// Lets all further children inherit the files that the worker has inherited open, or closes these
/// files for them.
pub(crate) fn inherit_files(is_wanted: bool) {
    INHERITS_FILES.store(is_wanted, Ordering::Relaxed);
    if !is_wanted {
        agenix_sys::keep_from_children();
    }
}

/// Returns true if tasks inherit the files that the worker has inherited open.
#[cfg(target_os = "linux")]
pub(crate) fn inherits_files() -> bool {
    INHERITS_FILES.load(Ordering::Relaxed)
}

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

/// Returns the variables of a child, without those of its plan.
pub(crate) fn variables() -> BTreeMap<OsString, OsString> {
    static VARIABLES: OnceLock<BTreeMap<OsString, OsString>> = OnceLock::new();
    match WITHHELD.get() {
        None => all_variables(),
        // From here on, the variables of children do not change.
        Some(_) => VARIABLES.get_or_init(all_variables).clone(),
    }
}

fn all_variables() -> BTreeMap<OsString, OsString> {
    let mut variables: BTreeMap<OsString, OsString> = match NAMED.get() {
        Some(named) => named.iter().map(|(name, value)| (name.into(), value.clone())).collect(),
        None => std::env::vars_os().collect(),
    };
    for name in WITHHELD.get().into_iter().flatten().map(String::as_str).chain([SESSION_KEY]) {
        variables.remove(OsStr::new(name));
    }
    variables
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
