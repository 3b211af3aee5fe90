//! What jobs write, as they write it: `seen` (how far we are; pure), `paper` (onto which it is printed), `follow` (what is asked).

mod follow;
mod paper;
mod seen;

pub(crate) use follow::{Wanted, of_action, of_job};
pub(crate) use paper::Shown;
