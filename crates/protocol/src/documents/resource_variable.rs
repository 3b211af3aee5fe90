//! Environment variables in which tasks get the amounts of their resources.

use std::collections::BTreeMap;

use super::Quantities;

/// Two resources whose amounts tasks would get in one variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' and '{1}' are both {2} in the environment of a task: rename one of the resources")]
pub struct SameVariable(String, String, String);

/// Returns the variable in which a task gets the amount of a resource: `AGX_RESOURCE_` and the name
/// in capitals, with `_` for `-`.
pub fn resource_variable(name: &str) -> String {
    format!("AGX_RESOURCE_{}", name.to_ascii_uppercase().replace('-', "_"))
}

/// Checks that each resource has a variable of its own.
pub fn check_resource_variables(quantities: &Quantities) -> Result<(), SameVariable> {
    let mut names = BTreeMap::new();
    for (name, _) in quantities.iter() {
        let variable = resource_variable(name);
        if let Some(other) = names.insert(variable.clone(), name) {
            return Err(SameVariable(other.to_owned(), name.to_owned(), variable));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_resource_variables;
    use crate::documents::{Quantities, parse};

    #[test]
    fn resources_with_one_variable_are_refused() {
        let checked = |json: &str| {
            let quantities: Quantities = parse(json.as_bytes()).unwrap();
            check_resource_variables(&quantities).map_err(|error| error.to_string())
        };
        assert_eq!(checked(r#"{"cpus":1,"a-b":1,"a-c":1,"ab":1,"a--b":1}"#), Ok(()));
        let refused = "'a-b' and 'a_b' are both AGX_RESOURCE_A_B in the environment of a task: rename one of the resources";
        assert_eq!(checked(r#"{"a_b":1,"cpus":1,"a-b":2}"#), Err(refused.to_owned()));
        assert!(checked(r#"{"a-b-c":1,"a_b-c":1}"#).is_err());
    }
}
