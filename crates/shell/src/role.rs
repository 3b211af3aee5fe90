//! Role of the next word of a command for its program: argument, possible option, or program text.

use agenix_protocol::documents::Task;

use crate::{
    interpreter::{self, AWK, Interpreter, NextWord, SHELL_STARTER, Script},
    own_braces::{self, BraceFiller, OwnBraces},
    script::Language,
    wrapper::{self, have_options_ended, inner, name},
};

/// Role of a word for its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WordRole {
    /// Language of the word, if the word is a program text.
    pub script: Option<Language>,
    /// True if the word continues a program text, so that it is code even if it is an input alone.
    pub continues_script: bool,
    /// True if the program would probably read a value that begins with `-` as an option.
    pub may_be_option: bool,
    /// True if the program takes regular expressions.
    pub may_be_pattern: bool,
    /// Program that reads the word if it is an option.
    options_of: Option<&'static Interpreter>,
    /// Use that a program other than agx has for braces in the word.
    own_braces: Option<OwnBraces>,
}

impl WordRole {
    /// Returns the program that fills in braces of the word by itself, as `find -exec` does.
    pub fn brace_filler(self) -> Option<&'static BraceFiller> {
        self.own_braces.and_then(OwnBraces::filler)
    }

    /// Returns the role of the rest of a word that begins with `start`: an option such as `-e` may
    /// have its program text in its own word.
    pub(crate) fn behind(self, start: &str) -> Self {
        let interpreter = self.options_of.filter(|interpreter| interpreter.has_text_behind(start));
        let script = interpreter.map_or(self.script, |interpreter| Some(interpreter.language));
        Self { script, own_braces: self.own_braces.map(|own| own.behind(start)), ..self }
    }
}

/// Programs that run the argument of `-c` as a shell script.
const SHELLS: [&str; 12] =
    ["sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "yash", "csh", "tcsh", "rbash"];
/// Programs that take regular expressions as arguments, separated by blanks.
const MATCHERS: &str = "ack ag awk bzgrep csplit ed egrep ex expr find gawk ggrep grep gsed mawk nawk \
    pcre2grep pcregrep perl rename rg sed ugrep xzgrep zgrep zstdgrep";
/// Returns the role of a word that follows the arguments of `task`.
pub fn next_word(task: &Task) -> WordRole {
    let words: Vec<&str> = std::iter::once(&task.command).chain(&task.args).map(String::as_str).collect();
    of_next(&words)
}

/// Returns the role of the word that follows `words`.
pub(crate) fn of_next(words: &[&str]) -> WordRole {
    if words.is_empty() {
        return WordRole::default();
    }
    let command = inner(words, &is_known);
    let program = command.first().map_or("", |program| name(program));
    let is_starter = SHELL_STARTER.has_name(program) || (command.is_empty() && has_shell_starter(words));
    let arguments = command.get(1..);
    let found = match arguments {
        _ if starts_shell(words, is_starter) => Script::Next(Language::Shell),
        Some(arguments) => script(program, arguments),
        None => Script::None,
    };
    let found = match found {
        Script::None if is_starter => Script::Options(&SHELL_STARTER),
        found => found,
    };
    let may_be_pattern = MATCHERS.split(' ').any(|matcher| matcher == program);
    let continues_script = matches!(found, Script::Continued(_));
    let (script, may_be_option, options_of) = match found {
        Script::Next(language) | Script::Continued(language) => (Some(language), false, None),
        // Words after the program text are arguments of the text.
        Script::Given => (None, false, None),
        Script::File(count) => {
            let of_file = arguments.and_then(|arguments| arguments.get(count..));
            (None, of_file.is_some_and(|words| !words.contains(&"--")), None)
        }
        Script::None => (None, !have_options_ended(words, command), None),
        Script::Options(interpreter) => (None, !have_options_ended(words, command), Some(interpreter)),
    };
    let own_braces = own_braces::of_next(words);
    WordRole { script, continues_script, may_be_option, may_be_pattern, options_of, own_braces }
}

/// Returns true if `program` is one that takes program texts.
fn is_known(program: &str) -> bool {
    AWK.has_name(program) || SHELLS.contains(&program) || program == "ssh" || interpreter::is_one(program)
}

/// Returns true if the last word is the `-c` of a program that passes its argument to a shell.
fn starts_shell(words: &[&str], is_starter: bool) -> bool {
    match words.last() {
        Some(&"-c" | &"--command") => has_shell_starter(words),
        Some(option) if option.starts_with('-') => {
            is_starter && SHELL_STARTER.next_after(option) == NextWord::Text
        }
        _ => false,
    }
}

/// Returns true if the command, or that of a wrapper, passes an argument to a shell.
fn has_shell_starter(words: &[&str]) -> bool {
    let is_wrapped = words.first().is_some_and(|first| wrapper::is_one(name(first)));
    let reach = if is_wrapped { words.len() } else { 1 };
    words.iter().take(reach).any(|word| SHELL_STARTER.has_name(name(word)))
}

fn script(program: &str, arguments: &[&str]) -> Script {
    if AWK.has_name(program) {
        awk(arguments)
    } else if SHELLS.contains(&program) {
        shell(arguments)
    } else if program == "ssh" {
        remote(arguments)
    } else {
        interpreter::script(program, arguments)
    }
}

/// Finds the `-c` of a shell.
fn shell(arguments: &[&str]) -> Script {
    let (mut has_text, mut is_value) = (false, false);
    for (at, &word) in arguments.iter().enumerate() {
        if std::mem::take(&mut is_value) {
            continue;
        }
        let is_option = word.len() > 1 && word.starts_with(['-', '+']);
        if !is_option {
            return Script::after_operand(has_text, at + 1);
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

/// Options of ssh that take a value.
const SSH_VALUES: &str = "BbcDEeFIiJLlmOoPpQRSWw";

/// Finds the command of ssh, which joins its words with blanks for a shell of the host.
fn remote(arguments: &[&str]) -> Script {
    let (mut is_value, mut has_host) = (false, false);
    for &word in arguments {
        if std::mem::take(&mut is_value) {
            continue;
        }
        if word.len() > 1 && word.starts_with('-') {
            is_value = word.find(|c: char| SSH_VALUES.contains(c)) == Some(word.len() - 1);
        } else if has_host {
            return Script::Continued(Language::Remote);
        } else {
            has_host = true;
        }
    }
    if has_host && !is_value { Script::Next(Language::Remote) } else { Script::None }
}

/// Finds the program text of awk: the value of an option, or else the first operand.
fn awk(arguments: &[&str]) -> Script {
    let (mut before, mut has_program) = (NextWord::Other, false);
    for &word in arguments {
        before = match before {
            NextWord::Text | NextWord::Value => NextWord::Other,
            _ if word == "--" => NextWord::Other,
            _ if word.len() < 2 || !word.starts_with('-') => return Script::Given,
            NextWord::Here | NextWord::Other => {
                has_program |= gives_program(word);
                AWK.next_after(word)
            }
        };
    }
    match before {
        NextWord::Text => Script::Next(Language::Awk),
        NextWord::Value => Script::None,
        NextWord::Here | NextWord::Other if has_program => Script::Options(&AWK),
        NextWord::Here | NextWord::Other => Script::Next(Language::Awk),
    }
}

/// Returns true for an option of awk whose value is the program or its file.
fn gives_program(option: &str) -> bool {
    if option.starts_with("--") {
        return ["--exec", "--file", "--source"].iter().any(|name| option.starts_with(*name));
    }
    option != "-safe" && AWK.first_with_value(option).is_some_and(|option| "Eef".contains(option))
}

#[cfg(test)]
mod tests {
    use super::{Language, of_next};

    fn script(line: &str) -> Option<Language> {
        of_next(&line.split(' ').collect::<Vec<_>>()).script
    }

    #[test]
    fn shell_script_follows_the_option_c() {
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
            "su user --session-command",
            "script -qc",
            "sudo flock file -c",
            "fish -c",
            "fish --command",
            "/bin/sh -c",
            "/usr/bin/env -i A=b /bin/bash -c",
            "xargs -n 1 sh -c",
            "nohup nice -n 5 sh -c",
            "stdbuf -oL sh -c",
            "busybox sh -c",
            "find . -exec sh -c",
            "find . -name x -execdir /bin/bash -ec",
            "ssh -p 22 host",
        ] {
            let expected = if line.starts_with("ssh") { Language::Remote } else { Language::Shell };
            assert_eq!(script(line), Some(expected), "{line}");
        }
        for line in [
            "sh",
            "sh -e",
            "sh -c text",
            "sh x.sh -c",
            "bash -o",
            "grep sh -c",
            "grep su -c",
            "grep -c",
            "wc -c",
            "su user",
        ] {
            assert_eq!(script(line), None, "{line}");
        }
    }

    #[test]
    fn awk_program_is_the_first_operand_or_the_value_of_an_option() {
        for line in [
            "awk",
            "gawk -F , -v x=1",
            "mawk -F: --",
            "original-awk -safe",
            "gawk -e",
            "gawk --source",
            "gawk -be",
            "gawk -f lib.awk -e",
            "gawk -e x --source",
        ] {
            assert_eq!(script(line), Some(Language::Awk), "{line}");
        }
        for line in [
            "awk -F",
            "awk -f prog.awk",
            "awk -fprog.awk",
            "gawk --file=prog.awk",
            "gawk -e x",
            "gawk -ex",
            "awk {print}",
            "awk -f p f",
        ] {
            assert_eq!(script(line), None, "{line}");
        }
    }

    #[test]
    fn program_text_may_begin_behind_an_option() {
        let behind =
            |line: &str, start: &str| of_next(&line.split(' ').collect::<Vec<_>>()).behind(start).script;
        for (line, start, language) in [
            ("env perl", "-ne", Language::Perl),
            ("gawk -f lib.awk", "-e", Language::Awk),
            ("gawk -f lib.awk", "--source=", Language::Awk),
            ("su user", "-c", Language::Shell),
            ("sudo flock file", "--command=", Language::Shell),
            ("script", "-qc", Language::Shell),
            ("fish", "--command=", Language::Shell),
        ] {
            assert_eq!(behind(line, start), Some(language), "{line} {start}");
        }
        for (line, start) in [
            ("perl x.pl", "-e"),
            ("gawk -f x", "-ve="),
            ("su user", "-s"),
            ("grep su", "-c"),
            ("flock file cut", "-c"),
        ] {
            assert_eq!(behind(line, start), None, "{line} {start}");
        }
    }

    #[test]
    fn interpreters_are_found_behind_wrappers() {
        for (line, language) in [
            ("env awk", Language::Awk),
            ("env A=b LC_ALL=C gawk -F ,", Language::Awk),
            ("nice -n 5 awk", Language::Awk),
            ("nohup mawk", Language::Awk),
            ("timeout -k 5 10 awk -v x=1", Language::Awk),
            ("stdbuf -oL awk", Language::Awk),
            ("xargs -0 awk", Language::Awk),
            ("/usr/bin/awk", Language::Awk),
            ("env /usr/bin/gawk", Language::Awk),
            ("busybox awk", Language::Awk),
            ("find . -exec awk", Language::Awk),
            ("docker run --rm image awk", Language::Awk),
            ("perl -e", Language::Perl),
            ("timeout 5 perl -ne", Language::Perl),
            ("env python3 -c", Language::Python),
            ("/usr/bin/python3.12 -Ic", Language::Python),
            ("xargs ruby -e", Language::Ruby),
            ("nice node -e", Language::Node),
            ("stdbuf -o L php -r", Language::Php),
            ("ssh host", Language::Remote),
            ("timeout 5 ssh -i key -o A=b host wc", Language::Remote),
        ] {
            assert_eq!(script(line), Some(language), "{line}");
        }
        for line in [
            "env A=b",
            "xargs grep awk",
            "grep awk",
            "timeout 5",
            "nice -n",
            "ssh",
            "ssh -i",
            "ssh -p 22",
            "env perl",
            "perl -e x",
            "python3 -m json.tool",
        ] {
            assert_eq!(script(line), None, "{line}");
        }
        let continues = |line: &str| of_next(&line.split(' ').collect::<Vec<_>>()).continues_script;
        assert!(continues("ssh host wc") && !continues("ssh host") && !continues("sh -c"));
    }

    #[test]
    fn options_are_possible_until_the_options_end() {
        let may = |line: &str| of_next(&line.split(' ').collect::<Vec<_>>()).may_be_option;
        for line in [
            "rm",
            "rm -f",
            "grep -c x",
            "sh",
            "awk -f p",
            "env rm -f",
            "env -- rm -f",
            "kubectl exec pod -- rm -f",
            "cargo run --",
            "bash -- deploy.sh",
            "perl -w -- x.pl",
            "sh x.sh",
            "bash -e deploy.sh prod",
            "python3 tool.py",
            "python3 -m tool",
            "xargs perl -w x.pl",
            "ruby x.rb",
            "node app.js",
            "php x.php",
        ] {
            assert!(may(line), "{line}");
        }
        for line in [
            "rm --",
            "grep -c -- x",
            "sh -c text",
            "sh -c text sh",
            "awk {print}",
            "sh -c",
            "sh x.sh --",
            "env -- rm --",
            "bash -- deploy.sh --",
            "perl -w --",
            "python3 tool.py --",
            "python3 -c text",
            "perl -e text file",
        ] {
            assert!(!may(line), "{line}");
        }
    }
}
