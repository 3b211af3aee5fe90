//! `cargo xtask demo`: counts the words of 2,000 real files with two workers, kills agq half-way,
//! and compares the result byte for byte with the result of a shell pipeline on the same files.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use agenix_harness::binaries;
use anyhow::{Context, bail, ensure};
use e2e::{Agq, Lab, eventually};

/// Number of files to read, and the least number that is enough.
const FILES: usize = 2000;
const MIN_FILES: usize = 1000;
/// Number of words that are printed.
const TOP: usize = 20;

/// The pipeline of examples/word-frequency.json in a shell.
const SHELL: &str = r#"export LC_ALL=C
while IFS= read -r file; do
  cat -- "$file" | tr -cs A-Za-z '\n' | tr A-Z a-z | sort | uniq -c
done < files | awk 'NF == 2 { count[$2] += $1 } END { for (word in count) printf "%d %s\n", count[word], word }' |
  sort -k1,1nr -k2,2"#;

pub(crate) fn run() -> anyhow::Result<()> {
    let lab = Lab::with_binaries(binaries::build_debug()?);
    let files = text_files()?;
    lab.file("files", &(files.join("\n") + "\n"));
    let mut agq = lab.agq(&[]);
    let mut workers = [lab.agw(&agq, "demo-1", &[]), lab.agw(&agq, "demo-2", &[])];
    println!("agq listens on {}, two workers are registered, there are {} files", agq.address(), files.len());

    let plan = Lab::repository("examples/word-frequency.json");
    lab.agx(&agq, &["plan", "submit", &plan.display().to_string()]).expect(0);
    let started = Instant::now();
    let submission = submit(&lab, &agq)?;
    let half = eventually("half of the jobs have ended", || half_done(&lab, &agq, files.len()));
    agq.kill();
    println!(
        "agq was killed with SIGKILL after {half} of {} jobs, and is started again on the same data",
        files.len()
    );
    agq.start_again(&lab);
    let submitted = submission.wait_with_output()?;
    ensure!(submitted.status.success(), "agx ended with {}", submitted.status);
    let took = started.elapsed().as_secs_f64();

    let ours = merged(&lab.agx(&agq, &["action", "results", "demo", "--ordered"]).expect(0).out)?;
    println!("\nThe {TOP} most frequent words:");
    ours.lines().take(TOP).for_each(|line| println!("  {line}"));
    compare(&lab, &ours)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = files.len() as f64 / took;
    println!(
        "{} jobs of five processes each in {took:.1} s, the kill included: {rate:.0} jobs/s with debug builds",
        files.len()
    );

    for worker in &mut workers {
        worker.terminate();
        ensure!(worker.wait().success(), "a worker did not drain: {}", worker.log());
    }
    ensure!(agq.stop().success(), "agq did not stop cleanly");
    let directory = lab.path().to_owned();
    drop(lab);
    ensure!(!directory.exists(), "{} was left behind", directory.display());
    println!("no process and no file is left behind");
    Ok(())
}

/// Returns paths of Rust files of the dependencies, which each machine has that built this program.
fn text_files() -> anyhow::Result<Vec<String>> {
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home
        .or_else(|| Some(std::env::home_dir()?.join(".cargo")))
        .context("there is no cargo home")?;
    let mut found = Vec::new();
    collect(&cargo_home.join("registry/src"), &mut found)?;
    found.sort();
    found.truncate(FILES);
    if found.len() < MIN_FILES {
        bail!(
            "there are only {} .rs files in {}: run `cargo fetch` first",
            found.len(),
            cargo_home.display()
        );
    }
    Ok(found)
}

fn collect(directory: &Path, found: &mut Vec<String>) -> anyhow::Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(path.to_str().filter(|path| !path.contains('\n')).map(str::to_owned));
        }
    }
    Ok(())
}

/// Starts agx, which submits the action, shows its progress, and waits for its end.
fn submit(lab: &Lab, agq: &Agq) -> anyhow::Result<Child> {
    let args = [
        "action",
        "submit",
        "word-frequency",
        "--id",
        "demo",
        "--lines",
        "files",
        "--field",
        "file",
        "--wait",
    ];
    let mut agx = lab.command("agx");
    agx.env("AGQ_ADDR", agq.address()).args(args).stdout(Stdio::piped()).stderr(Stdio::inherit());
    agx.spawn().context("agx cannot be started")
}

fn half_done(lab: &Lab, agq: &Agq, total: usize) -> Option<u64> {
    let status = lab.agx(agq, &["action", "status", "demo", "--json"]);
    let completed = (status.code == 0).then(|| status.data()["completed"].as_u64()).flatten()?;
    (completed >= total as u64 / 2).then_some(completed)
}

/// Sums the counts of all files. Returns one line for each word, the most frequent first.
fn merged(counts: &str) -> anyhow::Result<String> {
    let mut words: BTreeMap<&str, u64> = BTreeMap::new();
    for line in counts.lines() {
        // A file that does not begin with a letter has an empty word.
        if let Some((count, word)) = line.trim_start().split_once(' ').filter(|(_, word)| !word.is_empty()) {
            *words.entry(word).or_default() +=
                count.parse::<u64>().with_context(|| format!("not a count: {line}"))?;
        }
    }
    let mut words: Vec<_> = words.into_iter().collect();
    words.sort_by(|(a, many), (b, more)| more.cmp(many).then(a.cmp(b)));
    let mut table = String::new();
    for (word, count) in words {
        writeln!(table, "{count} {word}")?;
    }
    Ok(table)
}

fn compare(lab: &Lab, ours: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    let shell =
        Command::new("sh").args(["-c", SHELL]).current_dir(lab.path()).stderr(Stdio::inherit()).output()?;
    ensure!(shell.status.success(), "the shell's pipeline ended with {}", shell.status);
    if shell.stdout != ours.as_bytes() {
        let theirs = String::from_utf8_lossy(&shell.stdout);
        let first = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
        bail!("our table differs from the shell's, first at {first:?}");
    }
    let (words, took) = (ours.lines().count(), started.elapsed().as_secs_f64());
    println!(
        "\nAll {words} words are counted as by the shell, byte for byte (the shell alone took {took:.1} s)."
    );
    Ok(())
}
