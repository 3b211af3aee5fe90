//! Reads the inputs on a separate thread, ahead of demand up to a bound.

use std::sync::Arc;

use tokio::{
    runtime::Handle,
    sync::{Semaphore, mpsc, oneshot},
};

use crate::{
    error::Result,
    map::{
        held::{HoldReason, held},
        input::{InvalidInput, MapInput, Read},
        options::OptionCheck,
        resumed::Resumed,
        sources::{Sources, blocks},
    },
    util::threads,
};

/// Maximum number of inputs that are read ahead.
const MAX_INPUTS: usize = 10_000;
/// Maximum number of bytes of the inputs that are read ahead. One input may be larger.
const MAX_BYTES: usize = 16 * 1024 * 1024;

const OF_TOTAL: HoldReason = HoldReason {
    option: "--halt with a percentage",
    help: "give a number of jobs instead, as in --halt soon,fail=1000",
};

/// Size of a block of stdin, or `None` if stdin is a list of inputs.
pub(crate) type BlockSize = Option<usize>;

/// Values of a job and its block of stdin, or the reason why no job can have them.
type ValuesOrReason = Result<(Vec<String>, Option<String>), String>;

/// Number of an input, counted from 1, and what was read.
type NumberedRow = (u64, ValuesOrReason);

/// Inputs that arrive while a thread reads them.
pub(crate) struct ArrivingInputs {
    pub(crate) inputs: mpsc::Receiver<Read>,
    /// Number of all inputs, before the first input; `None` if the number was not asked for.
    pub(crate) total: Option<oneshot::Receiver<u64>>,
}

/// Reads the inputs without those that `resumed` skips. With `block`, reads blocks of stdin. If
/// `is_counted`, all inputs are read before the first one is passed on.
pub(crate) fn read(
    sources: Sources,
    block: BlockSize,
    resumed: Resumed,
    mut check: OptionCheck,
    is_counted: bool,
) -> Result<ArrivingInputs> {
    let (send, inputs) = mpsc::channel(MAX_INPUTS);
    let (count, total) = is_counted.then(oneshot::channel).unzip();
    let (room, runtime) = (Arc::new(Semaphore::new(MAX_BYTES)), Handle::current());
    let ended = send.clone();
    let mut take = move |(seq, row): NumberedRow| {
        let why_not = |(args, block): (Vec<String>, _)| match check.why_not(&args, seq) {
            Some(why) => Err(why),
            None => Ok((args, block)),
        };
        let read = match row.and_then(why_not) {
            Err(why) => Read::Unfit(InvalidInput { seq, why }),
            Ok((args, block)) => {
                let input = MapInput { seq, args, block };
                let bytes = u32::try_from(input.bytes().clamp(1, MAX_BYTES)).unwrap_or(u32::MAX);
                let room = runtime.block_on(Arc::clone(&room).acquire_many_owned(bytes));
                Read::Input(input, room.expect("the semaphore is never closed"))
            }
        };
        send.blocking_send(read).is_ok()
    };
    // The thread ends with its source or, with an open stdin, with the process.
    threads::start(move || {
        let read = match count {
            None => each(sources, block, resumed, &mut take),
            Some(count) => held(|take| each(sources, block, resumed, take), bytes_of, OF_TOTAL).map(|rows| {
                let _nobody = count.send(rows.len() as u64);
                let _all = rows.into_iter().all(take);
            }),
        };
        if let Err(failure) = read {
            let _nobody = ended.blocking_send(Read::Failed(failure));
        }
    })?;
    Ok(ArrivingInputs { inputs, total })
}

/// Passes the inputs that `resumed` does not skip, until `take` returns false.
fn each(
    sources: Sources,
    block: BlockSize,
    mut resumed: Resumed,
    take: &mut dyn FnMut(NumberedRow) -> bool,
) -> Result<()> {
    let mut seq = 0;
    let mut unless_skipped = |row: ValuesOrReason| {
        seq += 1;
        let is_skipped = resumed.skips(row.as_ref().ok().map(|(args, _)| &args[..]), seq);
        is_skipped || take((seq, row))
    };
    match block {
        Some(size) => blocks(size, |block| unless_skipped(block.map(|block| (Vec::new(), Some(block))))),
        None => sources.each(|args| unless_skipped(args.map(|args| (args, None)))),
    }
}

fn bytes_of((_, row): &NumberedRow) -> usize {
    row.as_ref().map_or(0, |(args, block)| args.iter().chain(block).map(String::len).sum())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::{MAX_BYTES, Read, read};
    use crate::{
        map::{
            command_template::CommandTemplate,
            fields::InputFields,
            options::OptionCheck,
            resumed::Resumed,
            sources::{Sources, split},
        },
        output::OutputFormat,
    };

    /// Returns inputs of these sizes as the values behind `:::`.
    fn sources(sizes: &[usize]) -> Sources {
        let values = sizes.iter().map(|size| "x".repeat(*size));
        let words = ["c", ":::"].into_iter().map(str::to_owned).chain(values).collect();
        Sources::new(Vec::new(), split(words).unwrap().1, b'\n')
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The consumer keeps some inputs for a while. The reader never has more bytes in flight
        /// than the bound, or one larger input, and continues as soon as there is room.
        #[test]
        fn reading_ahead_is_bounded_in_bytes_for_any_split(
            sizes in prop::collection::vec((0..24_usize, 0..MAX_BYTES / 8), 1..40),
            keeps in prop::collection::vec(0..8_usize, 40),
        ) {
            // One input of 24 is larger than the bound, and one is empty.
            let size = |&(kind, bytes): &(usize, usize)| match kind {
                0 => MAX_BYTES + bytes,
                1 => 0,
                _ => bytes,
            };
            let sizes: Vec<usize> = sizes.iter().map(size).collect();
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let _inside = runtime.enter();
            let output = OutputFormat::default();
            let check = OptionCheck::new(Vec::new(), InputFields::default(), output);
            let command = CommandTemplate::new(Vec::new(), InputFields::default());
            let resumed = Resumed::new(BTreeMap::new(), command, output);
            let mut inputs = read(sources(&sizes), None, resumed, check, false).unwrap().inputs;
            let (mut kept, mut kept_bytes) = (VecDeque::new(), 0);
            for (size, keep) in sizes.iter().zip(keeps) {
                let counted = (*size).clamp(1, MAX_BYTES);
                // The kept inputs have to leave room for the next one.
                while kept.len() > keep || kept_bytes + counted > MAX_BYTES {
                    let (bytes, _room): (usize, _) = kept.pop_front().expect("it is more than nothing");
                    kept_bytes -= bytes;
                }
                let Some(Read::Input(input, room)) = inputs.blocking_recv() else { panic!("an input is missing") };
                prop_assert_eq!(input.bytes(), *size);
                kept_bytes += counted;
                let free = room.semaphore().available_permits();
                prop_assert!(kept_bytes + free <= MAX_BYTES, "{} bytes are kept and {} free", kept_bytes, free);
                kept.push_back((counted, room));
            }
            prop_assert!(inputs.blocking_recv().is_none());
        }
    }

    #[tokio::test]
    async fn inputs_are_counted_before_the_first_without_those_that_are_skipped() {
        let output = OutputFormat::default();
        let check = OptionCheck::new(Vec::new(), InputFields::default(), output);
        let command = CommandTemplate::new(Vec::new(), InputFields::default());
        let resumed = Resumed::new(BTreeMap::from([(2, 0)]), command, output);
        let mut arriving = read(sources(&[1; 5]), None, resumed, check, true).unwrap();
        assert_eq!(arriving.total.take().unwrap().await, Ok(4));
        let mut numbers = Vec::new();
        while let Some(Read::Input(input, _)) = arriving.inputs.recv().await {
            numbers.push(input.seq);
        }
        assert_eq!(numbers, [1, 3, 4, 5]);
    }
}
