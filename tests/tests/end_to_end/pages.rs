//! Checks the commands of the documentation pages. Commands in `console` blocks run in their order
//! in a directory of the page, and their output must match. Commands in `console elsewhere` blocks
//! need another machine, a person or an hour. Stubs check the arguments of these commands.
//!
//! `$` starts a command, `>` continues it, `! N` is an exit code, and all other lines are the
//! output on stdout. `…` matches any text. `<!-- $ … -->` runs too, and is not shown.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use agenix_protocol::request::Command as Known;
use bytes::Bytes;
use e2e::{Lab, within};
use tempfile::TempDir;

use crate::support::is_like;

/// A command of a page with its expected output and exit code.
struct PageCommand {
    command: String,
    prints: Vec<String>,
    code: i32,
    is_elsewhere: bool,
}

/// Returns the commands of a page.
fn steps(page: &str) -> Vec<PageCommand> {
    let mut steps: Vec<PageCommand> = Vec::new();
    let step = |command: &str, is_elsewhere| PageCommand {
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

/// Returns true if `lines` match `patterns`. A pattern `…` alone matches any number of lines.
fn are_like(lines: &[&str], patterns: &[String]) -> bool {
    let Some((pattern, patterns)) = patterns.split_first() else { return lines.is_empty() };
    if pattern == "…" {
        return (0..=lines.len()).any(|skipped| are_like(&lines[skipped..], patterns));
    }
    lines.split_first().is_some_and(|(line, lines)| is_like(line, pattern) && are_like(lines, patterns))
}

/// Commands of agq and agw that end by themselves.
const COMMANDS: [&str; 9] =
    ["backup", "check", "restore", "migrate", "export", "import", "token", "completions", "man"];

/// Returns true if a command runs until it is stopped. Such a command runs in the background.
fn goes_on(command: &str) -> bool {
    let mut words = command.split_whitespace().skip_while(|word| word.contains('='));
    let is_server = words.next().is_some_and(|word| matches!(word, "agq" | "agw"));
    is_server && !words.next().is_some_and(|word| COMMANDS.contains(&word)) && !command.contains(" | ")
}

/// Shell that runs the commands of one page. The background programs of the page end with it.
struct Session<'l> {
    lab: &'l Lab,
    bash: Child,
    /// Directory for scripts, their output and temporary files, outside the directory of the page,
    /// because a command of the page may list its directory.
    aside: TempDir,
    count: usize,
    /// Replacements for the ports 6380 and 6381, which other programs may use.
    ports: [String; 2],
}

impl<'l> Session<'l> {
    fn start(lab: &'l Lab) -> Self {
        let path = format!("{}:{}", lab.bin().display(), std::env::var("PATH").unwrap());
        let (mut bash, aside) = (Command::new("bash"), tempfile::tempdir().unwrap());
        for (name, _) in std::env::vars_os() {
            let is_ours = |name: &str| ["AGQ_", "AGW_", "AGX_"].iter().any(|ours| name.starts_with(ours));
            if name.to_str().is_some_and(is_ours) {
                bash.env_remove(name);
            }
        }
        bash.args(["--norc", "--noprofile"]).current_dir(lab.path()).stdin(Stdio::piped());
        bash.stdout(Stdio::null()).stderr(Stdio::null());
        bash.env("PATH", path).env("HOME", lab.path()).env("TMPDIR", aside.path());
        let bash = bash.spawn().unwrap();
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port().to_string());
        Self { lab, bash, aside, count: 0, ports }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.bash.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Replaces the ports in a text of the page.
    fn own(&self, text: &str) -> String {
        let [port, http] = &self.ports;
        text.replace("6380", port).replace("6381", http)
    }

    /// Returns the text of a command as the test runs it.
    fn given(&self, command: &str) -> String {
        // The command must not kill agq processes of other tests.
        let (lab, aside) = (self.lab.path().display(), self.aside.path().display());
        let own = format!("pkill -9 -f '/ag[q] --.*({lab}|{aside})'");
        let command = command
            .replace("agx up", "agx up -- --port 0 --http off")
            .replace("pkill -9 agq", &own)
            .replace("\"$(pidof agq)\"", "$agq");
        self.own(&command)
    }

    fn read(&self, kind: &str) -> String {
        let file = self.aside.path().join(format!("{}.{kind}", self.count));
        String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
    }

    /// Runs a step. Returns the stdout, the stderr, and the exit code of the command if the command
    /// has ended.
    fn run(&mut self, step: &PageCommand) -> (String, String, Option<i32>) {
        self.count += 1;
        let (number, command) = (self.count, self.given(&step.command));
        let place = self.aside.path().join(number.to_string()).display().to_string();
        if step.code == 0 && goes_on(&step.command) {
            if step.command.contains("agq") {
                // Only one agq runs at a time, as on a terminal.
                self.say("[ -z \"$agq\" ] || { kill $agq; wait $agq; }");
            }
            fs::write(format!("{place}.sh"), format!("exec env {command}\n")).unwrap();
            self.say(&format!(". {place}.sh > {place}.out 2> {place}.err < /dev/null &"));
            self.say(if step.command.contains("agw") { "agw=\"$agw $!\"" } else { "agq=$!" });
            let is_up = within(Duration::from_secs(30), || {
                let (out, err) = (self.read("out"), self.read("err"));
                let is_up = out.contains(" listens on ") || err.contains(" is registered at ");
                is_up.then_some(())
            });
            let code = if is_up.is_some() { Some(0) } else { None };
            return (self.read("out"), self.read("err"), code);
        }
        fs::write(format!("{place}.sh"), command + "\n").unwrap();
        self.say(&format!(
            ". {place}.sh > {place}.out 2> {place}.err < /dev/null; echo $? > {place}.new; mv {place}.new {place}.code"
        ));
        let code = within(Duration::from_secs(120), || self.read("code").trim().parse().ok());
        (self.read("out"), self.read("err"), code)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // The shell may have ended already, or hang in a command of the page.
        let _gone = writeln!(self.bash.stdin.as_mut().unwrap(), "agx down; kill $agq $agw; wait; exit");
        if within(Duration::from_secs(30), || self.bash.try_wait().ok().flatten()).is_none() {
            let _gone = self.bash.kill().and_then(|()| self.bash.wait());
        }
    }
}

fn page(name: &str) -> String {
    fs::read_to_string(Lab::repository(name)).unwrap()
}

fn comes_out_as_it_is_written(name: &str, at_least: usize) {
    let lab = Lab::on_files();
    let mut session = Session::start(&lab);
    let steps: Vec<PageCommand> = steps(&page(name)).into_iter().filter(|step| !step.is_elsewhere).collect();
    assert!(steps.len() >= at_least, "{name} has {} commands", steps.len());
    for step in steps {
        let (out, err, code) = session.run(&step);
        let prints: Vec<String> = step.prints.iter().map(|line| session.own(line)).collect();
        // redis-cli prints an empty line after an error.
        let lines: Vec<&str> = out.trim_end().lines().collect();
        // The page need not show the output of a server.
        let is_like = are_like(&lines, &prints) || (prints.is_empty() && goes_on(&step.command));
        assert!(
            is_like && code == Some(step.code),
            "{name}: {}\nprints, with exit code {code:?}:\n{out}\ninstead of, with {}:\n{}\n\n{err}",
            step.command,
            step.code,
            prints.join("\n")
        );
    }
}

#[test]
fn recipes_come_out_as_they_are_written() {
    comes_out_as_it_is_written("docs/recipes.md", 40);
}

#[test]
fn tour_comes_out_as_it_is_written() {
    comes_out_as_it_is_written("docs/tour.md", 30);
}

#[test]
fn page_of_agx_comes_out_as_it_is_written() {
    comes_out_as_it_is_written("docs/agx.md", 70);
}

#[test]
fn page_of_the_open_job_spec_comes_out_as_it_is_written() {
    comes_out_as_it_is_written("docs/ojs.md", 16);
}

#[test]
fn page_of_operations_comes_out_as_it_is_written() {
    comes_out_as_it_is_written("docs/operations.md", 20);
}

#[test]
fn page_of_security_comes_out_as_it_is_written() {
    comes_out_as_it_is_written("docs/security.md", 30);
}

#[test]
fn page_of_policies_comes_out_as_it_is_written() {
    comes_out_as_it_is_written("docs/policy.md", 10);
}

#[cfg(target_os = "linux")]
#[test]
fn page_of_plans_that_an_ai_wrote_comes_out_as_it_is_written() {
    comes_out_as_it_is_written("docs/ai-plans.md", 20);
}

#[test]
fn first_page_comes_out_as_it_is_written() {
    comes_out_as_it_is_written("README.md", 8);
}

/// Stub of a program. A stub of agq, agw or agx records arguments that the program does not accept.
/// The stub of redis-cli records its command.
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
problems=$("$REAL/$name" "${args[@]}" --help 2>&1 >/dev/null) || echo "$name ${args[*]}: $problems" >> "$WRONG"
"#;

#[test]
fn commands_for_elsewhere_are_known_to_the_programs() {
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
            // Other programs do not exist here. The handler prints `1` for them, because their
            // output is an id or a number. `kill` does nothing.
            let command = format!(
                "command_not_found_handle() {{ echo 1; }}\nsudo() {{ \"$@\"; }}\nkill() {{ :; }}\n{}",
                step.command
            );
            let mut shell = Command::new("/bin/bash");
            shell.args(["-c", &command]).current_dir(lab.path()).stdin(Stdio::null()).env("PATH", &stubs);
            shell.env("REAL", lab.bin()).env("WRONG", &wrong).env("KNOWN", &known);
            shell.output().unwrap();
            let problems = fs::read_to_string(&wrong).unwrap_or_default();
            assert!(problems.is_empty(), "{}: {}\n{problems}", file.display(), step.command);
        }
    }
    assert!(count > 20, "{count} commands");
    let known = fs::read_to_string(known).unwrap();
    for name in known.lines() {
        let command = Bytes::copy_from_slice(name.as_bytes());
        assert!(Known::of(&[command]).is_some(), "a page lets redis-cli say {name}");
    }
    assert!(known.lines().count() > 1, "{known}");
}

/// Returns all pages except the ADRs.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(Lab::repository("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs.filter(|path| path.extension() == Some("md".as_ref())).collect();
    pages.extend([Lab::repository("README.md"), Lab::repository("examples/README.md")]);
    pages
}

#[test]
fn lines_that_do_not_match_are_reported() {
    assert!(is_like("a 12 b", "a … b") && is_like("a", "a") && is_like("", "…"));
    assert!(!is_like("a 12 c", "a … b") && !is_like("ab", "a") && !is_like("ba", "a…"));
    let patterns = ["a".to_owned(), "…".to_owned(), "c".to_owned()];
    assert!(are_like(&["a", "b", "b", "c"], &patterns) && are_like(&["a", "c"], &patterns));
    assert!(!are_like(&["a", "b"], &patterns) && !are_like(&["a", "c", "d"], &patterns));
}
