//! Checks that builds with and without tests select the same features of each dependency. A
//! dependency with other features is built once more.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;

use crate::report::cargo;

/// Feature sets of each package. A package has several if it is also built for the host.
type FeatureSets<'t> = BTreeMap<&'t str, BTreeSet<&'t str>>;

/// Returns a fault for each dependency whose features depend on the dev-dependencies.
pub(super) fn faults() -> anyhow::Result<Vec<String>> {
    Ok(differences(&selected("normal,build")?, &selected("normal,build,dev")?))
}

/// Returns the packages that cargo selects for the workspace, with their features.
fn selected(edges: &str) -> anyhow::Result<String> {
    let mut tree = cargo(&["tree", "--locked", "--workspace", "--all-features", "--prefix", "none"]);
    let tree = tree.args(["--format", "{p}|{f}", "--edges", edges]).output()?;
    ensure!(tree.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&tree.stderr).trim());
    Ok(String::from_utf8(tree.stdout)?)
}

fn differences(without_tests: &str, with_tests: &str) -> Vec<String> {
    let with_tests = feature_sets(with_tests);
    let is_different = |(package, sets): &(&str, BTreeSet<&str>)| with_tests.get(package) != Some(sets);
    let different = feature_sets(without_tests).into_iter().filter(is_different);
    different
        .map(|(package, _)| {
            format!("{package} has other features in a build with tests: turn them on in xtask/Cargo.toml")
        })
        .collect()
}

fn feature_sets(tree: &str) -> FeatureSets<'_> {
    let mut all = FeatureSets::new();
    for line in tree.lines() {
        // Each package but the first of its kind ends with `(*)`.
        if let Some((package, features)) = line.trim_end_matches(" (*)").split_once('|') {
            all.entry(package).or_default().insert(features);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::differences;

    #[test]
    fn dependency_with_more_features_in_tests_is_a_fault() {
        let without = "a v1|std\nb v2|\nb v2| (*)\n\nc v3|std\n";
        assert_eq!(differences(without, "a v1|std (*)\nb v2|\nc v3|std\nd v4|\n"), Vec::<String>::new());
        let faults = differences(without, "a v1|std\nb v2|\nb v2|full\nc v3|std,unicode\n");
        assert!(matches!(&*faults, [b, c] if b.starts_with("b v2 ") && c.starts_with("c v3 ")), "{faults:?}");
    }
}
