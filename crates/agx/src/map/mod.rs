//! `agx map`: runs a pipeline over many inputs on agq, with the options of GNU Parallel.
//!
//! agx submits inputs as they arrive, with backpressure, and prints results as jobs end.
//! `placeholders`, `halt` and `joblog` hold the pure code.

mod code;
mod collector;
mod columns;
mod combinations;
mod command_template;
mod delivery;
mod engine;
mod fields;
mod grouping;
mod halt;
mod held;
mod input;
mod input_batch;
mod joblog;
mod large_output;
mod lines;
mod live;
mod meaning;
mod options;
mod pace;
mod placeholders;
mod printer;
mod read_ahead;
mod reading;
mod reorder_buffer;
mod results_dir;
mod resumed;
mod row;
mod shuffle;
mod sources;
mod stop_level;
mod submitter;
mod tag;

pub(crate) use code::{appended, extended};
pub(crate) use collector::MapCounts;
pub(crate) use columns::{Columns, Separator};
pub(crate) use command_template::CommandTemplate;
pub(crate) use delivery::Delivery;
pub(crate) use engine::{Engine, MapOutcome, end};
pub(crate) use fields::InputFields;
pub(crate) use halt::{is_decided_by_agq, needs_total, parse as parse_halt};
pub(crate) use input::BLOCK;
pub(crate) use joblog::{JobLog, ResumeScope, done};
pub(crate) use live::Grouping;
pub(crate) use meaning::{BraceMeaning, BraceParser, in_plan, perl_expression};
pub(crate) use options::OptionCheck;
pub(crate) use pace::SubmissionPace;
pub(crate) use placeholders::Placeholder;
pub(crate) use printer::Printer;
pub(crate) use read_ahead::ReadAhead;
pub(crate) use reading::read;
pub(crate) use resumed::{CompletedInputs, Resumed};
pub(crate) use sources::{Sources, blocks, split};
pub(crate) use stop_level::StopLevel;
pub(crate) use submitter::UnsentInputs;
