//! Jobs that a joblog has as done. As in GNU Parallel, the number of an input alone decides whether
//! its job is done; agx warns if the command of that number is another one now, or if agx cannot
//! compare the commands.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{map::command_template::CommandTemplate, output::OutputFormat, util::shorten::shortened};

/// Jobs that are done, by the numbers of their inputs, with the digests of their commands.
pub(crate) type CompletedInputs = BTreeMap<u64, u64>;

/// Digest without quotes and blanks: agx, its earlier versions and GNU Parallel quote differently.
pub(crate) fn digest(command: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let is_quoting = |c: char| c.is_whitespace() || c.is_control() || "'\"\\$".contains(c);
    command.chars().filter(|&c| !is_quoting(c)).for_each(|c| c.hash(&mut hasher));
    hasher.finish()
}

/// Decides which inputs are skipped.
#[derive(Debug)]
pub(crate) struct Resumed {
    done: CompletedInputs,
    command: CommandTemplate,
    output: OutputFormat,
    has_warned: bool,
}

impl Resumed {
    pub(crate) fn new(done: CompletedInputs, command: CommandTemplate, output: OutputFormat) -> Self {
        Self { done, command, output, has_warned: false }
    }

    /// Returns true if input `seq` is skipped. `args` is `None` if no job can have the input.
    pub(crate) fn skips(&mut self, args: Option<&[String]>, seq: u64) -> bool {
        let Some(&logged) = self.done.get(&seq) else { return false };
        let warning = args.filter(|_| !self.has_warned).and_then(|args| self.warning(logged, args, seq));
        if let Some(warning) = warning {
            self.has_warned = true;
            self.output.note(&format!("agx: warning: {warning}"));
        }
        true
    }

    /// Returns the reason to doubt that the joblog has this input as done, if there is one.
    fn warning(&self, logged: u64, args: &[String], seq: u64) -> Option<String> {
        if let Some(now) = self.other_command(logged, args, seq) {
            return Some(format!(
                "job {seq} is skipped, because the joblog has its number as done, but its command was another one there; \
                 now it is: {}. --resume goes by the numbers of the inputs alone: leave it out, or give the same command \
                 and inputs. Further such jobs are not named",
                shortened(&now)
            ));
        }
        (!self.command.shows_inputs()).then(|| {
            "the jobs that the joblog has as done are skipped by their numbers, and their commands do not show whether the \
             inputs are the same: give the same inputs as before, and the same -N or --block"
                .into()
        })
    }

    /// Returns the command of the input if the joblog has another one.
    fn other_command(&self, logged: u64, args: &[String], seq: u64) -> Option<String> {
        let now = self.command.of(args, seq);
        (digest(&now) != logged).then_some(now)
    }

    pub(crate) fn command(&self, args: &[String], seq: u64) -> String {
        self.command.of(args, seq)
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::Task;

    use super::{CommandTemplate, CompletedInputs, Resumed, digest};
    use crate::{map::Placeholder, output::OutputFormat};

    #[test]
    fn command_digest_ignores_quotes_and_blanks() {
        assert_eq!(digest(r"echo a\ b"), digest("echo 'a b'"));
        assert_eq!(digest("echo a\tb"), digest("echo $'a\tb'"));
        assert_ne!(digest("echo a"), digest("echo b"));
    }

    #[test]
    fn resume_skips_by_number_and_warns_about_another_command() {
        let task = Task { command: "echo".into(), args: vec!["{{input.line}}".into()], ..Task::default() };
        let fields = std::collections::BTreeSet::from([Placeholder::WHOLE]).into();
        let command = CommandTemplate::new(vec![task], fields);
        let done = [(1, digest("echo a")), (2, digest("echo 'b c'"))].into();
        let mut resumed = Resumed::new(done, command, OutputFormat::default());
        let args = |arg: &str| [arg.to_owned()];
        assert!(resumed.skips(Some(&args("a")), 1) && resumed.skips(Some(&args("b c")), 2));
        assert!(!resumed.has_warned && !resumed.skips(Some(&args("x")), 3));
        assert!(resumed.skips(None, 1) && !resumed.has_warned, "no job can have it");
        assert!(resumed.skips(Some(&args("x")), 1), "as in GNU Parallel");
        assert!(resumed.has_warned);
    }

    #[test]
    fn resume_warns_if_the_command_does_not_show_the_inputs() {
        let warning = |placeholder: &str| {
            let placeholder = Placeholder::parse(placeholder).unwrap();
            let task =
                Task { command: "./step".into(), args: vec![placeholder.template()], ..Task::default() };
            let fields = std::collections::BTreeSet::from([placeholder]).into();
            let command = CommandTemplate::new(vec![task], fields);
            let resumed = Resumed::new(CompletedInputs::new(), command, OutputFormat::default());
            let args = ["1".to_owned()];
            let logged = digest(&resumed.command(&args, 1));
            resumed.warning(logged, &args, 1)
        };
        assert_eq!(warning(""), None);
        assert!(warning("#").unwrap().contains("do not show whether the inputs are the same"));
    }
}
