//! What everybody works on: a directory that disappears, a file of ten lines, lists of tasks, a sheet for what they write.

use std::{
    fmt::Write,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, ensure};
use e2e::Lab;

use crate::measure::per_second;

/// Ten lines, some of them twice.
const WORDS: &str = "pear\napple\nfig\npear\nplum\napple\nquince\npear\nfig\ncherry\n";

/// What is done so many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// `true WORD`
    True,
    /// `sort FILE | uniq -c`
    Count,
}

impl Work {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Count => "sort FILE | uniq -c",
        }
    }

    /// The name of our plan, and of the function in `work.py`.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Count => "sort_uniq",
        }
    }
}

pub(super) struct Desk {
    pub(super) lab: Lab,
    words: String,
    /// How many bytes `sort FILE | uniq -c` writes.
    counted: usize,
}

impl Desk {
    pub(super) fn new(bin: &Path) -> anyhow::Result<Self> {
        let lab = Lab::with_binaries(bin.to_owned());
        let words = lab.file("words", WORDS).display().to_string();
        let mut desk = Self { lab, words, counted: 0 };
        let output =
            Command::new("sh").args(["-c", &desk.shell_line()]).output().context("there is no sh")?;
        ensure!(output.status.success() && !output.stdout.is_empty(), "`{}` fails here", desk.shell_line());
        desk.counted = output.stdout.len();
        Ok(desk)
    }

    /// What one task is given: the file of ten lines, or a word that does not matter.
    pub(super) fn argument(&self, work: Work, number: usize) -> String {
        match work {
            Work::True => number.to_string(),
            Work::Count => self.words.clone(),
        }
    }

    /// `sort FILE | uniq -c`
    pub(super) fn shell_line(&self) -> String {
        format!("sort {} | uniq -c", self.words)
    }

    /// The same for those who do not bring together what is written.
    pub(super) fn appending_line(&self) -> String {
        format!("{} >> {}", self.shell_line(), self.sheet_path().display())
    }

    /// A file with a line for each task.
    pub(super) fn list(&self, work: Work, count: usize) -> anyhow::Result<PathBuf> {
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

    /// A new sheet.
    pub(super) fn sheet(&self) -> anyhow::Result<File> {
        Ok(File::create(self.sheet_path())?)
    }

    /// Where it is.
    pub(super) fn sheet_path(&self) -> PathBuf {
        self.lab.path().join("sheet")
    }

    /// How many tasks a second someone does who writes on the sheet what the tasks write.
    pub(super) fn rate(
        &self,
        work: Work,
        count: usize,
        run: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<f64> {
        let started = Instant::now();
        run()?;
        let took = started.elapsed();
        let written = usize::try_from(fs::metadata(self.sheet_path())?.len())?;
        self.check(work, count, written)?;
        Ok(per_second(count, took))
    }

    /// Whether so many tasks have written what they should.
    pub(super) fn check(&self, work: Work, count: usize, written: usize) -> anyhow::Result<()> {
        let expected = match work {
            Work::True => 0,
            Work::Count => count * self.counted,
        };
        ensure!(written == expected, "{count} tasks wrote {written} bytes, and not {expected}");
        Ok(())
    }
}
