//! What the pages show is true. Commands in blocks of `console` are run, in their order, in a directory of the page's own, and print
//! what stands below them; those in `console elsewhere` need another machine, a person or an hour, and are held against what the
//! programs know.
//!
//! `$` begins a command, `>` goes on with it, `! N` is an exit code, everything else is printed on stdout; `…` stands for anything.
//! `<!-- $ … -->` is run, too, and not shown.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use agenix_protocol::request::Command as Known;
use bytes::Bytes;
use e2e::Lab;

/// A command of a page, what it prints, and its exit code.
struct Step {
    command: String,
    prints: Vec<String>,
    code: i32,
    is_elsewhere: bool,
}

/// The commands of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let step = |command: &str, is_elsewhere| Step {
        command: command.to_owned(),
        prints: Vec::new(),
        code: 0,
        is_elsewhere,
    };
    let mut block = "";
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            block = kind;
        } else if let Some(hidden) = line.strip_prefix("<!-- $ ").and_then(|rest| rest.strip_suffix(" -->")) {
            steps.push(step(hidden, false));
        } else if matches!(block, "console" | "console elsewhere") {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(step(command, block != "console"));
                continue;
            }
            let step = steps.last_mut().expect("a command comes first");
            if let Some(more) = line.strip_prefix("> ") {
                step.command += &format!("\n{more}");
            } else if let Some(code) = line.strip_prefix("! ") {
                step.code = code.parse().unwrap();
            } else {
                step.prints.push(line.to_owned());
            }
        }
    }
    steps
}

/// Whether a line is like a pattern, in which `…` stands for anything.
fn is_like(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whether lines are like patterns, in which one of `…` alone stands for any lines.
fn are_like(lines: &[&str], patterns: &[String]) -> bool {
    let Some((pattern, patterns)) = patterns.split_first() else { return lines.is_empty() };
    if pattern == "…" {
        return (0..=lines.len()).any(|skipped| are_like(&lines[skipped..], patterns));
    }
    lines.split_first().is_some_and(|(line, lines)| is_like(line, pattern) && are_like(lines, patterns))
}

/// Where a page is run. What it has left in the background, if it did not come to its end, ends with it.
struct Kitchen<'l>(&'l Lab);

impl Kitchen<'_> {
    fn shell(&self, command: &str) -> Command {
        let path = format!("{}:{}", self.0.bin().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell
            .args(["-c", &format!("set -o pipefail\n{command}")])
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let is_ours = |name: &str| ["AGQ_", "AGW_", "AGX_"].iter().any(|ours| name.starts_with(ours));
            if name.to_str().is_some_and(is_ours) {
                shell.env_remove(name);
            }
        }
        shell.env("PATH", path).env("HOME", self.0.path()).env("TMPDIR", self.0.path());
        shell
    }

    fn run(&self, command: &str) -> Output {
        // Somebody else may have the usual ports of this machine, and other agq.
        let own = format!("pkill -9 -f '/ag[q] --.*{}'", self.0.path().display());
        let given = command.replace("agx up", "agx up -- --port 0 --http off").replace("pkill -9 agq", &own);
        self.shell(&given).output().unwrap()
    }
}

impl Drop for Kitchen<'_> {
    fn drop(&mut self) {
        let _has_ended_already = self.shell("agx down").output();
    }
}

fn page(name: &str) -> String {
    fs::read_to_string(Lab::repository(name)).unwrap()
}

fn comes_out_as_it_is_written(name: &str, at_least: usize) {
    let lab = Lab::on_files();
    let kitchen = Kitchen(&lab);
    let steps: Vec<Step> = steps(&page(name)).into_iter().filter(|step| !step.is_elsewhere).collect();
    assert!(steps.len() >= at_least, "{name} has {} commands", steps.len());
    for Step { command, prints, code, .. } in steps {
        let ran = kitchen.run(&command);
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        let lines: Vec<&str> = out.lines().collect();
        assert!(
            are_like(&lines, &prints) && ran.status.code() == Some(code),
            "{name}: {command}\nprints, with exit code {:?}:\n{out}\ninstead of, with {code}:\n{}\n\n{err}",
            ran.status.code(),
            prints.join("\n")
        );
    }
}

#[test]
fn the_recipes_come_out_as_they_are_written() {
    comes_out_as_it_is_written("docs/recipes.md", 40);
}

#[test]
fn the_tour_comes_out_as_it_is_written() {
    comes_out_as_it_is_written("docs/tour.md", 30);
}

#[test]
fn the_first_page_comes_out_as_it_is_written() {
    comes_out_as_it_is_written("README.md", 8);
}

/// Programs that do nothing: ours say whether they understand their arguments, redis-cli tells the command that it was given.
const STUB: &str = r#"#!/bin/bash
name=${0##*/} args=()
if [ "$name" = redis-cli ]; then
    while [[ $1 == -* ]]; do
        case $1 in --tls) shift ;; *) shift 2 ;; esac
    done
    echo "$1" >> "$KNOWN"
    exit 0
fi
for arg; do
    if [ "$arg" = -- ] || [ "$arg" = ::: ]; then break; fi
    args+=("$arg")
done
# Behind the pipeline of a map, everything is the pipeline's.
[ "${args[0]}" = map ] && [ "$arg" != -- ] && exit 0
said=$("$REAL/$name" "${args[@]}" --help 2>&1 >/dev/null) || echo "$name ${args[*]}: $said" >> "$WRONG"
"#;

#[test]
fn what_is_shown_of_elsewhere_is_known_to_the_programs() {
    let lab = Lab::on_files();
    let stubs = lab.path().join("stubs");
    fs::create_dir(&stubs).unwrap();
    for name in ["agx", "agq", "agw", "redis-cli"] {
        fs::write(stubs.join(name), STUB).unwrap();
        fs::set_permissions(stubs.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (wrong, known) = (lab.path().join("wrong"), lab.path().join("known"));
    let mut count = 0;
    for file in pages() {
        for step in steps(&fs::read_to_string(&file).unwrap()).iter().filter(|step| step.is_elsewhere) {
            count += 1;
            // Whatever else the command names is not there; what it would have said is an id or a number.
            let command =
                format!("command_not_found_handle() {{ echo 1; }}\nsudo() {{ \"$@\"; }}\n{}", step.command);
            let mut shell = Command::new("/bin/bash");
            shell.args(["-c", &command]).current_dir(lab.path()).stdin(Stdio::null()).env("PATH", &stubs);
            shell.env("REAL", lab.bin()).env("WRONG", &wrong).env("KNOWN", &known);
            shell.output().unwrap();
            let said = fs::read_to_string(&wrong).unwrap_or_default();
            assert!(said.is_empty(), "{}: {}\n{said}", file.display(), step.command);
        }
    }
    assert!(count > 60, "{count} commands");
    let known = fs::read_to_string(known).unwrap();
    for name in known.lines() {
        let command = Bytes::copy_from_slice(name.as_bytes());
        assert!(Known::of(&[command]).is_some(), "a page lets redis-cli say {name}");
    }
    assert!(known.lines().count() > 20, "{known}");
}

/// All pages but those of decisions.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(Lab::repository("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs.filter(|path| path.extension() == Some("md".as_ref())).collect();
    pages.extend([Lab::repository("README.md"), Lab::repository("examples/README.md")]);
    pages
}

#[test]
fn what_is_not_like_it_is_told() {
    assert!(is_like("a 12 b", "a … b") && is_like("a", "a") && is_like("", "…"));
    assert!(!is_like("a 12 c", "a … b") && !is_like("ab", "a") && !is_like("ba", "a…"));
    let patterns = ["a".to_owned(), "…".to_owned(), "c".to_owned()];
    assert!(are_like(&["a", "b", "b", "c"], &patterns) && are_like(&["a", "c"], &patterns));
    assert!(!are_like(&["a", "b"], &patterns) && !are_like(&["a", "c", "d"], &patterns));
}
