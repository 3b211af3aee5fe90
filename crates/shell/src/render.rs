//! Tasks as the pipeline that they are.

use agenix_protocol::documents::{STDERR_TO_STDOUT, Task};

/// A line for a shell that does what the tasks do, where each streams into the next: the way back from [`crate::compile`].
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

/// The word of a shell that means `text`.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-{}".contains(c);
    // Braces alone are a word of the shell, and bash writes out what has commas or two dots between them.
    let has_braces = text.contains(['{', '}']);
    let is_more = has_braces && (text.len() == 1 || text.contains(',') || text.contains(".."));
    if !text.is_empty() && !is_more && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
