//! `agx top`: a full-screen view of workers, queues and actions. `model` is the state and the
//! meaning of keys (no I/O), `selection` keeps the selected row, `view` draws the state, and `app`
//! is the event loop.

mod app;
mod job_list;
mod model;
mod selection;
mod view;

pub(crate) use crate::top::app::show;
