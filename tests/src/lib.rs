//! A lab for the real binaries: a directory that disappears, servers and workers that are killed when they are dropped.

#![forbid(unsafe_code)]

mod agq;
mod agw;
mod lab;
mod wait;

pub use agq::Agq;
pub use agw::Agw;
pub use lab::{Lab, Ran};
pub use wait::{eventually, is_gone, within};
