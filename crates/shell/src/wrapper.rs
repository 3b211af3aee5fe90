//! Programs that run the command in their arguments, such as `env` and `timeout`.

/// Wrapper whose command can be found by its options.
struct Wrapper {
    name: &'static str,
    /// Short options that take a value.
    values: &'static str,
    /// Long options that take a value in the next word.
    long_values: &'static [&'static str],
    /// Number of operands before the command.
    operands: usize,
    /// True if words such as `NAME=VALUE` may come before the command.
    has_variables: bool,
}

const fn wrapper(
    name: &'static str,
    values: &'static str,
    long_values: &'static [&'static str],
    operands: usize,
) -> Wrapper {
    Wrapper { name, values, long_values, operands, has_variables: false }
}

static WRAPPERS: [Wrapper; 15] = [
    wrapper("busybox", "", &[], 0),
    wrapper("chroot", "", &[], 1),
    wrapper("doas", "Cu", &[], 0),
    Wrapper { has_variables: true, ..wrapper("env", "uCS", &["--unset", "--chdir"], 0) },
    wrapper("flock", "wE", &["--timeout", "--wait", "--conflict-exit-code"], 1),
    wrapper("ionice", "cn", &["--class", "--classdata"], 0),
    wrapper("nice", "n", &["--adjustment"], 0),
    wrapper("nohup", "", &[], 0),
    wrapper("setsid", "", &[], 0),
    wrapper("stdbuf", "ioe", &["--input", "--output", "--error"], 0),
    Wrapper { has_variables: true, ..wrapper("sudo", "CDghpRrTtUu", &["--user", "--group"], 0) },
    wrapper("taskset", "", &[], 1),
    wrapper("timeout", "ks", &["--kill-after", "--signal"], 1),
    wrapper("toybox", "", &[], 0),
    wrapper(
        "xargs",
        "adEILnPs",
        &["--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-chars"],
        0,
    ),
];
/// Wrappers whose command may be anywhere in their arguments, separated by blanks.
const OTHERS: &str = "bwrap chpst chrt docker fakeroot find firejail gosu kubectl nsenter parallel podman \
    runuser script srun strace su systemd-run time unshare";
/// Wrappers whose command is behind other operands, so that a `--` belongs to the command.
const LATE_COMMANDS: [&str; 3] = ["docker", "find", "podman"];
/// Programs that build or find a program, and pass it all words behind their first `--`.
const RUNNERS: &str = "bazel cargo dotnet nix npm";
/// Commands of these programs that do so.
const RUNNER_COMMANDS: [&str; 5] = ["bench", "exec", "run", "start", "test"];

/// Returns the name of a program without its directory.
pub(crate) fn name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default()
}

fn is_other(program: &str) -> bool {
    OTHERS.split(' ').any(|other| other == program)
}

pub(crate) fn is_one(program: &str) -> bool {
    is_other(program) || WRAPPERS.iter().any(|wrapper| wrapper.name == program)
}

/// Returns the part of `words` that begins with the program that finally runs, or nothing if the
/// program is not there yet. `is_known` recognises a program behind wrappers whose options are not
/// known. Such a wrapper itself counts as the program if none is known.
pub(crate) fn inner<'w, 's>(words: &'w [&'s str], is_known: &dyn Fn(&str) -> bool) -> &'w [&'s str] {
    let mut words = words;
    while let Some(command) = command_in(words, is_known) {
        words = command;
    }
    words
}

/// Returns the command in the arguments of the wrapper that begins `words`, as far as it is there,
/// or `None` if no wrapper does.
pub(crate) fn command_in<'w, 's>(
    words: &'w [&'s str],
    is_known: &dyn Fn(&str) -> bool,
) -> Option<&'w [&'s str]> {
    let (first, rest) = words.split_first()?;
    let first = name(first);
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == first) {
        return Some(wrapper.command(rest));
    }
    if !is_other(first) {
        return None;
    }
    let at = rest.iter().position(|word| is_known(name(word)))?;
    Some(&rest[at..])
}

/// Returns true if a `--` has ended the options of the program that reads the word behind `words`.
/// `command` is the part of `words` without the wrappers whose options are known. Its first `--`
/// may be that of another wrapper or of `cargo run`, whose command or program has options of its
/// own.
pub(crate) fn have_options_ended(words: &[&str], command: &[&str]) -> bool {
    let Some((program, arguments)) = command.split_first() else { return words.last() == Some(&"--") };
    let program = name(program);
    let Some(end) = arguments.iter().position(|word| *word == "--") else { return false };
    let (before, behind) = (&arguments[..end], &arguments[end + 1..]);
    let is_run = RUNNERS.split(' ').any(|runner| runner == program)
        && before.iter().any(|word| RUNNER_COMMANDS.contains(word));
    // An input is no program, so the `--` before it is that of the wrapped program.
    let has_command = is_other(program)
        && !LATE_COMMANDS.contains(&program)
        && behind.first().is_some_and(|command| !command.contains("{{"));
    !(is_run || has_command) || behind.contains(&"--")
}

impl Wrapper {
    fn command<'w, 's>(&self, arguments: &'w [&'s str]) -> &'w [&'s str] {
        let (mut is_value, mut operands, mut options_ended) = (false, self.operands, false);
        for (at, &word) in arguments.iter().enumerate() {
            if std::mem::take(&mut is_value) {
                continue;
            }
            if word == "--" && !options_ended {
                options_ended = true;
            } else if word.len() > 1 && word.starts_with('-') && !options_ended {
                is_value = match word.starts_with("--") {
                    true => self.long_values.contains(&word),
                    // A value may be a part of the word: `-n5`.
                    false => word.find(|c: char| self.values.contains(c)) == Some(word.len() - 1),
                };
            } else if operands > 0 {
                operands -= 1;
            } else if !(self.has_variables && word.contains('=')) {
                return &arguments[at..];
            }
        }
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::{have_options_ended, inner};

    #[test]
    fn commands_are_found_behind_the_options_of_wrappers() {
        for (line, expected) in [
            ("awk x", "awk x"),
            ("env A=b awk", "awk"),
            ("env -i -u X A=b awk", "awk"),
            ("/usr/bin/env --unset X /usr/bin/awk", "/usr/bin/awk"),
            ("nice -n 5 nohup awk", "awk"),
            ("nice -n5 awk", "awk"),
            ("timeout -k 5 10 awk", "awk"),
            ("timeout --signal KILL 10 awk", "awk"),
            ("stdbuf -oL -e 0 awk", "awk"),
            ("xargs -0n 1 -P4 grep awk", "grep awk"),
            ("busybox awk -F ,", "awk -F ,"),
            ("flock file awk", "awk"),
            ("docker run --rm image awk", "awk"),
            ("docker run image", "docker run image"),
            ("find . -exec awk", "awk"),
            ("timeout 5", ""),
            ("env A=b", ""),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let found = inner(&words, &|program| program == "awk").join(" ");
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn first_end_of_options_may_be_that_of_a_wrapper() {
        let have_ended = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            have_options_ended(&words, &words)
        };
        for line in [
            "rm -f --",
            "rm -- {{input.line}}",
            "kubectl exec pod -- rm -f --",
            "kubectl exec pod --",
            "time rm --",
            "docker run image rm -- a",
            "find . -exec rm -- a",
            "cargo run -- --",
            "cargo install -- x",
            "go run . --",
        ] {
            assert!(have_ended(line), "{line}");
        }
        for line in [
            "rm -f",
            "kubectl exec pod -- rm -f",
            "strace -- rm",
            "su -- user",
            "cargo run --release --",
            "npm run build --",
            "npm exec -- rm",
        ] {
            assert!(!have_ended(line), "{line}");
        }
    }
}
