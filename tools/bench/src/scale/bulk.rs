//! An open action that gets thousands of jobs by each command.

use std::io;

use agenix_harness::resp::Resp;

use super::fixture::{ScaleFixture, expect_ok};

/// Number of inputs in a command.
const BATCH: usize = 5000;
const OPEN: &str = r#"{"action_id":"bulk","plan_id":"nothing","open":true}"#;

pub(super) struct Bulk {
    resp: Resp,
}

impl Bulk {
    pub(super) fn open(fixture: &ScaleFixture) -> io::Result<Self> {
        let mut resp = fixture.connect()?;
        expect_ok(&mut resp, &["ACTION.SUBMIT", OPEN])?;
        Ok(Self { resp })
    }

    /// Adds `count` small jobs.
    pub(super) fn add(&mut self, count: usize) -> io::Result<()> {
        for start in (0..count).step_by(BATCH) {
            let inputs: Vec<_> =
                (start..count.min(start + BATCH)).map(|n| format!(r#"{{"line":"{n}"}}"#)).collect();
            self.add_inputs(&inputs)?;
        }
        Ok(())
    }

    pub(super) fn add_inputs(&mut self, inputs: &[String]) -> io::Result<()> {
        expect_ok(&mut self.resp, &["ACTION.ADD", "bulk", &format!("[{}]", inputs.join(","))])
    }
}
