//! Command `agw sandbox`: shows which guarantees about untrusted tasks this machine can enforce.

use std::{fmt::Write, process::ExitCode};

use agenix_protocol::{documents::to_json, printable::printable};
use agenix_sandbox::{
    profile::Profile,
    property::Property,
    report::{MissingProperty, Report},
};
use serde_json::json;

use crate::exec::sandbox::machine::{self, Examined};

/// Name of the schema of the JSON document.
const SCHEMA: &str = "agw/1";

/// Attacks a sandbox on this machine. Returns the properties that hold, as text or JSON, and the
/// exit code, which is 1 if the profile `reader` cannot be enforced.
pub(crate) fn run(is_json: bool) -> anyhow::Result<(String, ExitCode)> {
    let Examined { regime, report, .. } = examined()?;
    let unmet = Profile::reader().needs().without(&report.properties());
    let text = if is_json {
        let data = json!({"regime": regime, "enforced": report.enforced, "missing": report.missing});
        to_json(&json!({"schema": SCHEMA, "kind": "sandbox", "data": data})) + "\n"
    } else {
        printable(&table(&report, unmet.is_empty()))
    };
    Ok((text, if unmet.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

fn table(report: &Report, is_enough: bool) -> String {
    let mut text = format!("{:<15} ENFORCED BY\n", "PROPERTY");
    for property in Property::ALL {
        let by = match (report.enforced.get(&property), report.missing.get(&property)) {
            (Some(by), _) => by.clone(),
            (None, Some(MissingProperty { reason, remedy })) => format!("nothing: {reason}; {remedy}"),
            (None, None) => "nothing".into(),
        };
        let _always_written = writeln!(text, "{:<15} {by}", property.word());
    }
    text += match is_enough {
        true => "this machine can enforce the profile reader\n",
        false => "this machine cannot enforce the profile reader, so untrusted jobs need another machine\n",
    };
    text
}

fn examined() -> anyhow::Result<Examined> {
    let directory = agenix_cli::temp_dir();
    #[cfg(target_os = "linux")]
    return machine::examine(&directory, machine::user_of_tasks(None)?);
    #[cfg(not(target_os = "linux"))]
    machine::examine(&directory)
}

#[cfg(test)]
mod tests {
    use agenix_sandbox::{
        property::Property,
        report::{MissingProperty, Report},
    };

    use super::table;

    #[test]
    fn table_has_a_line_for_each_property() {
        let missing =
            MissingProperty { reason: "no Landlock".into(), remedy: "use Linux 6.2 or later".into() };
        let report = Report {
            enforced: [(Property::Exec, "Landlock".into())].into(),
            missing: [(Property::FilesRead, missing)].into(),
        };
        let text = table(&report, false);
        assert_eq!(text.lines().count(), Property::ALL.len() + 2);
        assert!(text.contains("files_read      nothing: no Landlock; use Linux 6.2 or later\n"), "{text}");
        assert!(text.contains("exec            Landlock\n"), "{text}");
        assert!(text.ends_with("so untrusted jobs need another machine\n"), "{text}");
    }
}
