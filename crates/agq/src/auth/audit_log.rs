//! Audit log: an append-only file with one JSON document per line for every recorded command and
//! its author.
//!
//! The log decides nothing. Commands still run if the log cannot be written. Each line has the hash
//! of the line before (`agenix_rules::audit_chain`), across restarts and rotations.

mod file;

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use agenix_protocol::time::Timestamp;
use agenix_rules::audit_chain::ChainHead;
use anyhow::Context;
use serde::Serialize;
use tracing::error;

use self::file::ChainedFile;
use crate::{auth::keyring::Role, sync::lock};

/// Commands that are recorded, whatever their outcome. A wrong key is recorded as well, as `AUTH`.
const RECORDED: [&str; 25] = [
    "PLAN.SUBMIT",
    "PLAN.DELETE",
    "PLAN.APPROVE",
    "PLAN.REJECT",
    "ACTION.SUBMIT",
    "ACTION.ADD",
    "ACTION.CLOSE",
    "ACTION.CANCEL",
    "ACTION.RETRY",
    "SCHEDULE.SET",
    "SCHEDULE.DELETE",
    "WORKFLOW.SUBMIT",
    "WORKFLOW.CANCEL",
    "JOB.RETRY",
    "JOB.CANCEL",
    "JOB.FORGET",
    "WORKER.REGISTER",
    "WORKER.UNREGISTER",
    "WORKER.DRAIN",
    "WORKER.RESUME",
    "WORKER.TERMINATE",
    "WORKER.VERIFY",
    "QUEUE.PAUSE",
    "QUEUE.RESUME",
    "BACKUP",
];
/// Outcome of a command or request that was dropped before its reply. The command may have been
/// carried out.
pub(crate) const UNKNOWN_OUTCOME: &str = "unknown: the connection broke before the answer";
/// Maximum number of characters of a digest in an entry. A digest has 64.
const MAX_DIGEST_CHARS: usize = 64;
/// Minimum interval between complaints about a failing log, in milliseconds.
const COMPLAIN_EVERY_MS: u64 = 60_000;

#[derive(Debug, Serialize)]
pub(crate) struct AuditEntry<'a> {
    pub(crate) at: Timestamp,
    /// Name of the identity; `None` before AUTH.
    pub(crate) who: Option<&'a str>,
    pub(crate) role: Option<Role>,
    /// Address of the client, or the Unix socket.
    pub(crate) from: &'a str,
    pub(crate) command: &'a str,
    /// Id or name of the changed record; never a key or a document.
    pub(crate) target: Option<&'a str>,
    /// `OK`, or the error line of the reply.
    pub(crate) outcome: &'a str,
    #[serde(flatten)]
    pub(crate) decision: Option<&'a AuditedDecision>,
}

/// Decision about a plan: that of the policy when the plan is submitted, or that of a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct AuditedDecision {
    /// SHA-256 of the signed bytes of the order, as `sha256:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<String>,
    /// SHA-256 of the policy, as `sha256:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// Decision of the policy: `allow`, `ask` or `refuse`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<&'static str>,
    /// Digest of plan and policy that a person has decided about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
}

impl AuditedDecision {
    /// Returns the decision of a person about the content with `digest`.
    pub(crate) fn on(digest: &str) -> Self {
        Self { digest: Some(digest.chars().take(MAX_DIGEST_CHARS).collect()), ..Self::default() }
    }
}

impl<'a> AuditEntry<'a> {
    pub(crate) fn wrong_key(at: Timestamp, from: &'a str) -> Self {
        let outcome = "ERR Invalid session key";
        Self { at, who: None, role: None, from, command: "AUTH", target: None, outcome, decision: None }
    }
}

/// Returns true if `command`, a name in capitals, is recorded.
pub(crate) fn is_recorded(command: &str) -> bool {
    RECORDED.contains(&command)
}

#[derive(Debug, Default)]
pub(crate) struct AuditLog(Option<LogFile>);

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    state: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    file: ChainedFile,
    complained_at: Option<Timestamp>,
}

impl AuditLog {
    /// Opens the log at `path`, and continues its chain. Without a path the log is switched off.
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let shown = path.display();
        let file = ChainedFile::open(path)
            .with_context(|| format!("cannot open the audit log {shown}: choose another --audit-log"))?;
        let state = Mutex::new(LogState { file, complained_at: None });
        Ok(Self(Some(LogFile { path: path.to_owned(), state })))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the head of the chain, if the log is on.
    pub(crate) fn head(&self) -> Option<ChainHead> {
        self.0.as_ref().map(|log| lock(&log.state).file.head())
    }

    /// Appends a line. A failure is logged, at most once a minute.
    pub(crate) fn record(&self, entry: &AuditEntry<'_>) {
        let Some(log) = &self.0 else { return };
        let mut state = lock(&log.state);
        let written = state.file.append(entry);
        if let Err(error) = written
            && state.complained_at.is_none_or(|last| entry.at.ms_since(last) >= COMPLAIN_EVERY_MS)
        {
            state.complained_at = Some(entry.at);
            error!(%error, file = %log.path.display(), "the audit log cannot be written; commands continue without it");
        }
    }

    /// Opens the file again after a rotation. If that fails, the old file stays in use.
    pub(crate) fn reopen(&self) -> anyhow::Result<()> {
        let Some(log) = &self.0 else { return Ok(()) };
        lock(&log.state)
            .file
            .reopen(&log.path)
            .with_context(|| format!("cannot open {} again", log.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use agenix_protocol::time::Timestamp;

    use super::{AuditEntry, AuditLog, is_recorded};
    use crate::auth::keyring::Role;

    fn entry(target: &str) -> AuditEntry<'_> {
        AuditEntry {
            at: Timestamp(1_763_373_605_250),
            who: Some("alice"),
            role: Some(Role::Client),
            from: "127.0.0.1:5000",
            command: "PLAN.SUBMIT",
            target: Some(target),
            outcome: "OK",
            decision: None,
        }
    }

    #[test]
    fn audit_log_has_json_lines_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let audit = AuditLog::open(Some(&path)).unwrap();
        audit.record(&entry("p"));
        audit.record(&entry("line\nend"));
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = r#"{"at":"2025-11-17T10:00:05.250Z","who":"alice","role":"client","from":"127.0.0.1:5000","command":"PLAN.SUBMIT","target":"p","outcome":"OK","prev":"0000000000000000000000000000000000000000000000000000000000000000"}"#;
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, expected), "{text}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(audit);
        // A second run appends to the same file.
        AuditLog::open(Some(&path)).unwrap().record(&entry("q"));
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
    }

    #[test]
    fn audit_log_lines_do_not_act_on_a_terminal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let target = "\u{1b}]0;\u{9b}2J\u{7f}\r\n\u{2028}\u{202e}é\u{10fee9}";
        AuditLog::open(Some(&path)).unwrap().record(&entry(target));
        let text = std::fs::read_to_string(&path).unwrap();
        let shown = "\"\\u001b]0;\\u009b2J\\u007f\\r\\n\\u2028\\u202eé\u{10fee9}\"";
        assert!(text.contains(shown) && text.ends_with("}\n") && text.lines().count() == 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["target"], target);
    }

    #[test]
    fn audit_log_is_created_again_after_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("audit.log"), dir.path().join("audit.log.1"));
        let audit = AuditLog::open(Some(&path)).unwrap();
        audit.record(&entry("p"));
        std::fs::rename(&path, &moved).unwrap();
        audit.record(&entry("q"));
        audit.reopen().unwrap();
        audit.record(&entry("r"));
        let count = |path: &std::path::Path| std::fs::read_to_string(path).unwrap().lines().count();
        assert_eq!((count(&moved), count(&path)), (2, 1));
    }

    #[test]
    fn audit_log_is_optional_and_a_bad_path_fails() {
        let audit = AuditLog::default();
        audit.record(&entry("p"));
        assert!(!audit.is_on() && audit.reopen().is_ok());
        let error = AuditLog::open(Some(std::path::Path::new("/nowhere/audit.log"))).unwrap_err().to_string();
        assert!(error.contains("/nowhere/audit.log") && error.contains("--audit-log"), "{error}");
    }

    #[test]
    fn audit_log_failure_stops_no_command() {
        let full = std::path::Path::new("/dev/full");
        if full.exists() {
            let audit = AuditLog::open(Some(full)).unwrap();
            audit.record(&entry("p"));
            audit.record(&entry("q"));
        }
    }

    #[test]
    fn audit_log_records_changes_and_not_reads() {
        assert!(is_recorded("PLAN.SUBMIT") && is_recorded("WORKER.VERIFY") && is_recorded("QUEUE.RESUME"));
        assert!(!is_recorded("PLAN.GET") && !is_recorded("WORKER.HEARTBEAT") && !is_recorded("BRPOP"));
    }
}
