//! `cargo xtask bench --check`: counts the instructions of the hot paths with callgrind, and
//! compares them with the recorded counts. Unlike time, the counts are the same on a busy machine.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use agenix_harness::{
    binaries,
    report::{RunReport, root},
    tools,
};
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::table::figure;

/// Paths of `agq-paths`, and the number of repetitions. Each path runs with this number and with
/// twice as many.
const PATHS: [(&str, u64); 5] =
    [("decode", 2000), ("submit", 200), ("claim", 200), ("update", 200), ("keys", 500)];
/// Share by which a count may exceed the recorded one.
const SLACK: f64 = 0.05;
const RECORDED: &str = "tools/bench/counts.json";

/// Counts instructions and prints a report. Records the counts if `must_record`.
pub(crate) fn run(must_record: bool) -> anyhow::Result<()> {
    let mut report = RunReport::default();
    let checked = check(&mut report, must_record);
    if checked.is_ok() {
        report.print();
    }
    checked
}

/// Counts instructions. A path that exceeds its recorded count is an error.
fn check(report: &mut RunReport, must_record: bool) -> anyhow::Result<()> {
    if !tools::debian_program(report, "valgrind", "valgrind") {
        return Ok(());
    }
    let program = binaries::build_checked(&["agq-paths"])?.join("agq-paths");
    let mut counts = BTreeMap::new();
    for (path, times) in PATHS {
        let count = each(&program, path, times)?;
        counts.insert(path.to_owned(), count);
    }
    let now = InstructionCounts { measured_with: environment()?, instructions: counts };
    if must_record {
        return now.write();
    }
    match InstructionCounts::read()? {
        Some(recorded) => compare(report, &now, &recorded),
        None => {
            now.print();
            report.skip("instruction counts", &format!("there is no {RECORDED}: record them with --record"));
            Ok(())
        }
    }
}

/// Counted instructions, and the versions on which the counts depend, such as those of the compiler
/// and of libc.
#[derive(Debug, PartialEq)]
struct InstructionCounts {
    measured_with: BTreeMap<String, String>,
    instructions: BTreeMap<String, f64>,
}

impl InstructionCounts {
    /// Reads the recorded counts, if there are any.
    fn read() -> anyhow::Result<Option<Self>> {
        let Ok(text) = fs::read_to_string(root().join(RECORDED)) else { return Ok(None) };
        let value: Value = serde_json::from_str(&text).with_context(|| format!("{RECORDED} is not JSON"))?;
        Self::from_json(&value).with_context(|| format!("{RECORDED} is not what --record writes")).map(Some)
    }

    fn from_json(value: &Value) -> Option<Self> {
        let with = value["measured_with"].as_object()?.iter();
        let with = with.map(|(name, version)| Some((name.clone(), version.as_str()?.to_owned())));
        let counts = value["instructions"].as_object()?.iter();
        let counts = counts.map(|(path, count)| Some((path.clone(), count.as_f64()?)));
        Some(Self {
            measured_with: with.collect::<Option<_>>()?,
            instructions: counts.collect::<Option<_>>()?,
        })
    }

    fn to_json(&self) -> Value {
        json!({"measured_with": self.measured_with, "instructions": self.instructions})
    }

    fn write(&self) -> anyhow::Result<()> {
        self.print();
        let text = serde_json::to_string_pretty(&self.to_json())? + "\n";
        fs::write(root().join(RECORDED), text).with_context(|| format!("cannot write {RECORDED}"))?;
        println!("{RECORDED} is written");
        Ok(())
    }

    fn print(&self) {
        for (path, count) in &self.instructions {
            println!("{path:<8} {:>12} instructions each", figure(*count));
        }
    }
}

/// Compares each path with its recorded count.
fn compare(
    report: &mut RunReport,
    now: &InstructionCounts,
    recorded: &InstructionCounts,
) -> anyhow::Result<()> {
    if now.measured_with != recorded.measured_with {
        now.print();
        let (here, there) = (words(&now.measured_with), words(&recorded.measured_with));
        report.skip("instruction counts", &format!("they were recorded with {there}, here is {here}"));
        return Ok(());
    }
    let mut slower = Vec::new();
    for (path, &count) in &now.instructions {
        let Some(&before) = recorded.instructions.get(path) else {
            bail!("{RECORDED} does not know the path {path}: record it with --record");
        };
        let change = count / before - 1.0;
        let word = word(change);
        let (shown, was) = (figure(count), figure(before));
        println!(
            "{path:<8} {shown:>12} instructions each, {was:>12} recorded, {:+.1} %: {word}",
            change * 100.0
        );
        if change > SLACK {
            slower.push(format!("{path} {:+.1} %", change * 100.0));
        }
    }
    ensure!(
        slower.is_empty(),
        "slower by more than {:.0} %: {}; if that is wanted, record it with --record",
        SLACK * 100.0,
        slower.join(", ")
    );
    Ok(())
}

fn word(change: f64) -> &'static str {
    if change > SLACK {
        "SLOWER"
    } else if change < -SLACK {
        "faster: record it"
    } else {
        "ok"
    }
}

fn words(with: &BTreeMap<String, String>) -> String {
    let words: Vec<String> = with.iter().map(|(name, version)| format!("{name} {version}")).collect();
    words.join(", ")
}

/// Returns the instructions of one repetition: the difference between `2 * times` and `times`
/// repetitions, which leaves out those of the start.
fn each(program: &Path, path: &str, times: u64) -> anyhow::Result<f64> {
    let (once, twice) = (instructions(program, path, times)?, instructions(program, path, times * 2)?);
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let (more, times) = (
        twice.checked_sub(once).context("twice as many repetitions took fewer instructions")? as f64,
        times as f64,
    );
    Ok((more / times).round())
}

/// Returns all instructions that the program executes.
fn instructions(program: &Path, path: &str, times: u64) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([path, &times.to_string()])
        // The environment is the same everywhere, because the program copies and parses it.
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .context("cannot start valgrind")?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "agq-paths {path} ended with {}: {}", output.status, log.trim());
    collected(&log).with_context(|| format!("callgrind printed no count: {}", log.trim()))
}

/// Parses the number of a line such as `==7== Collected : 108859`.
fn collected(log: &str) -> Option<u64> {
    log.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

/// Returns the versions on which the number of instructions depends.
fn environment() -> anyhow::Result<BTreeMap<String, String>> {
    let rustc = output("rustc", "-vV")?;
    let of_rustc = |name: &str| {
        let line = rustc.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned()).with_context(|| format!("rustc -vV has no line {name}"))
    };
    Ok(BTreeMap::from([
        ("rustc".to_owned(), of_rustc("release:")?),
        ("target".to_owned(), of_rustc("host:")?),
        ("libc".to_owned(), output("getconf", "GNU_LIBC_VERSION").unwrap_or_else(|_| "another".to_owned())),
        ("valgrind".to_owned(), output("valgrind", "--version")?.trim_start_matches("valgrind-").to_owned()),
    ]))
}

fn output(program: &str, argument: &str) -> anyhow::Result<String> {
    let output = Command::new(program).arg(argument).current_dir(root()).output()?;
    ensure!(output.status.success(), "{program} {argument} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{InstructionCounts, collected, compare};
    use agenix_harness::report::RunReport;

    fn counts(rustc: &str, decode: f64) -> InstructionCounts {
        InstructionCounts {
            measured_with: BTreeMap::from([("rustc".into(), rustc.into())]),
            instructions: BTreeMap::from([("decode".into(), decode)]),
        }
    }

    #[test]
    fn check_fails_if_a_path_is_slower_and_passes_if_it_is_faster() {
        let compare =
            |now: &InstructionCounts| compare(&mut RunReport::default(), now, &counts("1.95", 1000.0));
        assert!(compare(&counts("1.95", 1049.0)).is_ok());
        assert!(compare(&counts("1.95", 500.0)).is_ok());
        let error = compare(&counts("1.95", 1051.0)).unwrap_err().to_string();
        assert!(error.starts_with("slower by more than 5 %: decode +5.1 %"), "{error}");
        // Counts of another compiler are not compared.
        assert!(compare(&counts("1.96", 2000.0)).is_ok());
    }

    #[test]
    fn collected_parses_the_output_of_callgrind() {
        let log = "==7== Events    : Ir\n==7== Collected : 108859\n==7== \n==7== I   refs:      108,859\n";
        assert_eq!(collected(log), Some(108_859));
        assert_eq!(collected("==7== nothing"), None);
    }

    #[test]
    fn counts_are_the_same_after_a_round_trip_through_json() {
        let counts = counts("1.95", 1000.0);
        assert_eq!(InstructionCounts::from_json(&counts.to_json()), Some(counts));
    }
}
