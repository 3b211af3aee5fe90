//! The temporary directory in which all contenders work: an input file, lists of tasks, and a file
//! for their results.

use std::{
    fmt::Write,
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, ensure};
use e2e::Lab;

use crate::measure::per_second;

/// Ten lines with duplicates.
const WORDS: &str = "pear\napple\nfig\npear\nplum\napple\nquince\npear\nfig\ncherry\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskKind {
    /// `true WORD`
    True,
    /// `sort FILE | uniq -c`
    Count,
}

impl TaskKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Count => "sort FILE | uniq -c",
        }
    }

    /// Returns the id of our plan, which is also the name of the function in `work.py`.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Count => "sort_uniq",
        }
    }
}

pub(super) struct Workspace {
    pub(super) lab: Lab,
    words: String,
    /// Bytes that `sort FILE | uniq -c` writes.
    counted: usize,
}

impl Workspace {
    pub(super) fn new(bin: &Path) -> anyhow::Result<Self> {
        let lab = Lab::with_binaries(bin.to_owned());
        let words = lab.file("words", WORDS).display().to_string();
        let mut workspace = Self { lab, words, counted: 0 };
        let output =
            Command::new("sh").args(["-c", &workspace.shell_line()]).output().context("there is no sh")?;
        ensure!(
            output.status.success() && !output.stdout.is_empty(),
            "`{}` fails here",
            workspace.shell_line()
        );
        workspace.counted = output.stdout.len();
        Ok(workspace)
    }

    /// Lets tasks of another user read the files here.
    pub(super) fn permit_others(&self) -> anyhow::Result<()> {
        Ok(fs::set_permissions(self.lab.path(), Permissions::from_mode(0o755))?)
    }

    /// Returns the argument of a task: the input file, or any word.
    pub(super) fn argument(&self, work: TaskKind, number: usize) -> String {
        match work {
            TaskKind::True => number.to_string(),
            TaskKind::Count => self.words.clone(),
        }
    }

    /// Returns `sort FILE | uniq -c`.
    pub(super) fn shell_line(&self) -> String {
        format!("sort {} | uniq -c", self.words)
    }

    /// Returns the line for contenders that do not collect output: it appends to the file of
    /// results.
    pub(super) fn appending_line(&self) -> String {
        format!("{} >> {}", self.shell_line(), self.results_path().display())
    }

    /// Returns a file with a line for each task.
    pub(super) fn list(&self, work: TaskKind, count: usize) -> anyhow::Result<PathBuf> {
        let path = self.lab.path().join(format!("list-{}-{count}", work.id()));
        if !path.exists() {
            let mut lines = String::new();
            for number in 0..count {
                writeln!(lines, "{}", self.argument(work, number))?;
            }
            fs::write(&path, lines)?;
        }
        Ok(path)
    }

    /// Creates an empty file for results.
    pub(super) fn results_file(&self) -> anyhow::Result<File> {
        Ok(File::create(self.results_path())?)
    }

    pub(super) fn results_path(&self) -> PathBuf {
        self.lab.path().join("sheet")
    }

    /// Returns the tasks per second of `run`, which writes the output of `count` tasks into the
    /// file of results.
    pub(super) fn rate(
        &self,
        work: TaskKind,
        count: usize,
        run: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<f64> {
        let started = Instant::now();
        run()?;
        let took = started.elapsed();
        let written = usize::try_from(fs::metadata(self.results_path())?.len())?;
        self.check(work, count, written)?;
        Ok(per_second(count, took))
    }

    /// Returns an error if `count` tasks should not have written `written` bytes.
    pub(super) fn check(&self, work: TaskKind, count: usize, written: usize) -> anyhow::Result<()> {
        let expected = match work {
            TaskKind::True => 0,
            TaskKind::Count => count * self.counted,
        };
        ensure!(written == expected, "{count} tasks wrote {written} bytes instead of {expected}");
        Ok(())
    }
}
