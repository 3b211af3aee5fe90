//! Renders tasks as a pipeline.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::{STDERR_TO_STDOUT, Task},
    printable::is_hidden,
};

/// Returns a line for a shell with the meaning of the tasks, if each of them streams into the next.
/// The function is the inverse of [`crate::compile`].
pub fn render(tasks: &[Task]) -> String {
    tasks.iter().map(command).collect::<Vec<_>>().join(" | ")
}

fn command(task: &Task) -> String {
    let words = std::iter::once(program(&task.command)).chain(task.args.iter().map(|word| quoted(word)));
    let stdin = task.stdin_file.iter().map(|path| format!("< {}", quoted(path)));
    let stdout = task.stdout.iter().map(|path| format!("> {}", quoted(path)));
    let stderr = task.stderr.iter().map(|path| match path.as_str() {
        STDERR_TO_STDOUT => "2>&1".to_owned(),
        path => format!("2> {}", quoted(path)),
    });
    let variables = variables(&task.env).into_iter();
    variables.chain(words).chain(stdin).chain(stdout).chain(stderr).collect::<Vec<_>>().join(" ")
}

/// Returns the words that set variables. A shell assigns only to its own names, so that `env` sets
/// the others: their names may have blanks and operators.
fn variables(env: &BTreeMap<String, String>) -> Vec<String> {
    let (own, others): (Vec<_>, Vec<_>) = env.iter().partition(|(name, _)| is_shell_name(name));
    let mut words: Vec<String> =
        own.into_iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
    if !others.is_empty() {
        words.extend(["env", "--"].map(String::from));
        words.extend(others.into_iter().map(|(name, value)| quoted(&format!("{name}={value}"))));
    }
    words
}

/// Returns true if a shell assigns to a variable of this name.
fn is_shell_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() && name.chars().all(is_part)
}

/// Quotes the name of a program. Without quotes, a shell assigns a word such as `a=b`.
fn program(name: &str) -> String {
    let word = quoted(name);
    if name.contains('=') && word == name { format!("'{name}'") } else { word }
}

/// Quotes `text` as one word of a shell. A text with control characters is written as `$'…'`,
/// because a terminal would act on these characters, and a line feed would break the line. bash,
/// ksh and zsh know this syntax, and POSIX has it since 2024.
fn quoted(text: &str) -> String {
    if text.contains(is_hidden) {
        return format!("$'{}'", text.chars().map(escaped).collect::<String>());
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-{}".contains(c);
    // Braces alone are a word, and bash expands those with commas or two dots.
    let has_braces = text.contains(['{', '}']);
    let is_more = has_braces && (text.len() == 1 || text.contains(',') || text.contains(".."));
    if !text.is_empty() && !is_more && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Escapes a character inside `$'…'`.
fn escaped(c: char) -> String {
    match c {
        '\n' => r"\n".into(),
        '\r' => r"\r".into(),
        '\t' => r"\t".into(),
        '\'' => r"\'".into(),
        '\\' => r"\\".into(),
        // Octal escapes end after three digits; hexadecimal ones include later digits.
        c if is_hidden(c) => c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!(r"\{byte:03o}")).collect(),
        c => c.into(),
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::Task;

    use super::{quoted, render};

    #[test]
    fn render_assigns_only_to_names_of_a_shell() {
        let env = [("A_1", "b c"), ("wc -l #", ""), ("$(id)", "x"), ("-i", ""), ("1", "2")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let task = Task { command: "sh".into(), env, ..Task::default() };
        assert_eq!(render(&[task]), "A_1='b c' env -- '$(id)=x' -i= 1=2 'wc -l #=' sh");
        let task = Task { command: "a=b".into(), args: vec!["a=b".into()], ..Task::default() };
        assert_eq!(render(&[task]), "'a=b' a=b", "it is the name of a program");
    }

    #[test]
    fn render_escapes_control_characters() {
        for (text, expected) in [
            ("a b", "'a b'"),
            ("é", "'é'"),
            ("a\u{1b}[2Jb", r"$'a\033[2Jb'"),
            ("a\nb\r\t", r"$'a\nb\r\t'"),
            ("it's\\ \n", r"$'it\'s\\ \n'"),
            ("\u{85}\u{202e}x\u{7f}", r"$'\302\205\342\200\256x\177'"),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
