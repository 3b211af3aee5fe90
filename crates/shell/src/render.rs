//! Renders tasks as a pipeline.

use agenix_protocol::{
    documents::{STDERR_TO_STDOUT, Task},
    printable::is_hidden,
};

/// Returns a line for a shell with the meaning of the tasks, if each of them streams into the next.
/// It is the inverse of [`crate::compile`].
pub fn render(tasks: &[Task]) -> String {
    tasks.iter().map(command).collect::<Vec<_>>().join(" | ")
}

fn command(task: &Task) -> String {
    let env = task.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
    let words = std::iter::once(&task.command).chain(&task.args).map(|word| quoted(word));
    let stdin = task.stdin_file.iter().map(|path| format!("< {}", quoted(path)));
    let stdout = task.stdout.iter().map(|path| format!("> {}", quoted(path)));
    let stderr = task.stderr.iter().map(|path| match path.as_str() {
        STDERR_TO_STDOUT => "2>&1".to_owned(),
        path => format!("2> {}", quoted(path)),
    });
    env.chain(words).chain(stdin).chain(stdout).chain(stderr).collect::<Vec<_>>().join(" ")
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
    use super::quoted;

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
