//! agq, the queue.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Commands are many small allocations that one thread makes and another frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    agq_server::run_program()
}
