//! Report of attacks for `cargo xtask attacks`: one JSON document in a line for each attack.

use std::{fs::File, io::Write};

use serde_json::json;

/// Environment variable with the file of the report. Without the variable, there is no report.
const REPORT: &str = "AGENIX_ATTACKS";

/// Appends an attack. `outcome` is "stopped", or else a text for people.
pub(super) fn append(
    (number, attack): (u8, &str),
    (regime, wall): (&str, &str),
    (outcome, has_succeeded): (&str, bool),
) {
    let Some(path) = std::env::var_os(REPORT) else { return };
    let line = json!({
        "number": number, "attack": attack, "regime": regime, "wall": wall, "outcome": outcome,
        "succeeded": has_succeeded,
    });
    // Tests run at the same time, and each appends its lines whole.
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}
