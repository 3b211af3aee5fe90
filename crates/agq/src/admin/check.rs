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

/// Prints the result of the check. Returns true if the database is sound.
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
    let (file, count) = (file.display(), found.inconsistencies.len());
    if count > 0 {
        return format!(
            "{file} is not sound: it contradicts itself in {count} places; keep the file and attach it to a bug report, and restore the last backup with `agq restore`"
        );
    }
    let DatabaseReport { format, bytes, plans, actions, jobs, .. } = found;
    let upgrade = if *format < FORMAT { ", which agq upgrades at its next start" } else { "" };
    format!(
        "{file} is sound: {jobs} jobs, {actions} actions, {plans} plans in {bytes} bytes of format {format}{upgrade}"
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
