//! Columns of the inputs: `--colsep` splits each input, and `--header` names the columns.

use regex::Regex;

/// Separator between columns without `--colsep`, as in GNU Parallel.
const TAB: &str = "\t";

/// Separator of columns (`--colsep`).
#[derive(Debug, Clone)]
pub(crate) struct Separator(Regex);

impl Separator {
    /// Parses a regular expression. One character stands for itself.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_one = text.chars().count() == 1;
        let pattern = if is_one { regex::escape(text) } else { text.to_owned() };
        if text.is_empty() {
            return Err("give a character, or a regular expression, as , or '[ \\t]+'".into());
        }
        Regex::new(&pattern).map(Self).map_err(|error| {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("it is not a regular expression: {why}; a backslash makes a character text, as '\\|\\|'")
        })
    }
}

/// Split of the inputs of a map into columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    separator: Option<Separator>,
    /// True if blanks around a column are removed.
    trims: bool,
    /// Names of the columns of each source (`--header`).
    names: Option<Vec<Vec<String>>>,
}

impl Columns {
    /// Creates the split of `--colsep`.
    pub(crate) fn new(separator: Option<Separator>) -> Self {
        Self { trims: separator.is_some(), separator, names: None }
    }

    /// Takes the names of the columns from the first lines of the sources (`--header`).
    pub(crate) fn named_by(mut self, headers: &[String]) -> Self {
        if self.separator.is_none() {
            self.separator = Separator::parse(TAB).ok();
        }
        self.names = Some(headers.iter().map(|header| self.split_line(header)).collect());
        self
    }

    /// Returns the names of all columns, in the order of their numbers.
    pub(crate) fn names(&self) -> Vec<String> {
        self.names.iter().flatten().flatten().cloned().collect()
    }

    /// Returns the highest N of `{N}` for this number of sources. Without names, the lines decide.
    pub(crate) fn count(&self, sources: usize) -> usize {
        match (&self.names, &self.separator) {
            (Some(names), _) => names.iter().map(Vec::len).sum(),
            (None, Some(_)) => usize::MAX,
            (None, None) => sources,
        }
    }

    /// Returns true if an input has columns, rather than one value per source.
    pub(crate) fn is_split(&self) -> bool {
        self.separator.is_some()
    }

    /// Returns the columns of an input. Each source with names has as many columns as names.
    pub(crate) fn split(&self, args: &[String]) -> Vec<String> {
        let mut columns = Vec::new();
        for (at, arg) in args.iter().enumerate() {
            let mut split = self.split_line(arg);
            if let Some(names) = self.names.as_ref().and_then(|names| names.get(at)) {
                split.resize(names.len(), String::new());
            }
            columns.append(&mut split);
        }
        columns
    }

    /// Returns the values of an input with the names or the numbers of their columns, in the order
    /// of the directories of `--results` in GNU Parallel.
    pub(crate) fn labelled(&self, args: &[String]) -> Vec<(String, String)> {
        let names = self.names();
        let values = if self.is_split() { self.split(args) } else { args.to_vec() };
        let label = |at: usize| names.get(at).cloned().unwrap_or_else(|| (at + 1).to_string());
        let mut labelled: Vec<(String, String)> =
            values.into_iter().enumerate().map(|(at, value)| (label(at), value)).collect();
        labelled.sort_by(|(one, _), (other, _)| {
            leading_number(one).total_cmp(&leading_number(other)).then_with(|| one.cmp(other))
        });
        labelled
    }

    fn split_line(&self, line: &str) -> Vec<String> {
        let trimmed =
            |column: &str| if self.trims { column.trim_matches(is_blank) } else { column }.to_owned();
        match &self.separator {
            Some(Separator(separator)) => separator.split(line).map(trimmed).collect(),
            None => vec![line.to_owned()],
        }
    }
}

/// Returns true for a character that GNU Parallel removes around a column: `\s` for bytes in Perl.
fn is_blank(character: char) -> bool {
    character.is_ascii_whitespace() || character == '\u{b}'
}

/// Returns the number at the beginning of a text, or 0, as Perl does.
fn leading_number(text: &str) -> f64 {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (0..=end).rev().find_map(|end| text[..end].parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Columns, Separator};

    #[test]
    fn columns_are_labelled_like_directories_of_gnu_parallel() {
        let labels = |columns: &Columns, args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            let labelled = columns.labelled(&args);
            labelled.iter().map(|(label, value)| format!("{label}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(&Columns::default(), &["x,y", "p"]), "1=x,y 2=p");
        let comma = || Columns::new(Some(Separator::parse(",").unwrap()));
        assert_eq!(labels(&comma(), &["x,y,z", "p,q"]), "1=x 2=y 3=z 4=p 5=q");
        let many = "a,b,c,d,e,f,g,h,i,j,k";
        assert!(labels(&comma(), &[many]).ends_with("9=i 10=j 11=k"));
        assert_eq!(labels(&comma().named_by(&["n,m".into()]), &["1,2"]), "m=2 n=1", "names are sorted");
        assert_eq!(labels(&comma().named_by(&["11a,2b,2a,x".into()]), &["1,2,3,4"]), "x=4 2a=3 2b=2 11a=1");
        assert_eq!(labels(&Columns::new(None).named_by(&["b".into(), "a".into()]), &["1", "2"]), "a=2 b=1");
    }

    fn split(separator: &str, line: &str) -> Vec<String> {
        Columns::new(Some(Separator::parse(separator).unwrap())).split(&[line.to_owned()])
    }

    #[test]
    fn columns_are_split_by_a_character_or_a_regular_expression() {
        assert_eq!(split(",", "a, b ,,c"), ["a", "b", "", "c"], "blanks around a column are removed");
        assert_eq!(split(",", "\u{a0}a\u{3000},\tb\u{85}\r"), ["\u{a0}a\u{3000}", "b\u{85}"], "ASCII alone");
        assert_eq!(split("|", "a|b"), ["a", "b"]);
        assert_eq!(split(".", "a.b"), ["a", "b"]);
        assert_eq!(split("[ ]+", "a   b c"), ["a", "b", "c"]);
        assert_eq!(split("\\t", "a\tb"), ["a", "b"]);
        assert_eq!(split(",", ""), [""]);
        for (wrong, why) in [("", "give a character"), ("a(", "unclosed group"), ("**", "repetition")] {
            let error = Separator::parse(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn columns_of_several_sources_are_numbered_on() {
        let columns = Columns::new(Some(Separator::parse("-").unwrap()));
        assert_eq!(columns.split(&["a-b".into(), "c-d-e".into()]), ["a", "b", "c", "d", "e"]);
        assert_eq!(columns.count(1), usize::MAX);
        assert_eq!(Columns::default().count(2), 2);
    }

    #[test]
    fn columns_with_names_have_fixed_numbers() {
        let columns = Columns::new(None).named_by(&["x\ty".into(), "z".into()]);
        assert_eq!((columns.names(), columns.count(2)), (vec!["x".into(), "y".into(), "z".into()], 3));
        assert_eq!(columns.split(&["1".into(), "2".into()]), ["1", "", "2"], "a missing column is empty");
        assert_eq!(
            columns.split(&["1\t2 \t3".into(), "4".into()]),
            ["1", "2 ", "4"],
            "a fourth one has no name"
        );
    }
}
