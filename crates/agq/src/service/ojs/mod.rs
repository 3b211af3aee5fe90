//! What the Open Job Spec asks for, one function an operation (the OJS worker spec). The same rules, matchmaker and store as for RESP: a job that
//! comes by this door is a job like any other.

mod dead;
mod jobs;
mod queues;
mod shown;
mod submit;
mod work;
mod workers;

pub(crate) use dead::{dead_letter, dead_letters, forget_dead, retry, retry_dead};
pub(crate) use jobs::{activate, cancel, get, progress};
pub(crate) use queues::{
    check_room, configure, limit, pause, queue_counts, queue_settings, queue_states, room,
};
pub(crate) use shown::job_view;
pub(crate) use submit::{enqueue, enqueue_all, submit_named};
pub(crate) use work::{ack, fetch, nack, on_job_ended, report_progress};
pub(crate) use workers::{beat, deregister, register, set_directive, worker_of};
