//! Every command of docs/recipes.md, in its order, in one directory: it prints what stands below it.

use std::process::{Command, Stdio};

use e2e::Lab;

/// A command of the page, what it prints, and its exit code.
struct Step {
    command: String,
    prints: Vec<String>,
    code: i32,
}

/// The commands of a page: `$` begins one, `>` goes on with it, `! N` is an exit code, everything else is printed.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if is_console {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step { command: command.to_owned(), prints: Vec::new(), code: 0 });
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

/// Ends what the page has left in the background, if it did not come that far.
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
            if name.to_str().is_some_and(|name| name.starts_with("AGQ_") || name.starts_with("AGW_")) {
                shell.env_remove(name);
            }
        }
        shell
            .env("PATH", path)
            .env("AGX_HOME", self.0.path().join("home"))
            .env("HOME", self.0.path())
            .env("TMPDIR", self.0.path());
        shell
    }
}

impl Drop for Kitchen<'_> {
    fn drop(&mut self) {
        let _has_ended_already = self.shell("agx down").output();
    }
}

#[test]
fn every_recipe_comes_out_as_it_is_written() {
    let page = std::fs::read_to_string(Lab::repository("docs/recipes.md")).unwrap();
    let lab = Lab::on_files();
    let kitchen = Kitchen(&lab);
    let steps = steps(&page);
    assert!(steps.len() > 40, "the page has {} commands", steps.len());
    for Step { command, prints, code } in steps {
        // Somebody else may have the usual ports of this machine.
        let given = command.replace("agx up", "agx up -- --port 0 --http off");
        let ran = kitchen.shell(&given).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        let out: Vec<&str> = out.lines().collect();
        assert_eq!(
            (out, ran.status.code()),
            (prints.iter().map(String::as_str).collect(), Some(code)),
            "{command}\n{err}"
        );
    }
}
