//! `{}` and its kin, as GNU Parallel has them: what they stand for, and by which field of an input they travel.

use std::path::Path;

/// A part of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum InputPart {
    /// `{}`
    Whole,
    /// `{.}`: without its extension
    NoExtension,
    /// `{/}`: without its directories
    Name,
    /// `{//}`: its directory
    Directory,
    /// `{/.}`: without directories and extension
    Stem,
    /// `{#}`: the number of the job, from 1
    Number,
}

/// What stands between two braces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Placeholder {
    part: InputPart,
    /// Of which source it is, from 1, where that is said: `{2}`, `{2/.}`.
    source: Option<usize>,
}

impl Placeholder {
    /// `{}`
    pub(crate) const WHOLE: Self = Self { part: InputPart::Whole, source: None };

    /// Reads what stands between the braces; None where it is no placeholder.
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
            _ => return None,
        };
        Some(Self { part, source })
    }

    /// Returns the number of the source that the placeholder names, counted from 1.
    pub(crate) fn source(self) -> Option<usize> {
        self.source
    }

    /// Tells whether the placeholder is `{}` or `{N}`.
    pub(crate) fn is_whole(self) -> bool {
        self.part == InputPart::Whole
    }

    /// Tells whether the placeholder stands for a number from agx instead of the text of an input.
    pub(crate) fn is_number(self) -> bool {
        self.part == InputPart::Number
    }

    /// The field of an input by which it travels.
    pub(crate) fn field(self) -> String {
        let part = match self.part {
            InputPart::Whole => "",
            InputPart::NoExtension => "_noext",
            InputPart::Name => "_name",
            InputPart::Directory => "_dir",
            InputPart::Stem => "_stem",
            InputPart::Number => return "seq".into(),
        };
        self.source.map_or_else(|| format!("line{part}"), |source| format!("arg{source}{part}"))
    }

    /// What it stands for in the job of this number, from 1. Without a number of a source it is that of all, with blanks between.
    pub(crate) fn value(self, args: &[String], number: u64) -> String {
        let of = |arg: &str| match self.part {
            InputPart::Whole => arg.to_owned(),
            InputPart::NoExtension => without_extension(arg).to_owned(),
            InputPart::Name => name(arg).to_owned(),
            InputPart::Directory => directory(arg),
            InputPart::Stem => without_extension(name(arg)).to_owned(),
            InputPart::Number => number.to_string(),
        };
        match self.source {
            _ if self.part == InputPart::Number => number.to_string(),
            Some(source) => args.get(source - 1).map(|arg| of(arg)).unwrap_or_default(),
            None => args.iter().map(|arg| of(arg)).collect::<Vec<_>>().join(" "),
        }
    }
}

/// Everything before the last dot of the last part of a path.
fn without_extension(arg: &str) -> &str {
    match arg.rfind('.') {
        Some(dot) if !arg[dot..].contains('/') => &arg[..dot],
        _ => arg,
    }
}

fn name(arg: &str) -> &str {
    arg.rsplit('/').next().unwrap_or(arg)
}

/// As dirname has it: `.` where there is none.
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
    fn each_stands_for_its_part() {
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
        ] {
            let placeholder = Placeholder::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(
                (placeholder.field(), placeholder.value(&args, 7)),
                (field.into(), value.into()),
                "{text}"
            );
        }
        for text in ["0", "x", "1#", "print $1", "1,2", "-1", "%", "..", "99999999999999999999"] {
            assert_eq!(Placeholder::parse(text), None, "{text}");
        }
    }

    #[test]
    fn paths_without_a_part_are_what_they_are() {
        let of = |text: &str, arg: &str| Placeholder::parse(text).unwrap().value(&[arg.to_owned()], 1);
        assert_eq!([of(".", "a.b/c"), of(".", "c"), of(".", ".x")], ["a.b/c", "c", ""]);
        assert_eq!([of("/", "a/"), of("/", "a")], ["", "a"]);
        assert_eq!([of("//", "a"), of("//", "/"), of("//", "/a"), of("//", "a/b/")], [".", "/", "/", "a"]);
    }
}
