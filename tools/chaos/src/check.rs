//! Compares agq with the ledger at the end of a run.

use std::{
    collections::{BTreeMap, HashSet},
    fs, io,
    path::Path,
};

use super::{
    RUNS,
    ledger::{AcknowledgedAction, ChaosLedger, KeyVersions, Kind},
    progress::{document, jobs, status},
    resp::{Resp, RespReply, unexpected},
    result_of,
};

/// Compares agq with the ledger, and records differences in it.
///
/// # Errors
///
/// agq does not answer.
pub(super) fn check(resp: &mut Resp, ledger: &ChaosLedger, lab: &Path) -> io::Result<()> {
    let text = fs::read_to_string(lab.join(RUNS)).unwrap_or_default();
    let runs: HashSet<&str> = text.lines().collect();
    let (actions, streams) = {
        let content = ledger.content();
        (content.actions.clone(), content.streams.clone())
    };
    for (id, action) in &actions {
        check_action(resp, ledger, id, action)?;
        for input in action.inputs.iter().filter(|input| !runs.contains(input.as_str())) {
            ledger.lost(format!("the job of input {input} of action {id} never ran"));
        }
    }
    for stream in &streams {
        check_stream(resp, ledger, stream)?;
    }
    let notes = &mut ledger.content().notes;
    notes.insert("times that a job ran", text.lines().count() as u64);
    Ok(())
}

/// Returns the lines of all logs that report a panic.
pub(super) fn panicked(lab: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(lab)? {
        let entry = entry?;
        let path = entry.path();
        // A log that could not be written is a pipe or a link to a device.
        let is_log = path.extension().is_some_and(|extension| extension == "log" || extension == "kept")
            && entry.file_type()?.is_file();
        let text = if is_log { fs::read(&path)? } else { Vec::new() };
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().filter(|line| line.contains("panicked"));
        found.extend(lines.map(|line| format!("{}: {line}", path.display())));
    }
    Ok(found)
}

fn check_action(
    resp: &mut Resp,
    ledger: &ChaosLedger,
    id: &str,
    action: &AcknowledgedAction,
) -> io::Result<()> {
    let listed = jobs(resp, id)?;
    let total = action.inputs.len();
    if listed.iter().collect::<HashSet<_>>().len() != total || listed.len() != total {
        ledger.lost(format!("action {id} has the jobs {listed:?} for {total} inputs"));
    }
    let counts = document(resp.ask(&["ACTION.STATUS", id])?)?.unwrap_or_default();
    if counts["total_jobs"] != total || counts["completed"] != total {
        ledger.lost(format!("action {id} should have {total} completed jobs, and is {counts}"));
    }
    for (job, input) in listed.iter().zip(&action.inputs) {
        let now = status(resp, job)?.unwrap_or_default();
        if let Some(seen) = action.completed.get(job).filter(|seen| **seen != now) {
            ledger.lost(format!("job {job} of action {id} was seen as {seen}, and is {now}"));
        }
        if now["status"] != "completed" || now["inputs"]["n"] != *input || now["stdout"] != result_of(input) {
            ledger.lost(format!("job {job} of action {id} should have completed with {input}, and is {now}"));
        }
    }
    Ok(())
}

/// Checks that a key has all acknowledged versions, none twice, and none that was not sent.
pub(super) fn check_stream(resp: &mut Resp, ledger: &ChaosLedger, stream: &KeyVersions) -> io::Result<()> {
    let KeyVersions { key, kind, acknowledged, sent } = stream;
    let verdict = match kind {
        Kind::Value => {
            let version = match resp.ask(&["GET", key])? {
                RespReply::Bulk(text) => version_of(&text),
                RespReply::Nil => Some(0),
                other => return Err(unexpected(&other)),
            };
            let is_right = version.is_some_and(|version| (*acknowledged..=*sent).contains(&version));
            (!is_right).then(|| format!("{key} has version {version:?}"))
        }
        Kind::List => {
            let RespReply::Array(elements) = resp.ask(&["LRANGE", key, "0", "-1"])? else {
                return Err(io::Error::other(format!("agq does not list {key}")));
            };
            list_fault(&elements, *acknowledged, *sent).map(|fault| format!("{key} {fault}"))
        }
    };
    if let Some(verdict) = verdict {
        ledger.lost(format!("{verdict}: {acknowledged} were acknowledged and {sent} sent"));
    }
    Ok(())
}

/// Parses the version at the beginning of a value. The rest of the value is padding.
fn version_of(value: &str) -> Option<u64> {
    value.split(':').next().and_then(|version| version.parse().ok())
}

fn list_fault(elements: &[RespReply], acknowledged: u64, sent: u64) -> Option<String> {
    let mut times: BTreeMap<u64, u32> = BTreeMap::new();
    for element in elements {
        let RespReply::Bulk(text) = element else { return Some(format!("has {element:?}")) };
        let Some(version) = version_of(text) else { return Some(format!("has '{text}'")) };
        *times.entry(version).or_default() += 1;
    }
    if let Some((version, times)) = times.iter().find(|(_, times)| **times > 1) {
        return Some(format!("has {version} {times} times"));
    }
    if let Some(missing) = (1..=acknowledged).find(|version| !times.contains_key(version)) {
        return Some(format!("has no {missing}"));
    }
    let unknown = times.keys().find(|version| !(1..=sent).contains(version));
    unknown.map(|version| format!("has {version}, which was not sent"))
}

#[cfg(test)]
mod tests {
    use super::{RespReply, list_fault};

    fn fault(list: &[u64], acknowledged: u64, sent: u64) -> Option<String> {
        let elements: Vec<_> = list.iter().map(|n| RespReply::Bulk(n.to_string())).collect();
        list_fault(&elements, acknowledged, sent)
    }

    #[test]
    fn list_may_have_unacknowledged_versions_but_no_unknown_ones() {
        assert_eq!(fault(&[1, 2, 3], 2, 4), None);
        assert_eq!(fault(&[], 0, 4), None);
        assert_eq!(fault(&[1, 3], 3, 4), Some("has no 2".into()));
        assert_eq!(fault(&[1, 2, 2], 2, 4), Some("has 2 2 times".into()));
        assert_eq!(fault(&[1, 2, 5], 2, 4), Some("has 5, which was not sent".into()));
    }
}
