//! Role of the next word of a command for its program: argument, possible option, or program text.

use agenix_protocol::documents::Task;

/// Language of a program text in an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `sh -c TEXT`
    Shell,
    /// `awk TEXT`
    Awk,
}

/// Role of a word for its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Role {
    /// Language of the word, if the word is a program text.
    pub script: Option<Language>,
    /// True if the program would probably read a value that begins with `-` as an option.
    pub may_be_option: bool,
    /// True if the program takes regular expressions.
    pub may_be_pattern: bool,
}

/// Programs that run the argument of `-c` as a shell script.
const SHELLS: [&str; 13] =
    ["sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "yash", "fish", "csh", "tcsh", "rbash"];
/// Programs that pass the argument of `-c` to a shell.
const SHELL_STARTERS: [&str; 4] = ["flock", "runuser", "script", "su"];
const AWKS: [&str; 5] = ["awk", "gawk", "mawk", "nawk", "original-awk"];
/// Programs that take regular expressions as arguments.
const MATCHERS: [&str; 26] = [
    "ack",
    "ag",
    "awk",
    "bzgrep",
    "csplit",
    "ed",
    "egrep",
    "ex",
    "expr",
    "find",
    "gawk",
    "ggrep",
    "grep",
    "gsed",
    "mawk",
    "nawk",
    "pcre2grep",
    "pcregrep",
    "perl",
    "rename",
    "rg",
    "sed",
    "ugrep",
    "xzgrep",
    "zgrep",
    "zstdgrep",
];
/// Programs that run the command in their arguments.
const WRAPPERS: [&str; 32] = [
    "busybox",
    "bwrap",
    "chpst",
    "chroot",
    "chrt",
    "docker",
    "doas",
    "env",
    "fakeroot",
    "find",
    "firejail",
    "flock",
    "gosu",
    "ionice",
    "kubectl",
    "nice",
    "nohup",
    "nsenter",
    "parallel",
    "podman",
    "setsid",
    "srun",
    "ssh",
    "stdbuf",
    "strace",
    "sudo",
    "systemd-run",
    "taskset",
    "timeout",
    "toybox",
    "unshare",
    "xargs",
];

/// Returns the role of a word that follows the arguments of `task`.
pub fn next_word(task: &Task) -> Role {
    let words: Vec<&str> = std::iter::once(&task.command).chain(&task.args).map(String::as_str).collect();
    of_next(&words)
}

/// Returns the role of the word that follows `words`.
pub(crate) fn of_next(words: &[&str]) -> Role {
    let Some((&program, arguments)) = words.split_first() else { return Role::default() };
    let script = if AWKS.contains(&program) { awk(arguments) } else { shell(words) };
    let may_be_pattern = MATCHERS.contains(&program);
    let (script, may_be_option) = match script {
        Script::Next(language) => (Some(language), false),
        // Words after the script are arguments of the script.
        Script::Given => (None, false),
        Script::None => (None, !arguments.contains(&"--")),
    };
    Role { script, may_be_option, may_be_pattern }
}

/// Position of the program text of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    /// The command probably has no program text.
    None,
    /// The next word is the program text.
    Next(Language),
    /// A previous word is the program text.
    Given,
}

/// Finds a shell and its `-c`, also after programs such as `env` and `timeout`.
fn shell(words: &[&str]) -> Script {
    let is_wrapped = words.first().is_some_and(|first| WRAPPERS.contains(first));
    let reach = if is_wrapped { words.len() } else { 1 };
    let is_text_next = matches!(words.last(), Some(&"-c" | &"--command"));
    if is_text_next && words.iter().take(reach).any(|word| SHELL_STARTERS.contains(word)) {
        return Script::Next(Language::Shell);
    }
    let name = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let Some(at) = words.iter().take(reach).position(|word| SHELLS.contains(&name(word).as_str())) else {
        return Script::None;
    };
    let (mut has_text, mut is_value) = (false, false);
    for &word in &words[at + 1..] {
        if std::mem::take(&mut is_value) {
            continue;
        }
        let is_option = word.len() > 1 && word.starts_with(['-', '+']);
        if !is_option {
            return Script::Given;
        }
        if word.starts_with("--") {
            is_value = matches!(word, "--rcfile" | "--init-file");
        } else {
            has_text |= word.starts_with('-') && word.contains('c');
            // The next word is the name of an option: `-o pipefail`.
            is_value = word.ends_with(['o', 'O']);
        }
    }
    if has_text && !is_value { Script::Next(Language::Shell) } else { Script::None }
}

/// Finds the operand of awk that is its program.
fn awk(arguments: &[&str]) -> Script {
    let mut is_value = false;
    let mut has_file = false;
    for &word in arguments {
        if std::mem::take(&mut is_value) {
            continue;
        }
        match word {
            "--" => {}
            "-f" | "-E" | "-e" | "--file" | "--exec" | "--source" => (is_value, has_file) = (true, true),
            "-F" | "-v" | "-i" | "-l" | "-W" | "--assign" | "--field-separator" => is_value = true,
            _ if word.len() > 1 && word.starts_with('-') => {}
            _ => return Script::Given,
        }
    }
    if is_value || has_file { Script::None } else { Script::Next(Language::Awk) }
}

#[cfg(test)]
mod tests {
    use super::{Language, of_next};

    fn script(line: &str) -> Option<Language> {
        of_next(&line.split(' ').collect::<Vec<_>>()).script
    }

    #[test]
    fn the_text_of_a_shell_follows_its_c() {
        for line in [
            "sh -c",
            "bash -ec",
            "bash -o pipefail -c",
            "bash -euo pipefail -c",
            "bash -ceuo pipefail",
            "bash --norc --rcfile x -c",
            "zsh -f -c",
            "env A=b timeout 5 dash -c",
            "docker run --rm image /bin/sh -c",
            "su user -c",
            "sudo flock file -c",
        ] {
            assert_eq!(script(line), Some(Language::Shell), "{line}");
        }
        for line in [
            "sh",
            "sh -e",
            "sh -c text",
            "sh x.sh -c",
            "bash -o",
            "grep sh -c",
            "grep -c",
            "wc -c",
            "su user",
        ] {
            assert_eq!(script(line), None, "{line}");
        }
    }

    #[test]
    fn the_program_of_awk_is_its_first_operand() {
        for line in
            ["awk", "gawk -F , -v x=1", "mawk -F: --", "awk -F"].into_iter().zip([true, true, true, false])
        {
            assert_eq!(script(line.0) == Some(Language::Awk), line.1, "{}", line.0);
        }
        for line in ["awk -f prog.awk", "awk {print}", "awk -f p f"] {
            assert_eq!(script(line), None, "{line}");
        }
    }

    #[test]
    fn an_option_is_possible_until_the_options_end() {
        let may = |line: &str| of_next(&line.split(' ').collect::<Vec<_>>()).may_be_option;
        for line in ["rm", "rm -f", "grep -c x", "sh", "awk -f p", "env rm -f"] {
            assert!(may(line), "{line}");
        }
        for line in ["rm --", "grep -c -- x", "sh -c text", "sh -c text sh", "awk {print}", "sh -c"] {
            assert!(!may(line), "{line}");
        }
    }
}
