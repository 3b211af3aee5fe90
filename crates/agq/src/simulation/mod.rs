//! agq below the socket, played from a seed: commands, rules, matchmakers, reaper and redb as they are, on a disk, a clock
//! and with users that do what the seed says. One thread, one order: a seed that fails fails again.
//!
//! `world` is everything of one seed, `steps` and `workers` what may happen, `replies` what answers mean, `checks` what must hold, `finish` how it ends. `ledger` and
//! `keys` are the models that agq is held against, `disk`, `log` and `time` the machine, `life` one process of agq, `actors` those
//! who play with it. `run` makes a failing seed short, `images` and `damage` start agq on what a crash or a bad disk could leave,
//! `program` is the command line. `moves` are what happened in a world, and `twin` makes them again on PostgreSQL, to compare. `nodes` lets two nodes work on one PostgreSQL at once. `own` are jobs with limits and kinds, which `twin` compares. `paths` goes the ways that are gone most, for whoever counts the instructions of that.

mod actors;
mod checks;
mod cli;
mod corruption;
mod crash_images;
mod differential;
mod disk;
mod hot_paths;
mod keys;
mod ledger;
mod log;
mod metrics;
mod nodes;
mod ojs_jobs;
mod operations;
mod process;
mod quiesce;
mod recording;
mod replies;
mod report;
mod run;
mod steps;
mod time;
mod workers;
mod world;

pub use crate::simulation::{cli::run_program, hot_paths::run_path};
