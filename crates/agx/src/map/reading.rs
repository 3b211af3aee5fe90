//! Reads the inputs on a thread of its own, as they are asked for and no further ahead than a bound.

use std::{collections::BTreeSet, sync::Arc};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

use super::{
    feed::Input,
    options::Check,
    sources::{Sources, blocks},
};
use crate::failure::Failure;

/// Most inputs that are read ahead.
const MOST_INPUTS: usize = 10_000;
/// Most bytes of them; one input may be larger.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// An input that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// The number of the input, from 1.
    pub(crate) seq: u64,
    /// Why no job can have it.
    pub(crate) why: String,
}

/// What was read.
#[derive(Debug)]
pub(crate) enum Read {
    /// An input, and the room that it takes until it is dropped.
    Input(Input, OwnedSemaphorePermit),
    /// Something that cannot be one.
    Unfit(Unfit),
    /// Nothing more comes.
    Failed(Failure),
}

/// How stdin is cut where it is no list of inputs.
pub(crate) type BlockSize = Option<usize>;

/// Reads the inputs, those that are skipped left out; with a block size, blocks of stdin.
pub(crate) fn read(
    sources: Sources,
    block: BlockSize,
    skipped: BTreeSet<u64>,
    mut check: Check,
) -> mpsc::Receiver<Read> {
    let (send, inputs) = mpsc::channel(MOST_INPUTS);
    let (room, runtime) = (Arc::new(Semaphore::new(MOST_BYTES)), Handle::current());
    let mut seq = 0;
    let ended = send.clone();
    let mut take = move |read: Result<(Vec<String>, Option<String>), String>| {
        seq += 1;
        if skipped.contains(&seq) {
            return true;
        }
        let why_not = |(args, block): (Vec<String>, _)| match check.why_not(&args, seq) {
            Some(why) => Err(why),
            None => Ok((args, block)),
        };
        let read = match read.and_then(why_not) {
            Err(why) => Read::Unfit(Unfit { seq, why }),
            Ok((args, block)) => {
                let input = Input { seq, args, block };
                let bytes = u32::try_from(input.bytes().clamp(1, MOST_BYTES)).unwrap_or(u32::MAX);
                let room = runtime.block_on(Arc::clone(&room).acquire_many_owned(bytes));
                Read::Input(input, room.expect("the semaphore is never closed"))
            }
        };
        send.blocking_send(read).is_ok()
    };
    // The thread ends with its source; a stdin that stays open ends with the process.
    std::thread::spawn(move || {
        let read = match block {
            Some(size) => blocks(size, |block| take(block.map(|block| (Vec::new(), Some(block))))),
            None => sources.each(|args| take(args.map(|args| (args, None)))),
        };
        if let Err(failure) = read {
            let _nobody = ended.blocking_send(Read::Failed(failure));
        }
    });
    inputs
}
