//! Start of a child by the standard library.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use super::{ChildProgram, data_limit};

pub(super) fn start(program: ChildProgram<'_>) -> io::Result<i32> {
    let ChildProgram { program, args, env, cwd, stdio: [stdin, stdout, stderr], data_limit: bytes } = program;
    let mut command = Command::new(program);
    if let Some((name, args)) = args.split_first() {
        command.arg0(name).args(args);
    }
    command
        .env_clear()
        .envs(env)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr))
        .process_group(0);
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    if let Some(bytes) = bytes {
        limit_data(&mut command, bytes)?;
    }
    Ok(command.spawn()?.id().cast_signed())
}

#[allow(unsafe_code)]
fn limit_data(command: &mut Command, bytes: u64) -> io::Result<()> {
    let limit = data_limit(bytes)?;
    let set = move || {
        // SAFETY: the pointer is valid for reads of its type during the call.
        let answer = unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: setrlimit(2) is a system call that is safe after fork(2), and nothing allocates.
    unsafe { command.pre_exec(set) };
    Ok(())
}
