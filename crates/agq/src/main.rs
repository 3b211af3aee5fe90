//! The `agq` program: the queue server.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Commands make many small allocations, which often are freed by another thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    agq_server::run_program()
}
