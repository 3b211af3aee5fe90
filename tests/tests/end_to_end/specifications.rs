//! Every reply and every error line of the worker spec, the AGQ API spec and the RESP spec, on a
//! real agq over TCP.
//!
//! Each test is a conversation on a bare connection: `> ` is sent, `< ` is expected, and `…`
//! matches any text within the line.

mod actions_and_jobs;
mod core;
mod plans_and_queues;
mod workers;

use e2e::Lab;

use crate::support::{RawConnection, is_like};

/// Plays a conversation on an authenticated connection to a new agq.
fn converse(args: &[&str], script: &str) {
    let lab = Lab::new();
    let agq = lab.agq(args);
    let mut raw = RawConnection::open(&lab, &agq);
    hold(&mut raw, script);
}

/// Plays a conversation on a connection.
fn hold(raw: &mut RawConnection, script: &str) {
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.split_at_checked(2) {
            Some(("> ", command)) => raw.send(&format!("{command}\r\n")),
            Some(("< ", expected)) => {
                let got = raw.line();
                assert!(is_like(&got, expected), "expected {expected}\n     got {got}\nin {script}");
            }
            _ => panic!("a line is neither sent nor expected: {line}"),
        }
    }
}

/// Defines a test for each named conversation.
macro_rules! says {
    ($($(#[$doc:meta])* $name:ident: $script:literal)*) => {
        $($(#[$doc])* #[test]
        fn $name() {
            super::converse(&[], $script);
        })*
    };
}
pub(crate) use says;
