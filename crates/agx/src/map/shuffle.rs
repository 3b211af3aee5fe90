//! Random order of the jobs (`--shuf`).

use super::{
    held::{HoldReason, held},
    row::InputRow,
};
use crate::error::Result;

const REASON: HoldReason = HoldReason {
    option: "--shuf",
    help: "leave --shuf out, and give the inputs in random order, as with `shuf FILE | agx map …`",
};

/// Passes the rows of `each` to `take` in random order, after the last one was read.
pub(super) fn shuffled(
    each: impl FnOnce(&mut dyn FnMut(InputRow) -> bool) -> Result<()>,
    take: &mut dyn FnMut(InputRow) -> bool,
) -> Result<()> {
    let mut rows = held(each, bytes_of, REASON)?;
    fastrand::shuffle(&mut rows);
    let _all = rows.into_iter().all(take);
    Ok(())
}

fn bytes_of(row: &InputRow) -> usize {
    row.as_ref().map_or(0, |args| args.iter().map(String::len).sum())
}

#[cfg(test)]
mod tests {
    use super::{InputRow, Result, shuffled};

    fn each(count: usize) -> impl FnOnce(&mut dyn FnMut(InputRow) -> bool) -> Result<()> {
        move |take| {
            let _all = (0..count).all(|number| take(Ok(vec![number.to_string()])));
            Ok(())
        }
    }

    #[test]
    fn shuffle_keeps_every_input() {
        let mut numbers = Vec::new();
        let mut take = |row: InputRow| {
            numbers.push(row.unwrap().remove(0).parse::<usize>().unwrap());
            true
        };
        shuffled(each(100), &mut take).unwrap();
        assert!(!numbers.is_sorted(), "the order of the inputs is one of 100! orders");
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }
}
