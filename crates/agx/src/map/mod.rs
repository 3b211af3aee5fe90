//! `agx map`: a pipeline over many inputs, as GNU Parallel takes them, on agq.
//!
//! Inputs are sent as they come and results are shown as they come. What is pure stands in `sources`, `placeholders`, `halt` and
//! `joblog`.

mod collect;
mod deliver;
mod feed;
mod halt;
mod joblog;
mod placeholders;
mod results_dir;
mod sources;

pub(crate) use collect::{Collected, collect};
pub(crate) use deliver::{Delivery, filled};
pub(crate) use feed::{BLOCK, Feed, Input};
pub(crate) use halt::Halt;
pub(crate) use joblog::{Done, JobLog, done};
pub(crate) use placeholders::Placeholder;
pub(crate) use sources::{Sources, blocks, split};
