//! `agx map`: a pipeline over many inputs, as GNU Parallel takes them, on agq.
//!
//! Inputs are sent as they come, no further ahead than a bound, and results are shown as they come. What is pure stands in
//! `placeholders`, `halt` and `joblog`.

mod ahead;
mod collect;
mod deliver;
mod engine;
mod feed;
mod halt;
mod joblog;
mod meaning;
mod options;
mod placeholders;
mod printer;
mod reading;
mod results_dir;
mod sources;

pub(crate) use ahead::Ahead;
pub(crate) use collect::Collected;
pub(crate) use deliver::{Delivery, filled};
pub(crate) use engine::{Engine, Mapped, end};
pub(crate) use feed::{BLOCK, Unsent, Wish};
pub(crate) use halt::Halt;
pub(crate) use joblog::{Done, JobLog, done};
pub(crate) use meaning::{Braced, Reader, in_plan};
pub(crate) use options::Check;
pub(crate) use placeholders::Placeholder;
pub(crate) use printer::Printer;
pub(crate) use reading::read;
pub(crate) use sources::{Sources, blocks, split};
