//! Several inputs per job (`-N`, `-n`).

use super::row::InputRow;
use crate::error::Result;

/// Maximum number of bytes of the inputs of one job, which a process has to get as its arguments.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Passes the rows of `each` in groups of `most` inputs to `take`. The last group may be smaller. A
/// group with an invalid input is an invalid input itself.
pub(super) fn grouped(
    most: usize,
    each: impl FnOnce(&mut dyn FnMut(InputRow) -> bool) -> Result<()>,
    take: &mut dyn FnMut(InputRow) -> bool,
) -> Result<()> {
    let (mut group, mut goes_on) = (InputGroup::default(), true);
    each(&mut |row| {
        group.add(row);
        if group.inputs == most {
            goes_on = take(std::mem::take(&mut group).row());
        }
        goes_on
    })?;
    if goes_on && group.inputs > 0 {
        take(group.row());
    }
    Ok(())
}

#[derive(Default)]
struct InputGroup {
    args: Vec<String>,
    /// Number of inputs, with those that no job can have.
    inputs: usize,
    bytes: usize,
    /// Reason why no job can have the inputs.
    why: Option<String>,
}

impl InputGroup {
    fn add(&mut self, row: InputRow) {
        self.inputs += 1;
        match row {
            Ok(args) if self.why.is_none() => {
                self.bytes += args.iter().map(String::len).sum::<usize>();
                self.args.extend(args);
                if self.bytes > MAX_BYTES {
                    self.args = Vec::new();
                    self.why =
                        Some(format!("its inputs have more than {MAX_BYTES} bytes: give fewer with -N"));
                }
            }
            Ok(_) => {}
            Err(why) => {
                self.args = Vec::new();
                self.why.get_or_insert(why);
            }
        }
    }

    fn row(self) -> InputRow {
        self.why.map_or(Ok(self.args), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::{InputRow, MAX_BYTES, grouped};

    fn groups(most: usize, rows: &[InputRow], wanted: usize) -> Vec<InputRow> {
        let mut groups = Vec::new();
        let each = |take: &mut dyn FnMut(InputRow) -> bool| {
            let _all = rows.iter().all(|row| take(row.clone()));
            Ok(())
        };
        let mut take = |row| {
            groups.push(row);
            groups.len() < wanted
        };
        grouped(most, each, &mut take).unwrap();
        groups
    }

    fn rows(args: &str) -> Vec<InputRow> {
        args.split(' ').map(|arg| Ok(vec![arg.to_owned()])).collect()
    }

    fn texts(groups: Vec<InputRow>) -> Vec<String> {
        groups.into_iter().map(|row| row.unwrap().join("+")).collect()
    }

    #[test]
    fn groups_are_full_except_for_the_last() {
        assert_eq!(texts(groups(2, &rows("a b c"), 9)), ["a+b", "c"]);
        assert_eq!(texts(groups(2, &rows("a b c d"), 9)), ["a+b", "c+d"]);
        assert_eq!(texts(groups(5, &rows("a b"), 9)), ["a+b"]);
        assert!(groups(2, &[], 9).is_empty());
        assert_eq!(texts(groups(2, &rows("a b c d e"), 1)), ["a+b"], "no further group is wanted");
    }

    #[test]
    fn groups_with_an_invalid_input_are_invalid() {
        let mut rows = rows("a b c d e");
        rows[1] = Err("bad".into());
        let groups = groups(2, &rows, 9);
        assert_eq!(groups[0], Err("bad".into()));
        assert_eq!(texts(groups[1..].to_vec()), ["c+d", "e"]);
    }

    #[test]
    fn groups_are_bounded_in_bytes() {
        let half = "x".repeat(MAX_BYTES / 2);
        let large = |last: &str| [&half, &half, last].map(|arg| Ok(vec![arg.to_owned()]));
        assert!(groups(3, &large(""), 9)[0].is_ok());
        let refused = groups(3, &large("y"), 9).remove(0).unwrap_err();
        assert!(refused.contains("give fewer with -N"), "{refused}");
    }
}
