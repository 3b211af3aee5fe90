//! New lines in the logs of a supervisor and its programs since the start of the supervisor.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use crate::background::{
    log_lines::last_lines,
    supervisor::directory::{LOG, SupervisorSpec, log_path},
};

/// Maximum number of lines in a message.
const MAX_LINES: usize = 20;

/// Paths of logs, each with an offset.
#[derive(Debug)]
pub(crate) struct LogTails(Vec<(PathBuf, u64)>);

impl LogTails {
    /// Records the lengths of the logs. The log of the supervisor is last, because this log has
    /// least about a cause.
    pub(super) fn from_now_on(dir: &Path, spec: &SupervisorSpec) -> Self {
        let names = spec.services.iter().map(|service| service.name.as_str()).chain([LOG]);
        let end = |path: PathBuf| {
            let length = path.metadata().map_or(0, |about| about.len());
            (path, length)
        };
        Self(names.map(|name| end(log_path(dir, name))).collect())
    }

    /// Returns the last new line of the log of the program `name`.
    pub(crate) fn last_line_of(&self, name: &str) -> Option<String> {
        last_lines(&self.text_of(name)?, 1).pop().map(|line| line.trim().to_owned())
    }

    /// Returns true if a new line of the log of the program `name` contains `words`.
    pub(crate) fn contain(&self, name: &str, words: &str) -> bool {
        self.text_of(name).is_some_and(|text| text.contains(words))
    }

    /// Returns the new text in the log of the program `name`.
    fn text_of(&self, name: &str) -> Option<String> {
        let is_own = |(path, _): &&(PathBuf, u64)| path.file_stem().is_some_and(|stem| stem == name);
        let (path, from) = self.0.iter().find(is_own)?;
        Some(text_from(path, *from))
    }

    /// Returns the new lines of the first log that has any.
    pub(super) fn since(&self) -> String {
        let lines =
            self.0.iter().map(|(path, from)| last_lines(&text_from(path, *from), MAX_LINES).join("\n  "));
        let mut lines = lines.filter(|lines| !lines.is_empty());
        lines.next().unwrap_or_else(|| {
            let dir = self.0.first().and_then(|(path, _)| path.parent()).unwrap_or(Path::new("/"));
            format!("the programs reported nothing, not even in the logs in {}", dir.display())
        })
    }
}

fn text_from(path: &Path, from: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.read_to_end(&mut bytes)
    });
    // An unreadable log counts as empty.
    read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{LogTails, SupervisorSpec};
    use crate::background::supervisor::directory::ServiceSpec;

    #[test]
    fn supervisor_log_ignores_old_lines_and_reads_its_own_log_last() {
        let dir = tempfile::tempdir().unwrap();
        let log = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        log("agq.log", "an old error\n");
        let agq = ServiceSpec { name: "agq".into(), program: PathBuf::from("agq").into(), args: Vec::new() };
        let logs = LogTails::from_now_on(dir.path(), &SupervisorSpec { services: vec![agq] });
        assert!(logs.since().starts_with("the programs reported nothing"));
        log("supervisor.log", "agx: agq does not listen\n");
        assert_eq!(logs.since(), "agx: agq does not listen");
        log("agq.log", "an old error\nthe cause\n");
        assert_eq!(logs.since(), "the cause");
        log("agq.log", "an old error\nthe cause\nthe cause again\n");
        assert_eq!(logs.last_line_of("agq").unwrap(), "the cause again");
        assert_eq!(logs.last_line_of("agw"), None);
        assert!(logs.contain("agq", "cause again") && !logs.contain("agq", "an old"));
        assert!(!logs.contain("agw", "cause"));
    }
}
