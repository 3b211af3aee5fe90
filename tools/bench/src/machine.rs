//! Facts about a run: machine, date, commit, and versions of the programs.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use agenix_harness::report::root;
use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// Programs and the argument that prints their version. Programs in target/tools/bin come before
/// programs on PATH.
const PROGRAMS: [(&str, &str); 15] = [
    ("bash", "--version"),
    ("beanstalkd", "-v"),
    ("git", "--version"),
    ("node", "--version"),
    ("parallel", "--version"),
    ("pgbench", "--version"),
    ("postgres", "--version"),
    ("python3", "--version"),
    ("redis-benchmark", "--version"),
    ("redis-server", "--version"),
    ("rustc", "--version"),
    ("sort", "--version"),
    ("tsp", "-V"),
    ("valgrind", "--version"),
    ("xargs", "--version"),
];
/// Packages of npm and of pip that take part.
const NODE_PACKAGES: [&str; 4] = ["bullmq", "graphile-worker", "ioredis", "pg"];
const PYTHON_PACKAGES: [(&str, &str); 6] = [
    ("celery", "bench-python"),
    ("hypershell", "bench-hypershell"),
    ("jobd", "bench-jobd"),
    ("redis", "bench-python"),
    ("rq", "bench-python"),
    ("hyperqueue", "bench-hyperqueue"),
];

/// Returns processors, memory and file system of this machine.
pub(crate) fn facts() -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        field(&meminfo, "MemTotal").and_then(|kib| kib.trim_end_matches("kB").trim().parse::<f64>().ok());
    json!({
        "cpus": std::thread::available_parallelism().map_or(1, usize::from),
        "model": field(&cpuinfo, "model name").unwrap_or("unknown"),
        "memory_gib": kib.map(|kib| (kib / 1024.0 / 1024.0).round()),
        "file_system": file_system(&std::env::temp_dir()).unwrap_or_else(|| "unknown".to_owned()),
    })
}

/// Returns the release of the kernel.
pub(crate) fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Returns the facts of a machine in one line.
pub(crate) fn description(machine: &Value) -> String {
    let text = |name: &str| machine[name].as_str().unwrap_or("unknown").to_owned();
    format!(
        "{} × {}, {:.0} GiB, {}",
        machine["cpus"],
        text("model"),
        machine["memory_gib"].as_f64().unwrap_or_default(),
        text("file_system"),
    )
}

/// Returns an error if the temporary directory is in memory, where a sync costs nothing.
pub(crate) fn refuse_memory() -> anyhow::Result<()> {
    let directory = std::env::temp_dir();
    let is_memory = file_system(&directory).is_some_and(|name| name == "tmpfs" || name == "ramfs");
    ensure!(
        !is_memory,
        "{} is in memory, where a sync costs nothing: set TMPDIR to a directory on a disk",
        directory.display()
    );
    Ok(())
}

/// Returns the commit, with `+changes` if the sources differ from it.
pub(crate) fn commit() -> anyhow::Result<String> {
    let head = git(&["rev-parse", "--short", "HEAD"])?;
    let changes = git(&[
        "status",
        "--porcelain",
        "--",
        "crates",
        "tests",
        "tools",
        "xtask",
        "Cargo.toml",
        "Cargo.lock",
    ])?;
    Ok(if changes.is_empty() { head } else { head + "+changes" })
}

/// Returns the date in UTC.
pub(crate) fn date() -> anyhow::Result<String> {
    output_of(Command::new("date").args(["-u", "+%Y-%m-%d"])).context("`date` fails")
}

/// Returns the versions of all programs and packages that are installed.
pub(crate) fn versions(tools: &Path, hq: Option<&Path>) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    let mut note = |name: &str, version: Option<String>| {
        versions.extend(version.map(|version| (name.to_owned(), version)));
    };
    for (name, argument) in PROGRAMS {
        note(name, program(tools, name).and_then(|program| version(&program, argument)));
    }
    for name in NODE_PACKAGES {
        note(name, node_package(tools, name));
    }
    for (name, home) in PYTHON_PACKAGES {
        note(name, python_package(&tools.join(home), name));
    }
    // This HyperQueue took part instead of the package.
    note("hyperqueue", hq.and_then(|hq| version(hq, "--version")));
    versions
}

/// Returns the path of a program: linked or unpacked in `tools`, in Debian's directories of
/// PostgreSQL, or on PATH.
fn program(tools: &Path, name: &str) -> Option<PathBuf> {
    let below = |directory: &Path, place: &str| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries.map(|entry| entry.path().join(place).join(name)).collect();
        found.sort();
        found
    };
    let mut places = vec![tools.join("bin").join(name)];
    places.extend(below(tools, "usr/bin"));
    // The newest version comes first.
    places.extend(below(Path::new("/usr/lib/postgresql"), "bin").into_iter().rev());
    places.into_iter().find(|program| program.is_file()).or_else(|| agenix_harness::tools::on_path(name))
}

fn version(program: &Path, argument: &str) -> Option<String> {
    number_in(&output_of(Command::new(program).arg(argument)).ok()?)
}

fn node_package(tools: &Path, name: &str) -> Option<String> {
    let text =
        fs::read_to_string(tools.join("bench-node/node_modules").join(name).join("package.json")).ok()?;
    let package: Value = serde_json::from_str(&text).ok()?;
    Some(package["version"].as_str()?.to_owned())
}

/// Returns the version of a package of pip from its directory `NAME-VERSION.dist-info`, with or
/// without a virtual environment.
fn python_package(home: &Path, name: &str) -> Option<String> {
    let libraries = fs::read_dir(home.join("lib")).into_iter().flatten().flatten();
    let mut places: Vec<PathBuf> = libraries.map(|python| python.path().join("site-packages")).collect();
    places.push(home.to_owned());
    let entries = places.iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find_map(|entry| {
        let version = entry.strip_suffix(".dist-info")?.strip_prefix(name)?.strip_prefix('-')?;
        Some(version.to_owned())
    })
}

/// Returns the first number of a text, such as 7.0.15 of `Redis server v=7.0.15 bits=64`.
fn number_in(text: &str) -> Option<String> {
    let rest = &text[text.find(|c: char| c.is_ascii_digit())?..];
    let number = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    Some(number.trim_end_matches('.').to_owned())
}

/// Returns the value after `name:` or `name   :`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    values.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next()
}

/// Returns the type of the file system of a directory.
fn file_system(directory: &Path) -> Option<String> {
    let directory = fs::canonicalize(directory).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    kind_of(&mounts, &directory)
}

fn kind_of(mounts: &str, directory: &Path) -> Option<String> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        Some((Path::new(fields.next()?), fields.next()?))
    });
    let around = mounts.filter(|(place, _)| directory.starts_with(place));
    around.max_by_key(|(place, _)| place.components().count()).map(|(_, kind)| kind.to_owned())
}

fn git(args: &[&str]) -> anyhow::Result<String> {
    output_of(Command::new("git").args(args).current_dir(root())).context("git cannot name the commit")
}

/// Runs a command, and returns its stdout, or its stderr if stdout is empty.
fn output_of(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    let bytes = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{field, kind_of, number_in};

    #[test]
    fn version_is_the_first_number_that_a_program_prints() {
        for (text, version) in [
            ("Redis server v=7.0.15 sha=0 bits=64", "7.0.15"),
            ("valgrind-3.19.0", "3.19.0"),
            ("GNU bash, version 5.2.15(1)-release", "5.2.15"),
            ("GNU parallel 20221122.\nmore", "20221122"),
        ] {
            assert_eq!(number_in(text).as_deref(), Some(version));
        }
        assert_eq!(number_in("none"), None);
    }

    #[test]
    fn file_system_is_that_of_the_innermost_mount() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        assert_eq!(kind_of(mounts, Path::new("/tmp/x")).as_deref(), Some("tmpfs"));
        assert_eq!(kind_of(mounts, Path::new("/tmpx")).as_deref(), Some("ext4"));
        assert_eq!(field("a\t: 1\nmodel name\t: X 2\n", "model name"), Some("X 2"));
    }
}
