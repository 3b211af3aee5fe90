//! Execution of one job: processes, pipes, files and their limits.

pub(crate) mod admission;
pub(crate) mod cancel;
pub(crate) mod ended;
pub(crate) mod exit;
pub(crate) mod helper_command;
pub(crate) mod idle;
pub(crate) mod inherited_limit;
pub(crate) mod input_space;
pub(crate) mod io_counters;
pub(crate) mod job;
pub(crate) mod job_mark;
pub(crate) mod job_report;
pub(crate) mod job_resources;
pub(crate) mod launch;
pub(crate) mod live_output;
pub(crate) mod memory_bound;
pub(crate) mod open_file_limit;
pub(crate) mod out_of_memory;
pub(crate) mod output_quota;
pub(crate) mod pipe;
pub(crate) mod process;
mod process_group;
pub(crate) mod process_table;
pub(crate) mod processor_time;
pub(crate) mod program_file;
pub(crate) mod programs;
pub(crate) mod provenance;
#[cfg(target_os = "linux")]
mod readiness;
pub(crate) mod relay_pool;
pub(crate) mod resource_wait;
mod result_size;
pub(crate) mod sandbox;
pub(crate) mod secrets;
pub(crate) mod spawn_threads;
pub(crate) mod spool;
pub(crate) mod stage;
pub(crate) mod stages;
pub(crate) mod start;
pub(crate) mod stray_processes;
#[cfg(target_os = "linux")]
pub(crate) mod stray_sweep;
#[cfg(not(target_os = "linux"))]
#[path = "no_stray_sweep.rs"]
pub(crate) mod stray_sweep;
pub(crate) mod streams;
pub(crate) mod subreaper;
pub(crate) mod task_environment;
mod unstarted_result;
mod user_files;
