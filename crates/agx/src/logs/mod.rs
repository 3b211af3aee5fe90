//! Output of jobs. `position` tracks the printed part (no I/O), `printer` prints, `job` follows one
//! job on its worker, and `follow` polls all jobs.

mod follow;
mod job;
mod position;
mod printer;

pub(crate) use crate::logs::job::{FollowedJob, SilentWorkers};
pub(crate) use crate::logs::printer::{LineForm, OutputDocument};
pub(crate) use follow::{LogOptions, WAIT_NOTED_AFTER, of_action, of_job, waits};
