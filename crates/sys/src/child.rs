//! Steps of a child between fork(2) and exec(2). A child with such a step starts by fork(2), which
//! costs more than the usual start.

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd, unix::process::CommandExt},
    process::Command,
};

/// Bounds the data of the started process, and of each of its children, to `bytes`: its heap and
/// its private writable mappings (`RLIMIT_DATA`). A lower limit of this process stays.
///
/// # Errors
///
/// Returns the error of the system if the limit of this process cannot be read.
#[allow(unsafe_code)]
pub fn limit_data(command: &mut Command, bytes: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for writes of its type during the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_DATA, &raw mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = bytes.min(limit.rlim_max);
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    let set = move || {
        // SAFETY: the pointer is valid for reads of its type during the call.
        let answer = unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: setrlimit(2) is a system call that is safe after fork(2), and nothing allocates.
    unsafe { command.pre_exec(set) };
    Ok(())
}

/// Moves the started process to the control group with the file `entrance`, its `cgroup.procs`,
/// before the process can start others.
#[allow(unsafe_code)]
pub fn join_group(command: &mut Command, entrance: File) {
    let join = move || {
        // SAFETY: `entrance` keeps the descriptor open, and the buffer has one byte.
        let written = unsafe { libc::write(entrance.as_raw_fd(), c"0".as_ptr().cast(), 1) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: write(2) is a system call that is safe after fork(2), and nothing allocates.
    unsafe { command.pre_exec(join) };
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Seek, SeekFrom},
        process::Command,
    };

    use super::{join_group, limit_data};

    #[cfg(target_os = "linux")]
    #[test]
    fn data_of_a_child_and_its_children_are_bounded() {
        let limits = |bytes| {
            let mut command = Command::new("sh");
            limit_data(&mut command, bytes).unwrap();
            let output = command.args(["-c", "sh -c 'grep \"Max data size\" /proc/self/limits'"]).output();
            let text = String::from_utf8(output.unwrap().stdout).unwrap();
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u64>>()
        };
        assert_eq!(limits(256 << 20), [256 << 20, 256 << 20]);
        // tail(1) keeps all bytes that it may have to print.
        let copy = |bytes| {
            let mut command = Command::new("sh");
            limit_data(&mut command, bytes).unwrap();
            let script = "head -c 100000000 /dev/zero | tail -c 100000000 2> /dev/null | wc -c";
            String::from_utf8(command.args(["-c", script]).output().unwrap().stdout).unwrap()
        };
        assert_eq!(copy(400 << 20).trim(), "100000000");
        assert_eq!(copy(32 << 20).trim(), "0");
    }

    #[test]
    fn child_joins_a_group_before_it_executes_its_program() {
        let mut file = tempfile::tempfile().unwrap();
        let mut command = Command::new("true");
        join_group(&mut command, file.try_clone().unwrap());
        assert!(command.status().unwrap().success());
        file.seek(SeekFrom::Start(0)).unwrap();
        assert_eq!(std::io::read_to_string(file).unwrap(), "0");
        let read_only = fs::File::open("/dev/null").unwrap();
        let mut command = Command::new("true");
        join_group(&mut command, read_only);
        assert!(command.status().is_err(), "it does not start outside of its group");
    }
}
