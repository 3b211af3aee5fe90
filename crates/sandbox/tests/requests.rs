//! Requests and replies of a supervisor, as a worker sends and receives them: ahead, together, and
//! out of order.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{
    fs,
    io::{ErrorKind, Read},
};

use agenix_sandbox::{
    client::SupervisorError,
    fault::Step,
    protocol::{ReceiveError, Sink, SupervisorReply, TaskSignal},
};
use rustix::event::{PollFd, PollFlags, poll};
use support::{TestSandbox, fault};

#[test]
fn job_ends_by_itself_after_its_last_task_and_all_others() {
    for mut sandbox in [TestSandbox::reader(), TestSandbox::subreaper()] {
        let (commands, replies) = sandbox.supervisor.split();
        let quiet = |number, argv: &[&str]| agenix_sandbox::protocol::TaskStart {
            stdout: Sink::Null,
            stderr: Sink::Null,
            ..support::task(number, argv)
        };
        let programs = ["/bin/sh", "/bin/sleep", "/usr/bin/setsid"].map(String::from).into();
        let slow = "setsid sh -c ': > left; exec sleep 1000' & until [ -e left ] && [ -e go ]; do :; done";
        commands.begin_with(programs, quiet(1, &["/bin/sh", "-c", slow]), &[]).unwrap();
        let last =
            agenix_sandbox::protocol::TaskStart { is_last: true, ..quiet(2, &["/bin/sh", "-c", ": > go"]) };
        commands.start(last, &[]).unwrap();
        let mut ended = Vec::new();
        let cleaned = loop {
            match replies.next().unwrap().unwrap() {
                SupervisorReply::Ended(end) => ended.push(end.task),
                SupervisorReply::Cleaned(cleaned) => break cleaned,
                _ => {}
            }
        };
        ended.sort_unstable();
        assert_eq!((ended, cleaned.strays), (vec![1, 2], 1));
        if !cleaned.retires {
            commands
                .begin_with(vec!["/bin/sh".into()], quiet(1, &["/bin/sh", "-c", "[ ! -e go ]"]), &[])
                .unwrap();
            let status = loop {
                if let SupervisorReply::Ended(end) = replies.next().unwrap().unwrap() {
                    break end.wait_status;
                }
            };
            assert_eq!(status, 0, "the next job has an empty scratch directory");
        }
    }
}

#[test]
fn job_whose_last_task_does_not_start_ends_by_itself() {
    for mut sandbox in [TestSandbox::reader(), TestSandbox::subreaper()] {
        let (commands, replies) = sandbox.supervisor.split();
        let last = |program: &str| agenix_sandbox::protocol::TaskStart {
            is_last: true,
            stdout: Sink::Null,
            stderr: Sink::Null,
            ..support::task(1, &[program])
        };
        // The job does not begin, and then the task does not start.
        for (listed, program) in [("/no/such/program", "/no/such/program"), ("/bin/true", "/bin/false")] {
            commands.begin_with(vec![listed.into()], last(program), &[]).unwrap();
            let mut has_failed = false;
            let retires = loop {
                match replies.next().unwrap().unwrap() {
                    SupervisorReply::Failed { task: Some(1), .. } => has_failed = true,
                    SupervisorReply::Cleaned(cleaned) => break cleaned.retires,
                    _ => {}
                }
            };
            assert!(has_failed, "{program}");
            if retires {
                break;
            }
        }
    }
}

#[test]
fn worker_sees_the_size_of_files_that_the_supervisor_opens() {
    for mut sandbox in [TestSandbox::reader(), TestSandbox::subreaper()] {
        let program = "/usr/bin/printf";
        let (commands, replies) = sandbox.supervisor.split();
        commands.begin(vec![program.into()]).unwrap();
        let start = agenix_sandbox::protocol::TaskStart {
            stdout: Sink::Path("out".into()),
            stderr: Sink::Path("err".into()),
            ..support::task(1, &[program, "four"])
        };
        commands.start(start, &[]).unwrap();
        let (mut files, mut has_ended) = (Vec::new(), false);
        while !has_ended {
            let received = match replies.try_receive() {
                Ok(received) => received.unwrap(),
                Err(ReceiveError::System(error)) if error.kind() == ErrorKind::WouldBlock => {
                    let mut watched = [PollFd::new(replies, PollFlags::IN)];
                    poll(&mut watched, None).unwrap();
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            for (reply, opened) in received {
                files.extend(opened.into_iter().map(fs::File::from));
                has_ended |= matches!(reply, SupervisorReply::Ended(_));
            }
        }
        let sizes: Vec<u64> = files.iter().map(|file| file.metadata().unwrap().len()).collect();
        assert_eq!(sizes, [4, 0]);
        assert!(files[0].read(&mut [0; 1]).is_err(), "the file is open for writing only");
    }
}

#[test]
fn requests_may_be_sent_ahead_of_a_job_that_does_not_begin() {
    let mut sandbox = TestSandbox::reader();
    let commands = sandbox.supervisor.commands();
    commands.begin(vec!["/no/such/program".into()]).unwrap();
    let start = agenix_sandbox::protocol::TaskStart {
        stdout: Sink::Null,
        stderr: Sink::Null,
        ..support::task(1, &["/no/such/program"])
    };
    commands.start(start, &[]).unwrap();
    commands.signal(1, TaskSignal::Kill).unwrap();
    let begun = sandbox.supervisor.begin(&["/bin/true"]).unwrap_err();
    assert_eq!(fault(begun).step, Step::Programs, "the answer of the first job");
    assert_eq!(fault(sandbox.supervisor.begin(&["/bin/true"]).unwrap_err()).detail, "the job has not begun");
}

#[test]
fn request_out_of_order_ends_the_supervisor() {
    let mut sandbox = TestSandbox::reader();
    sandbox.begin(&["/bin/true"]);
    assert_eq!(fault(sandbox.supervisor.begin(&["/bin/true"]).unwrap_err()).step, Step::Protocol);
    assert!(matches!(sandbox.supervisor.wait(1), Err(SupervisorError::Ended)));
}
