//! `agx top`: how everything stands, again and again, and what can be done about it. `model` is what is shown and what a key means
//! (pure), `view` draws it, `show` is where time passes.

mod app;
mod model;
mod view;

pub(crate) use crate::top::app::show;
