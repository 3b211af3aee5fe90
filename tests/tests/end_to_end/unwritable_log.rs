//! Unwritable log: agq drops a log line that it cannot write and continues, but still ends if its
//! store fails.

use std::os::unix::fs::symlink;

use e2e::{Lab, ResourceLimit, eventually};

use crate::support::{RawConnection, ended, plan};

/// Links the log of agq to a full disk.
fn fill_log(lab: &Lab) {
    symlink("/dev/full", lab.path().join("agq.log")).unwrap();
}

#[test]
fn reaper_survives_a_log_line_that_cannot_be_written() {
    let lab = Lab::new();
    fill_log(&lab);
    let agq = lab.agq(&["--heartbeat-interval", "0.2"]);
    let mut raw = RawConnection::open(&lab, &agq);
    // The reaper logs the death of this silent worker.
    assert!(
        raw.ask(r#"WORKER.REGISTER '{"worker_id":"silent","capabilities":["nothing"]}'"#)
            .starts_with(['+', '$'])
    );
    eventually("the silent worker is dead", || {
        raw.send("WORKER.GET silent\n");
        raw.bulk().contains(r#""dead""#).then_some(())
    });
    // Only the reaper releases a delayed job, so the end of this job shows that the reaper runs.
    let _agw = lab.agw(&agq, "w", &[]);
    lab.submit_plan(&agq, &plan("delayed", "true", &[]));
    let reply =
        raw.ask(r#"ACTION.SUBMIT '{"plan_id":"delayed","action_id":"a","inputs":[{}],"delay_secs":0.3}'"#);
    assert!(reply.starts_with("+OK"), "{reply}");
    assert_eq!(ended(&lab, &agq, "a")["status"], "completed");
}

#[test]
fn full_disk_ends_agq_though_the_log_is_on_it_as_well() {
    let lab = Lab::on_files();
    fill_log(&lab);
    let mut agq = lab.agq(&[]);
    agq.stop();
    // The database and its write-ahead log have some megabytes from the start.
    let files = std::fs::read_dir(lab.path().join("data")).unwrap().flatten();
    let largest = files.map(|file| file.metadata().unwrap().len()).max().unwrap();
    agq.try_start_again(&lab, Some(ResourceLimit::FileBytes(largest + 1024 * 1024))).unwrap();
    let mut raw = RawConnection::open(&lab, &agq);
    let value = "x".repeat(1024 * 1024);
    for key in 0..200 {
        raw.send(&format!("*3\r\n$3\r\nSET\r\n$4\r\nk{key:03}\r\n${}\r\n{value}\r\n", value.len()));
        if !raw.line().starts_with("+OK") {
            break;
        }
    }
    let status = eventually("agq ends, because its store cannot continue", || agq.ended());
    assert_eq!(status.code(), Some(1));
}
