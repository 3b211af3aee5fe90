//! Check that the system permits threads. tokio panics if the system refuses one of its threads.

use std::{
    io,
    sync::Mutex,
    thread::{self, Builder},
};

/// Starts `count` threads that exist at the same time, and ends them. The error is that of the
/// first thread which the system refuses, with the limits to look at.
pub fn check_threads(count: usize) -> io::Result<()> {
    start_together(count, Builder::new).map_err(|error| refused_thread(&error))
}

/// Returns the error of a thread that the system refused, with the limits to look at.
#[must_use]
pub fn refused_thread(error: &io::Error) -> io::Error {
    let advice = "check `ulimit -u`, `ulimit -v` and the limit of processes of the container";
    io::Error::new(error.kind(), format!("the system refused a thread: {error}; {advice}"))
}

fn start_together(count: usize, builder: impl Fn() -> Builder) -> io::Result<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        // No thread ends before the last one has started.
        let _closed = gate.lock();
        for _ in 0..count {
            let _thread = builder().spawn_scoped(scope, || drop(gate.lock()))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::thread::Builder;

    use super::{check_threads, refused_thread, start_together};

    #[test]
    fn refused_thread_is_an_error_with_advice() {
        check_threads(0).unwrap();
        check_threads(8).unwrap();
        // No address space has room for such a stack.
        let error = start_together(1, || Builder::new().stack_size(usize::MAX / 4)).unwrap_err();
        let text = refused_thread(&error).to_string();
        assert!(text.starts_with("the system refused a thread: ") && text.contains("ulimit -u"), "{text}");
    }
}
