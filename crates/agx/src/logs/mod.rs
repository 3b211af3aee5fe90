//! What jobs write, as they write it: `seen` (how far we are; pure), `paper` (onto which it is printed), `followed` (one job and its
//! worker), `follow` (all of them, again and again).

mod follow;
mod job;
mod position;
mod printer;

pub(crate) use crate::logs::printer::OutputDocument;
pub(crate) use follow::{LogOptions, of_action, of_job, waits};
