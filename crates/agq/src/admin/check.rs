//! `agq check`: checks a database or a backup.

use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

use super::{database, say};
use crate::{
    blobs::check::check_files,
    config::CheckArgs,
    store::redb::{DatabaseReport, FORMAT, examine},
};

/// Prints the result of the check. Returns true if the database is consistent.
pub(super) fn check(args: &CheckArgs) -> anyhow::Result<bool> {
    let file = database(&args.path);
    let found = examine(&file).and_then(|found| with_blobs(found, args));
    if args.json {
        say(&document(&file, &found).to_string())?;
        return Ok(found.is_ok_and(|found| found.inconsistencies.is_empty()));
    }
    let found = found?;
    for line in &found.inconsistencies {
        say(line)?;
    }
    say(&summary(&file, &found))?;
    Ok(found.inconsistencies.is_empty())
}

/// Adds the faults of the files of blobs, if there are any.
fn with_blobs(mut found: DatabaseReport, args: &CheckArgs) -> anyhow::Result<DatabaseReport> {
    let Some(location) = args.blobs()? else { return Ok(found) };
    if let Some(storage) = location.open_for_reads()? {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let faults = runtime.block_on(check_files(&storage, &found.blobs));
        found.inconsistencies.extend(faults.with_context(|| format!("cannot read {location}"))?);
    }
    Ok(found)
}

fn summary(file: &Path, found: &DatabaseReport) -> String {
    let file = file.display();
    if !found.inconsistencies.is_empty() {
        return format!(
            "{file} has {}; keep the file and attach it to a bug report, and restore the last backup with `agq restore`",
            found.inconsistency_count()
        );
    }
    let DatabaseReport { format, bytes, plans, actions, jobs, .. } = found;
    let upgrade = if *format < FORMAT { ", which agq upgrades at its next start" } else { "" };
    format!(
        "{file} is consistent: {jobs} jobs, {actions} actions, {plans} plans in {bytes} bytes of format {format}{upgrade}"
    )
}

fn document(file: &Path, found: &anyhow::Result<DatabaseReport>) -> Value {
    let file = file.display().to_string();
    match found {
        Ok(found) => json!({
            "file": file,
            "is_sound": found.inconsistencies.is_empty(),
            "format": found.format,
            "bytes": found.bytes,
            "plans": found.plans,
            "actions": found.actions,
            "jobs": found.jobs,
            "blobs": found.blobs.len(),
            "inconsistencies": found.inconsistencies,
        }),
        Err(error) => json!({"file": file, "is_sound": false, "error": format!("{error:#}")}),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{DatabaseReport, FORMAT, summary};

    #[test]
    fn check_summary_names_the_number_of_inconsistencies() {
        let summary_of = |inconsistencies: &[&str]| {
            let inconsistencies = inconsistencies.iter().map(|line| (*line).to_owned()).collect();
            let (plans, actions, jobs, blobs) = (1, 2, 3, Vec::new());
            let report =
                DatabaseReport { format: FORMAT, bytes: 9, plans, actions, jobs, blobs, inconsistencies };
            summary(Path::new("agq.redb"), &report)
        };
        assert!(summary_of(&[]).starts_with("agq.redb is consistent: 3 jobs, 2 actions, 1 plans in 9 bytes"));
        assert!(summary_of(&["a"]).starts_with("agq.redb has 1 inconsistency; keep the file"));
        assert!(summary_of(&["a", "b"]).starts_with("agq.redb has 2 inconsistencies; keep the file"));
    }
}
