//! Random order of the jobs (`--shuf`).

use super::row::InputRow;
use crate::{
    error::{CliError, Result},
    output::counted,
};

/// Maximum number of jobs that `--shuf` holds in memory.
const MAX_SHUFFLED: usize = 1_000_000;
/// Maximum number of bytes of their inputs.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// Passes the rows of `each` to `take` in random order, after the last one was read.
pub(super) fn shuffled(
    each: impl FnOnce(&mut dyn FnMut(InputRow) -> bool) -> Result<()>,
    take: &mut dyn FnMut(InputRow) -> bool,
) -> Result<()> {
    let mut rows = collect(each, MAX_SHUFFLED, MAX_BYTES)?;
    fastrand::shuffle(&mut rows);
    let _all = rows.into_iter().all(take);
    Ok(())
}

fn collect(
    each: impl FnOnce(&mut dyn FnMut(InputRow) -> bool) -> Result<()>,
    most: usize,
    most_bytes: usize,
) -> Result<Vec<InputRow>> {
    let (mut rows, mut bytes, mut fits) = (Vec::new(), 0, true);
    each(&mut |row| {
        bytes += row.as_ref().map_or(0, |args| args.iter().map(String::len).sum());
        fits = rows.len() < most && bytes <= most_bytes;
        if fits {
            rows.push(row);
        }
        fits
    })?;
    if fits {
        return Ok(rows);
    }
    let jobs = counted(most as u64, "job", "jobs");
    Err(CliError::usage(
        format!(
            "--shuf holds all inputs in memory, at most {jobs} and {most_bytes} bytes, and there are more"
        ),
        "leave --shuf out, and give the inputs in random order, as with `shuf FILE | agx map …`",
    ))
}

#[cfg(test)]
mod tests {
    use super::{InputRow, Result, collect, shuffled};

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

    #[test]
    fn shuffle_refuses_more_inputs_than_its_bounds() {
        assert_eq!(collect(each(10), 10, 10).unwrap().len(), 10);
        for (most, most_bytes) in [(9, 10), (10, 9)] {
            let refused = collect(each(10), most, most_bytes).unwrap_err().to_string();
            assert!(refused.contains("--shuf holds all inputs in memory, at most"), "{refused}");
        }
    }
}
