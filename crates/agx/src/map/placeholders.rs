//! Placeholders of GNU Parallel such as `{}` and `{.}`: their values, and the fields of an input
//! that hold them.

use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum InputPart {
    /// `{}`: the whole input
    Whole,
    /// `{.}`: the input without its extension
    NoExtension,
    /// `{/}`: the input without its directories
    Name,
    /// `{//}`: the directory of the input
    Directory,
    /// `{/.}`: the input without directories and extension
    Stem,
    /// `{#}`: the number of the job, from 1
    Number,
    /// `{%}`: the number of the slot of the job, from 1, which the worker fills in
    Slot,
}

/// Content of the braces of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Placeholder {
    part: InputPart,
    /// Number of the source or column, from 1, if the placeholder names one: `{2}`, `{2/.}`.
    source: Option<usize>,
    /// True if the placeholder stands for a list: one value for each input of the job.
    is_list: bool,
}

impl Placeholder {
    /// `{}`
    pub(crate) const WHOLE: Self = Self { part: InputPart::Whole, source: None, is_list: false };

    /// Parses the text between braces. Returns `None` for another text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, part) = text.split_at(digits);
        let source = if number.is_empty() { None } else { Some(number.parse().ok().filter(|&n| n > 0)?) };
        let part = match part {
            "" => InputPart::Whole,
            "." => InputPart::NoExtension,
            "/" => InputPart::Name,
            "//" => InputPart::Directory,
            "/." => InputPart::Stem,
            "#" if source.is_none() => InputPart::Number,
            "%" if source.is_none() => InputPart::Slot,
            _ => return None,
        };
        Some(Self { part, source, is_list: false })
    }

    /// Parses the text between braces as the name of a column, as `{name}` or `{name.}`.
    pub(crate) fn named(text: &str, names: &[String]) -> Option<Self> {
        let parts = [
            ("", InputPart::Whole),
            ("/.", InputPart::Stem),
            ("//", InputPart::Directory),
            ("/", InputPart::Name),
            (".", InputPart::NoExtension),
        ];
        parts.into_iter().find_map(|(end, part)| {
            let name = text.strip_suffix(end).filter(|name| !name.is_empty())?;
            let at = names.iter().position(|one| one == name)?;
            Some(Self { part, source: Some(at + 1), is_list: false })
        })
    }

    /// Returns the placeholder in a command with several inputs per job.
    pub(crate) fn of_group(self) -> Self {
        Self { is_list: self.source.is_none() && !self.is_number(), ..self }
    }

    /// Returns true if the placeholder stands for a list.
    pub(crate) fn is_list(self) -> bool {
        self.is_list
    }

    /// Returns the placeholder of the plan.
    pub(crate) fn template(self) -> String {
        if self.is_slot() {
            return "{{slot}}".into();
        }
        let list = if self.is_list { "[]" } else { "" };
        format!("{{{{input.{}{list}}}}}", self.field())
    }

    /// Returns the placeholder as the user writes it.
    pub(crate) fn written(self) -> String {
        let source = self.source.map(|source| source.to_string()).unwrap_or_default();
        let part = match self.part {
            InputPart::Whole => "",
            InputPart::NoExtension => ".",
            InputPart::Name => "/",
            InputPart::Directory => "//",
            InputPart::Stem => "/.",
            InputPart::Number => "#",
            InputPart::Slot => "%",
        };
        format!("{{{source}{part}}}")
    }

    /// Returns the number of the source or column that the placeholder names, counted from 1.
    pub(crate) fn source(self) -> Option<usize> {
        self.source
    }

    /// Returns true if the placeholder is `{}` or `{N}`.
    pub(crate) fn is_whole(self) -> bool {
        self.part == InputPart::Whole
    }

    /// Returns true if the placeholder stands for a number from agx or the worker, not for text of
    /// an input.
    pub(crate) fn is_number(self) -> bool {
        matches!(self.part, InputPart::Number | InputPart::Slot)
    }

    /// Returns true if the worker fills in the value, so that inputs have no field for it.
    pub(crate) fn is_slot(self) -> bool {
        self.part == InputPart::Slot
    }

    /// Returns the name of the field that holds the value.
    pub(crate) fn field(self) -> String {
        let part = match self.part {
            InputPart::Whole => "",
            InputPart::NoExtension => "_noext",
            InputPart::Name => "_name",
            InputPart::Directory => "_dir",
            InputPart::Stem => "_stem",
            InputPart::Number => return "seq".into(),
            InputPart::Slot => return "slot".into(),
        };
        let line = if self.is_list { "lines" } else { "line" };
        self.source.map_or_else(|| format!("{line}{part}"), |source| format!("arg{source}{part}"))
    }

    /// Returns the values in job `number`, from 1: several for a list, and otherwise one.
    pub(crate) fn values(self, args: &[String], number: u64) -> Vec<String> {
        if self.is_list {
            let one = Self { is_list: false, ..self };
            return args.iter().map(|arg| one.value(std::slice::from_ref(arg), number)).collect();
        }
        vec![self.value(args, number)]
    }

    /// Returns the value in job `number`, from 1. Without a source, returns the values of all
    /// sources, joined by blanks.
    pub(crate) fn value(self, args: &[String], number: u64) -> String {
        let of = |arg: &str| match self.part {
            InputPart::Whole => arg.to_owned(),
            InputPart::NoExtension => without_extension(arg).to_owned(),
            InputPart::Name => name(arg).to_owned(),
            InputPart::Directory => directory(arg),
            InputPart::Stem => without_extension(name(arg)).to_owned(),
            InputPart::Number => number.to_string(),
            InputPart::Slot => self.written(),
        };
        match self.source {
            _ if self.part == InputPart::Slot => self.written(),
            _ if self.part == InputPart::Number => number.to_string(),
            Some(source) => args.get(source - 1).map(|arg| of(arg)).unwrap_or_default(),
            None => args.iter().map(|arg| of(arg)).collect::<Vec<_>>().join(" "),
        }
    }
}

/// Returns `arg` without the extension of its last component.
fn without_extension(arg: &str) -> &str {
    match arg.rfind('.') {
        Some(dot) if !arg[dot..].contains('/') => &arg[..dot],
        _ => arg,
    }
}

fn name(arg: &str) -> &str {
    arg.rsplit('/').next().unwrap_or(arg)
}

/// Returns the directory like dirname(1): `.` if there is none.
fn directory(arg: &str) -> String {
    match Path::new(arg).parent().map(|parent| parent.to_string_lossy()) {
        Some(parent) if parent.is_empty() => ".".into(),
        Some(parent) => parent.into_owned(),
        None if arg.starts_with('/') => "/".into(),
        None => ".".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::Placeholder;

    #[test]
    fn placeholders_return_their_part_of_the_input() {
        let args = ["logs/a b.tar.gz".to_owned(), "y/z".to_owned()];
        for (text, field, value) in [
            ("", "line", "logs/a b.tar.gz y/z"),
            ("1", "arg1", "logs/a b.tar.gz"),
            ("1.", "arg1_noext", "logs/a b.tar"),
            ("1/", "arg1_name", "a b.tar.gz"),
            ("1//", "arg1_dir", "logs"),
            ("1/.", "arg1_stem", "a b.tar"),
            ("2.", "arg2_noext", "y/z"),
            ("3", "arg3", ""),
            ("#", "seq", "7"),
            ("%", "slot", "{%}"),
        ] {
            let placeholder = Placeholder::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(placeholder.field(), field, "{text}");
            assert_eq!(placeholder.value(&args, 7), value, "{text}");
        }
        for text in ["0", "x", "1#", "print $1", "1,2", "-1", "1%", "%%", "..", "99999999999999999999"] {
            assert_eq!(Placeholder::parse(text), None, "{text}");
        }
    }

    #[test]
    fn placeholders_of_a_group_are_lists_of_its_inputs() {
        let args = ["x/a.gz".to_owned(), "b".to_owned()];
        for (text, template, values) in [
            ("", "{{input.lines[]}}", &["x/a.gz", "b"][..]),
            (".", "{{input.lines_noext[]}}", &["x/a", "b"]),
            ("2", "{{input.arg2}}", &["b"]),
            ("3", "{{input.arg3}}", &[""]),
            ("#", "{{input.seq}}", &["7"]),
        ] {
            let placeholder = Placeholder::parse(text).unwrap().of_group();
            assert_eq!(placeholder.template(), template);
            assert_eq!(placeholder.values(&args, 7), values, "{text}");
            assert_eq!(placeholder.written(), format!("{{{text}}}"));
        }
    }

    #[test]
    fn placeholders_name_columns() {
        let names = ["file", "a.", "a", "2"].map(String::from);
        let field = |text: &str| Placeholder::named(text, &names).map(Placeholder::field);
        for (text, expected) in [
            ("file", "arg1"),
            ("file.", "arg1_noext"),
            ("file/", "arg1_name"),
            ("file//", "arg1_dir"),
            ("file/.", "arg1_stem"),
            ("a.", "arg2"),
            ("a", "arg3"),
        ] {
            assert_eq!(field(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!([field("files"), field(""), field("/")], [None, None, None]);
    }

    #[test]
    fn placeholders_keep_paths_without_the_removed_part() {
        let of = |text: &str, arg: &str| Placeholder::parse(text).unwrap().value(&[arg.to_owned()], 1);
        assert_eq!([of(".", "a.b/c"), of(".", "c"), of(".", ".x")], ["a.b/c", "c", ""]);
        assert_eq!([of("/", "a/"), of("/", "a")], ["", "a"]);
        assert_eq!([of("//", "a"), of("//", "/"), of("//", "/a"), of("//", "a/b/")], [".", "/", "/", "a"]);
    }
}
