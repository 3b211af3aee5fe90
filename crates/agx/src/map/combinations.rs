//! Combinations of the values of several sources, some of which are paired.

use super::{
    lines::Lines,
    row::{InputRow, SourceValue},
};
use crate::{
    error::{CliError, Result},
    output::counted,
};

/// Maximum number of rows that agx holds in memory, of all groups after the first.
const MAX_HELD: usize = 1_000_000;
/// Maximum number of bytes of the rows that agx holds in memory.
const MAX_HELD_BYTES: usize = 256 * 1024 * 1024;

/// One value of each source of a group.
type GroupRow = Vec<SourceValue>;

/// Source whose values are read one by one.
#[derive(Debug)]
pub(super) enum SourceReader {
    Values(std::vec::IntoIter<String>),
    Lines(Lines),
}

impl SourceReader {
    fn next_value(&mut self) -> Result<Option<SourceValue>> {
        match self {
            Self::Values(values) => Ok(values.next().map(Ok)),
            Self::Lines(lines) => lines.next(),
        }
    }
}

/// Group of paired sources, or a single source.
#[derive(Debug)]
pub(super) struct SourceGroup(Vec<SourceReader>);

impl SourceGroup {
    pub(super) fn new(source: SourceReader) -> Self {
        Self(vec![source])
    }

    /// Pairs a source with those of the group.
    pub(super) fn pair(&mut self, source: SourceReader) {
        self.0.push(source);
    }

    /// Returns the next value of each source, or `None` after the end of the shortest one.
    fn next_row(&mut self) -> Result<Option<GroupRow>> {
        let mut row = Vec::with_capacity(self.0.len());
        for source in &mut self.0 {
            let Some(value) = source.next_value()? else { return Ok(None) };
            row.push(value);
        }
        Ok(Some(row))
    }
}

/// Passes every choice of one row of each group, the last group varying fastest, until `take`
/// returns false. The rows of the first group are passed as they arrive.
pub(super) fn combinations(groups: Vec<SourceGroup>, take: &mut dyn FnMut(InputRow) -> bool) -> Result<()> {
    let mut groups = groups.into_iter();
    let Some(mut first) = groups.next() else { return Ok(()) };
    let others = held(groups, MAX_HELD, MAX_HELD_BYTES)?;
    // Without a combination, agx would read a first source without an end forever.
    if others.iter().any(Vec::is_empty) {
        return Ok(());
    }
    while let Some(mut chosen) = first.next_row()? {
        if !combine(&others, &mut chosen, take) {
            break;
        }
    }
    Ok(())
}

/// Returns all rows of each group, at most `most` of them with `most_bytes` bytes.
fn held(
    groups: impl Iterator<Item = SourceGroup>,
    most: usize,
    most_bytes: usize,
) -> Result<Vec<Vec<GroupRow>>> {
    let (mut all, mut count, mut bytes) = (Vec::new(), 0, 0);
    for mut group in groups {
        let mut rows = Vec::new();
        while let Some(row) = group.next_row()? {
            count += 1;
            bytes += row.iter().map(|value| value.as_ref().map_or(0, String::len)).sum::<usize>();
            if count > most || bytes > most_bytes {
                return Err(too_many(most, most_bytes));
            }
            rows.push(row);
        }
        all.push(rows);
    }
    Ok(all)
}

fn too_many(most: usize, most_bytes: usize) -> CliError {
    let inputs = counted(most as u64, "input", "inputs");
    CliError::usage(
        format!(
            "the sources after the first have more than {inputs} or {most_bytes} bytes, which agx would hold in memory to \
             combine them with each input of the first"
        ),
        "give the source with the most inputs first: agx reads it while the jobs run",
    )
}

/// Passes every choice of one row of each group to `take`, after the values in `chosen`. Returns
/// false if `take` returned false.
fn combine(
    groups: &[Vec<GroupRow>],
    chosen: &mut Vec<SourceValue>,
    take: &mut dyn FnMut(InputRow) -> bool,
) -> bool {
    let Some((first, rest)) = groups.split_first() else { return take(chosen.iter().cloned().collect()) };
    let before = chosen.len();
    first.iter().all(|row| {
        chosen.extend(row.iter().cloned());
        let goes_on = combine(rest, chosen, take);
        chosen.truncate(before);
        goes_on
    })
}

#[cfg(test)]
mod tests {
    use super::{SourceGroup, SourceReader, held};

    /// Returns groups of `count` values of two bytes.
    fn groups(counts: &[usize]) -> impl Iterator<Item = SourceGroup> {
        let values = |count: &usize| vec!["ab".to_owned(); *count].into_iter();
        counts.iter().map(move |count| SourceGroup::new(SourceReader::Values(values(count))))
    }

    #[test]
    fn combinations_hold_a_bounded_number_of_inputs_in_memory() {
        let lengths: Vec<usize> = held(groups(&[3, 4]), 7, 14).unwrap().iter().map(Vec::len).collect();
        assert_eq!(lengths, [3, 4], "at the bounds");
        for (most, most_bytes) in [(6, 14), (7, 13)] {
            let refused = held(groups(&[3, 4]), most, most_bytes).unwrap_err();
            let bounds = format!("have more than {most} inputs or {most_bytes} bytes");
            assert!(refused.to_string().contains(&bounds), "{refused}");
        }
    }
}
