//! Filters of jq that a policy allows: those that read no module, no environment and no file.

/// Names of jq that read more than the input.
const REFUSED: [&str; 7] =
    ["env", "ENV", "import", "include", "modulemeta", "get_search_list", "input_filename"];

/// Checks a whole filter. A name counts wherever it is, also in a string.
///
/// # Errors
///
/// Returns the first name that is not allowed.
pub(crate) fn check(filter: &str) -> Result<(), String> {
    let mut names = filter.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    match names.find(|name| REFUSED.contains(name)) {
        None => Ok(()),
        Some(name) => Err(format!("'{name}' of jq reads more than the input")),
    }
}
