//! Inputs in memory before the first job, for options that need all inputs.

use crate::{
    error::{CliError, Result},
    output::counted,
};

/// Maximum number of jobs that are held in memory.
const MAX_JOBS: usize = 1_000_000;
/// Maximum number of bytes of the inputs of the held jobs.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// Option that needs all inputs, and the advice if there are too many.
#[derive(Debug, Clone, Copy)]
pub(super) struct HoldReason {
    pub(super) option: &'static str,
    pub(super) help: &'static str,
}

/// Returns the rows of `each` after the last one was read. `bytes_of` returns the size of a row.
pub(super) fn held<T>(
    each: impl FnOnce(&mut dyn FnMut(T) -> bool) -> Result<()>,
    bytes_of: impl Fn(&T) -> usize,
    reason: HoldReason,
) -> Result<Vec<T>> {
    collect(each, bytes_of, reason, (MAX_JOBS, MAX_BYTES))
}

fn collect<T>(
    each: impl FnOnce(&mut dyn FnMut(T) -> bool) -> Result<()>,
    bytes_of: impl Fn(&T) -> usize,
    reason: HoldReason,
    (most, most_bytes): (usize, usize),
) -> Result<Vec<T>> {
    let (mut rows, mut bytes, mut fits) = (Vec::new(), 0, true);
    each(&mut |row| {
        bytes += bytes_of(&row);
        fits = rows.len() < most && bytes <= most_bytes;
        if fits {
            rows.push(row);
        }
        fits
    })?;
    if fits {
        return Ok(rows);
    }
    let (HoldReason { option, help }, jobs) = (reason, counted(most as u64, "job", "jobs"));
    Err(CliError::usage(
        format!(
            "{option} holds all inputs in memory, at most {jobs} and {most_bytes} bytes, and there are more"
        ),
        help,
    ))
}

#[cfg(test)]
mod tests {
    use super::{HoldReason, collect};

    #[test]
    fn holding_refuses_more_inputs_than_its_bounds() {
        let of = |bounds| {
            let reason = HoldReason { option: "--shuf", help: "leave it out" };
            collect(
                |take| {
                    let _all = (0..10).all(take);
                    Ok(())
                },
                |_: &u64| 1,
                reason,
                bounds,
            )
        };
        assert_eq!(of((10, 10)).unwrap().len(), 10);
        for bounds in [(9, 10), (10, 9)] {
            let refused = of(bounds).unwrap_err().to_string();
            assert!(refused.starts_with("--shuf holds all inputs in memory, at most"), "{refused}");
        }
    }
}
