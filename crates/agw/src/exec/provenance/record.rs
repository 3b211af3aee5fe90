//! Record of the tasks of a job that have started, for their statements.

use std::{
    collections::BTreeMap,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agenix_order::{DigestSet, Resource, TaskRun};
use agenix_protocol::{
    byte_escape::{decode, encode},
    time::Timestamp,
};

use super::ProvenanceSigner;
use crate::{
    clock::now,
    exec::{programs::OfferedPrograms, secrets::Patterns, stages::StageCommand},
};

/// Maximum number of bytes of the command and the arguments in a statement.
const MAX_ARGV_BYTES: usize = 16 * 1024;

/// Tasks of a job that have started.
#[derive(Debug)]
pub(crate) struct JobRecord {
    pub(super) provenance: Arc<ProvenanceSigner>,
    /// Number of tasks of the plan.
    pub(super) task_count: u32,
    patterns: Option<Arc<Patterns>>,
    tasks: Mutex<BTreeMap<u32, TaskRecord>>,
}

/// Command of a task, and its program just before the start of the task.
#[derive(Debug, Clone)]
pub(crate) struct TaskRecord {
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    program: Option<(PathBuf, Option<String>)>,
    pub(super) started: Timestamp,
}

impl JobRecord {
    /// Returns the record of a job before its first task. `patterns` are the secrets of the job.
    pub(crate) fn new(
        provenance: Arc<ProvenanceSigner>,
        task_count: usize,
        patterns: Option<Arc<Patterns>>,
    ) -> Self {
        let task_count = u32::try_from(task_count).unwrap_or(u32::MAX);
        Self { provenance, task_count, patterns, tasks: Mutex::default() }
    }

    /// Returns the record of a task that is about to start.
    pub(crate) fn task(&self, command: &StageCommand, programs: &OfferedPrograms) -> TaskRecord {
        let hashed = |path: PathBuf| {
            let sha256 = self.provenance.programs.digest_of(&path).ok();
            (path, sha256)
        };
        let program = programs.absolute(command).ok().map(hashed);
        let (argv, cwd) = (self.argv(command), command.cwd.as_ref().map(|cwd| self.masked(cwd)));
        TaskRecord { argv, cwd, program, started: now() }
    }

    /// Adds the record of a task that has started.
    pub(crate) fn add(&self, task_number: u32, task: TaskRecord) {
        self.tasks().insert(task_number, task);
    }

    /// Returns the record of a task, if the task has started.
    pub(super) fn of(&self, task_number: u32) -> Option<TaskRecord> {
        self.tasks().get(&task_number).cloned()
    }

    fn argv(&self, command: &StageCommand) -> Option<Vec<String>> {
        let words = || [&command.program].into_iter().chain(&command.args);
        let bytes: usize = words().map(String::len).sum();
        (bytes <= MAX_ARGV_BYTES).then(|| words().map(|word| self.masked(word)).collect())
    }

    /// Returns a byte escape without secrets of the job.
    fn masked(&self, text: &str) -> String {
        let Some(patterns) = &self.patterns else { return text.to_owned() };
        encode(&Patterns::masked(patterns, &decode(text))).into_owned()
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<u32, TaskRecord>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskRecord {
    /// Returns the command and the program.
    pub(super) fn into_parts(self) -> (TaskRun, Option<Resource>) {
        let Self { argv, cwd, program, .. } = self;
        let program = program.map(|(path, sha256)| Resource {
            name: "program".into(),
            uri: Some(uri_of(&path)),
            digest: sha256.map(|sha256| DigestSet { sha256 }),
        });
        (TaskRun { argv, cwd, ..TaskRun::default() }, program)
    }
}

/// Returns the URI of a file. Bytes other than letters, digits and some signs are percent-encoded.
fn uri_of(path: &Path) -> String {
    let encoded = path.as_os_str().as_bytes().iter().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b'+' => {
            char::from(*byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    });
    format!("file://{}", encoded.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

    use super::uri_of;

    #[test]
    fn uri_of_a_program_has_its_bytes() {
        assert_eq!(uri_of(Path::new("/usr/bin/g++-14")), "file:///usr/bin/g++-14");
        assert_eq!(uri_of(Path::new(OsStr::from_bytes(b"/a b/caf\xe9%"))), "file:///a%20b/caf%E9%25");
    }
}
