//! Words of the command of `agx map` that a program may read otherwise than the user expects.

use agenix_protocol::{documents::Task, template};
use agenix_shell::next_word;

/// Returns the templates of the words that begin with an input where a program may read options.
pub(super) fn leading_words(tasks: &[Task]) -> Vec<String> {
    let mut leading = Vec::new();
    for task in tasks {
        let may_be_option = |count: usize| {
            next_word(&Task { args: task.args[..count].to_vec(), ..task.clone() }).may_be_option
        };
        for (at, word) in task.args.iter().enumerate().filter(|(_, word)| word.starts_with("{{input.")) {
            let is_list = template::list(word).is_some();
            // The first input of a list may decide how the program reads the others.
            if may_be_option(at) || (is_list && may_be_option(at + 1)) {
                leading.push(word.clone());
            }
        }
    }
    leading
}
