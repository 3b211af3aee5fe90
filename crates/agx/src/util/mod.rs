//! Helpers without knowledge of agq: files, paths, signals, text, threads.

pub(crate) mod atomic_file;
pub(crate) mod clock;
pub(crate) mod duration;
pub(crate) mod path_lookup;
pub(crate) mod path_text;
pub(crate) mod printable;
pub(crate) mod proquint;
pub(crate) mod shorten;
pub(crate) mod signals;
pub(crate) mod temp_file;
pub(crate) mod terminal_stream;
pub(crate) mod text;
pub(crate) mod threads;
